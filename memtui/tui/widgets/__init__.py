"""The parts of the screen, one a file."""
