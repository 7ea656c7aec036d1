"""Which characters may stand in a cell. Everything else is dropped: nothing that controls a terminal is a cell."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import get_character_cell_size

#: More marks on one character than any script needs; a cell must not grow without end.
MAX_COMBINING = 4

#: Controls, formats (bidirectional overrides, joiners), surrogates, line and paragraph separators.
_NEVER = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@lru_cache(maxsize=4096)
def is_shown(character: str) -> bool:
    """Whether it takes one or two cells of its own."""
    return unicodedata.category(character) not in _NEVER and get_character_cell_size(character) > 0


@lru_cache(maxsize=1024)
def is_combining(character: str) -> bool:
    """Whether it is a mark that joins the character before it."""
    # Variation selectors are marks too, but turn narrow characters into wide ones after the fact.
    return (
        unicodedata.category(character) in ("Mn", "Me")
        and not 0xFE00 <= ord(character) <= 0xFE0F
        and get_character_cell_size(character) == 0
    )
