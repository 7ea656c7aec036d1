"""The overview of several ranks: its table, its cards and small multiples, and the comparison of two."""
