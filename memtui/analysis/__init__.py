"""Pure functions from what is known to what is shown. Imports neither torch nor Textual."""
