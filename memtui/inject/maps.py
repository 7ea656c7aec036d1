"""A process's mappings, from /proc/PID/maps."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

PAGE = 4096


@dataclass(frozen=True)
class Mapping:
    """One mapping: what of which file is where."""

    start: int
    end: int
    permissions: str
    offset: int
    path: str  # empty where it is of no file

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.rpartition("/")[2]


def read_maps(pid: int) -> list[Mapping]:
    """In the order of their addresses; raises OSError."""
    return parse_maps(pathlib.Path(f"/proc/{pid}/maps").read_text(errors="replace"))


def parse_maps(text: str) -> list[Mapping]:
    """The mappings of a file's text."""
    found = []
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 5:
            continue
        start, _, end = fields[0].partition("-")
        path = fields[5] if len(fields) > 5 and fields[5].startswith("/") else ""
        found.append(Mapping(int(start, 16), int(end, 16), fields[1], int(fields[2], 16), path))
    return found


def with_address(mappings: list[Mapping], address: int) -> Mapping | None:
    """The mapping that an address is in."""
    return next((each for each in mappings if each.start <= address < each.end), None)
