"""Words of other processes, for a line of this one's."""

from __future__ import annotations

_MOST = 300


def printable(text: str) -> str:
    """Without what could move a terminal's cursor, or fill it."""
    shown = "".join(character if character.isprintable() else "?" for character in text[:_MOST])
    return shown if len(text) <= _MOST else f"{shown}…"


def last_line(output: str) -> str:
    """What a program said last before it failed."""
    lines = output.strip().splitlines()
    return printable(lines[-1]) if lines else "it failed without a word"
