"""What is wrong with a file."""


class SnapshotError(Exception):
    """A file that cannot be opened as a memory snapshot; the message is one line for the user."""
