"""The terminal interface: the only package of the project that imports Textual."""
