"""A report as plain text, 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from memtui.analysis import units

from .facts import DeviceReport, Report, Row, Section, figure_text, how_text

WIDTH = 80
_INDENT, _GAP, _CELL = 2, 2, 9
LEGEND = "Figures are measured where they are not marked derived or predicted; ≥ is a lower bound, – not known."
#: The narrowest and the widest column of labels.
_LABEL = (15, 28)


def lines(report: Report) -> Iterator[str]:
    """The page, line by line; none is wider than 80 unless one word is."""
    yield from _wrapped(" · ".join(header(report)), "")
    for line in report.ranks[:1]:
        yield from _wrapped(line, "")
    if report.exception:
        yield from _wrapped(f"ended by {report.exception}", "")
    for line in report.ranks[1:]:
        yield from _wrapped(line, "")
    yield from _wrapped(LEGEND, "")
    yield ""
    yield from section_lines(report.model)
    for device in report.devices:
        yield ""
        yield from _device(device)
    if report.notices:
        yield ""
        yield "Of these figures"
        for notice in report.notices:
            yield from _wrapped(notice, " " * _INDENT)


def header(report: Report) -> Iterator[str]:
    """The program, how it ended, and how much of it was seen; each a few words."""
    yield report.program or f"process {report.pid}"
    if report.steps is not None:
        watched = "" if report.watched_ns is None else f" in {units.duration(report.watched_ns)}"
        late = " watched" if report.late else ""
        yield f"{report.steps:,} step{'' if report.steps == 1 else 's'}{late}{watched}"
    yield report.ended
    if report.torch:
        yield f"torch {report.torch}"


def device_title(device: DeviceReport) -> str:
    """ "cuda:0 · NVIDIA RTX A6000 · 24.0 GiB"."""
    total = "" if device.total_bytes is None else units.size(device.total_bytes)
    return " · ".join(part for part in (device.device, device.name, total) if part)


def _device(device: DeviceReport) -> Iterator[str]:
    yield f"{device_title(device)} ".ljust(WIDTH, "─")
    for line in device.short:
        yield from _wrapped(line, " " * _INDENT)
    for section in device.sections:
        yield ""
        yield from section_lines(section)


def section_lines(section: Section) -> Iterator[str]:
    """A heading with those of the columns, then the rows."""
    labels = max((len(row.label) for row in section.rows), default=0)
    place = _INDENT + min(max(labels, _LABEL[0]), _LABEL[1])
    widths = _widths(section)
    headings = "".join(f"{heading:>{width}}" for (_, heading), width in zip(section.columns, widths))
    beside = len(section.title) < place
    if not beside:
        yield from _wrapped(section.title, "")
    if beside or headings.strip():
        yield f"{section.title if beside else '':<{place}}{headings}".rstrip()
    for row in section.rows:
        yield from _row(row, section, place, widths)


def _widths(section: Section) -> list[int]:
    """Of the columns of figures, each with the gap before it."""
    return [
        _GAP + max(_CELL, len(heading), *(len(figure_text(row.figure(key))) for row in section.rows))
        for key, heading in section.columns
    ]


def _row(row: Row, section: Section, place: int, widths: list[int]) -> Iterator[str]:
    cells = "".join(f"{figure_text(row.figure(key)):>{width}}" for (key, _), width in zip(section.columns, widths))
    text = " · ".join(part for part in (how_text(row, section), row.text) if part)
    first = f"{'':{_INDENT}}{row.label}"
    if len(first) > place:
        yield from _wrapped(row.label, " " * _INDENT)
        first = ""
    first = f"{first:<{place}}{cells}  " if cells.strip() else f"{first:<{place}} "
    if not text:
        yield first.rstrip()
        return
    rest = " " * len(first)
    wrapped = textwrap.wrap(text, WIDTH - len(first), break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(wrapped):
        yield (rest if number else first) + line


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
