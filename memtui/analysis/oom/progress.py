"""What a program printed of its memory at its steps, before it ran out."""

from __future__ import annotations

import re
from typing import Optional

from .parse import is_own, without_prefix
from .series import Figure, Series, find_course

_SIZE = rb"[ \t]{0,4}[:=]?[ \t]{0,4}(\d{1,9}(?:\.\d{1,6})?) ?([KMG])(?:iB|B|b)?(?![a-zA-Z/])"
#: "allocated 8.4 GiB", "mem: 8400MB"; a figure without a unit can be anything. Each begins with letters that are found
#: quickly in gigabytes.
_MEMORY = (re.compile(rb"em(?:ory)?" + _SIZE), re.compile(rb"llocated" + _SIZE))
#: What must stand before those letters, and what makes another figure of it: a maximum, or what is reserved.
_BEGINNING = re.compile(rb"(?:(?<![a-zA-Z])[mM]|[aA])$")
_OTHER = re.compile(rb"(?:max|peak|reserved|cached)(?:imum)?[_ ]?(?:cuda|gpu|mem|memory)?[_ ]?[a-z]$", re.IGNORECASE)
_STEP = re.compile(rb"(?<![a-zA-Z])(?:global_)?(?:[sS]tep|[iI]ter(?:ation)?)s?[ \t]{0,4}[:=#\[]?[ \t]{0,4}(\d{1,9})")
_POWERS = {b"K": 10, b"M": 20, b"G": 30}
#: A line is looked at so far before and behind the figure.
_REACH = 300
#: Every other figure goes where there are more.
_MOST = 8_192


class Progress:
    """The figures of each rank, in the order of its steps; bounded."""

    def __init__(self) -> None:
        self._figures: dict[Optional[int], list[Figure]] = {}

    def add(self, block: bytes) -> None:
        """Takes in the figures of whole lines."""
        found = [match for pattern in _MEMORY for match in pattern.finditer(block)]
        for match in sorted(found, key=lambda each: each.start()):
            start = max(block.rfind(b"\n", 0, match.start()) + 1, match.start() - _REACH)
            before = block[start : match.start()]
            if _BEGINNING.search(before) is None or _OTHER.search(before) is not None:
                continue
            end = block.find(b"\n", match.end(), match.end() + _REACH)
            line = block[start : end if end >= 0 else match.end() + _REACH]
            beginning = block.rfind(b"\n", 0, match.start()) + 1
            if is_own(without_prefix(block[beginning : beginning + _REACH].decode("utf-8", "replace"))[0]):
                continue
            step = _STEP.search(line)
            if step is not None:
                size = int(float(match.group(1)) * (1 << _POWERS[match.group(2)]))
                _, rank = without_prefix(line.decode("utf-8", "replace"))
                self._add(rank, Figure(int(step.group(1)), size))

    def _add(self, rank: Optional[int], figure: Figure) -> None:
        figures = self._figures.setdefault(rank, [])
        if figures and figure.step <= figures[-1].step:
            if figure.step == figures[-1].step:
                return
            figures.clear()  # another run, or another epoch that counts anew
        figures.append(figure)
        if len(figures) > _MOST:
            del figures[1::2]

    def course(self, rank: Optional[int]) -> Series:
        """What the figures of a rank do; "unknown" where there are too few."""
        return find_course(self._figures.get(rank, []))
