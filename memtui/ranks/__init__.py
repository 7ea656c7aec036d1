"""Several ranks side by side: rows, a summary, and what goes wrong between them; from sessions, without a screen."""
