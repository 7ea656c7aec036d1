"""Answers beside each other: several GPUs, several settings, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from memtui.analysis import units
from memtui.analysis.text import clean

from .answer import Answer, as_json, verdict
from .answer_text import within

#: What a narrow terminal does without, the first first.
_DROPPED = ("reserved", "allocated", "confidence", "device")
_LEFT = ("fits", "confidence")
_GAP = "  "


class Compared(NamedTuple):
    """One row: the settings by name, and the answer."""

    settings: Mapping[str, str]
    answer: Answer

    def as_json(self) -> dict[str, object]:
        """The answer as plain values, with the settings in front where there are any."""
        named: dict[str, object] = {"settings": dict(self.settings)} if self.settings else {}
        return {**named, **as_json(self.answer)}


def comparison_lines(rows: Sequence[Compared], program: str, width: int = 80) -> list[str]:
    """A table with a row for each; below it why something is not known, and which settings change nothing."""
    columns = _columns(rows)
    for name in _DROPPED:
        if _width(columns) <= width:
            break
        del columns[name]
    lines = within(f"plan of {clean(program, 200)}", width)
    lines += [_line(columns, place) for place in range(len(rows) + 1)]
    for name in _without_effect(rows):
        lines += within(f"{clean(name, 60)} changes nothing: does the program read it?", width)
    for row in rows:
        if row.answer.fits is None:
            of = " ".join(f"{name}={value}" for name, value in row.settings.items()) or row.answer.gpu
            lines += within(f"{clean(of, 100)}: {clean(verdict(row.answer))}", width)
    return lines


def _columns(rows: Sequence[Compared]) -> dict[str, list[str]]:
    """Each column's head and cells, from left to right, by name."""
    answers = [row.answer for row in rows]
    columns: dict[str, list[str]] = {}
    if len({answer.gpu for answer in answers}) > 1 or not rows[0].settings:
        columns["GPU"] = ["GPU", *(answer.gpu for answer in answers)]
    for name in rows[0].settings:
        columns[f"={name}"] = [clean(name, 30), *(clean(row.settings[name], 30) for row in rows)]
    columns["fits"] = ["fits", *({True: "yes", False: "no", None: units.UNKNOWN}[answer.fits] for answer in answers)]
    for name in ("allocated", "reserved", "device"):
        figures = [None if a.device is None else getattr(a.device, f"peak_{name}_bytes") for a in answers]
        columns[name] = [name, *map(units.size, figures)]
    columns["to spare"] = ["to spare", *(_spare(answer) for answer in answers)]
    columns["confidence"] = ["", *(answer.confidence if answer.fits is not None else "" for answer in answers)]
    return columns


def _spare(answer: Answer) -> str:
    spare = answer.spare_bytes
    if spare is None or answer.fits is None:
        return units.UNKNOWN
    return units.size(spare) if spare >= 0 else f"-{units.size(-spare)}"


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, cells)) for cells in columns.values()) + len(_GAP) * (len(columns) - 1)


def _line(columns: Mapping[str, Sequence[str]], place: int) -> str:
    parts = []
    for name, cells in columns.items():
        size = max(map(len, cells))
        to_the_left = name == "GPU" or name.startswith("=") or name in _LEFT
        parts.append(cells[place].ljust(size) if to_the_left else cells[place].rjust(size))
    return _GAP.join(parts).rstrip()


def _without_effect(rows: Sequence[Compared]) -> list[str]:
    """Settings whose values take the same memory whatever the others are."""
    found = []
    for name in rows[0].settings:
        groups: dict[object, set[object]] = {}
        for row in rows:
            others = tuple(item for item in row.settings.items() if item[0] != name)
            device = row.answer.device
            taken = None if device is None else (device.peak_allocated_bytes, device.peak_device_bytes)
            groups.setdefault((row.answer.gpu, others), set()).add((taken, row.answer.fits))
        several = len({row.settings[name] for row in rows}) > 1
        known = all(row.answer.fits is not None for row in rows)
        if several and known and all(len(each) == 1 for each in groups.values()):
            found.append(name)
    return found
