"""A report as Markdown: a heading a device, a table a section."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memtui.analysis.view import Figure

from .facts import DeviceReport, Report, Section, figure_text
from .plain import device_title, header

#: Characters that would make a table or a mark of the program's own words.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def lines(report: Report) -> Iterator[str]:
    """The page, line by line."""
    yield f"# Memory of {_escaped(report.program) or f'process {report.pid}'}"
    yield ""
    yield _escaped(" · ".join(list(header(report))[1:]))
    yield ""
    if report.ranks:
        yield from (f"- {_escaped(line)}" for line in report.ranks)
        yield ""
    if report.exception:
        yield f"Ended by {_escaped(report.exception)}"
        yield ""
    yield from _section(report.model, "##")
    for device in report.devices:
        yield ""
        yield from _device(device)
    if report.notices:
        yield ""
        yield "## Of these figures"
        yield ""
        yield from (f"- {_escaped(notice)}" for notice in report.notices)


def _device(device: DeviceReport) -> Iterator[str]:
    yield f"## {_escaped(device_title(device))}"
    yield ""
    yield from (f"- {_escaped(line)}" for line in device.short)
    for section in device.sections:
        yield ""
        yield from _section(section, "###")


def _section(section: Section, mark: str) -> Iterator[str]:
    yield f"{mark} {_escaped(section.title)}"
    yield ""
    columns = [heading for _, heading in section.columns]
    yield f"| | {' | '.join([*columns, 'how', ''])} |"
    yield f"|---|{'---:|' * len(columns)}---|---|"
    for row in section.rows:
        figures = [row.figure(key) for key, _ in section.columns]
        cells = [row.label.strip(), *map(figure_text, figures), _how(figures), row.text]
        yield f"| {' | '.join(map(_escaped, cells))} |"


def _how(figures: list[Figure | None]) -> str:
    kinds = [figure.kind for figure in figures if figure is not None]
    return ", ".join(dict.fromkeys(kind.replace("_", " ") for kind in kinds))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
