"""How many lines each part of the screen gets."""

from __future__ import annotations

from dataclasses import dataclass

from .widgets.figures import NARROW, WIDE
from .widgets.header import Header

#: Smaller than this nothing can be read: the screen says so instead.
LEAST_WIDTH, LEAST_HEIGHT = 40, 10


@dataclass(frozen=True)
class Plan:
    """Lines of each part, from top to bottom; `gap` is the empty line above the bar and above the evidence."""

    chart: int
    figures_width: int
    bar: int
    evidence: int
    events: int
    gap: int
    phase_strip: bool


def plan(width: int, height: int, legend: int, evidence: int) -> Plan:
    """Divides a screen; `legend` and `evidence` are the lines they would like.

    The least important goes first: gaps, then evidence, events and the legend; never the chart and the bar.
    """
    body = max(0, height - Header.HEIGHT - 1)
    figures = WIDE if width >= 110 else NARROW if width >= 66 else 0
    if body < 10:
        bar = 1 if body >= 5 else 0
        return Plan(max(0, body - bar), figures, bar, 0, 0, 0, False)
    gap = 1 if body >= 26 else 0
    chart = max(6, body * 45 // 100)
    room = body - chart - 2 * gap
    bar = 1 + min(legend, max(1, room // 3) if body < 18 else 4 if body < 26 else legend)
    room = max(0, room - bar)
    events = min(room, 1 if body < 18 else 2 if body < 26 else 4 + (body - 26) // 6)
    shown = min(evidence, room - events)
    room -= events + shown
    # What is left makes the chart taller, up to a point; the rest stays empty below.
    chart += max(0, min(room, body * 62 // 100 - chart))
    return Plan(chart, figures, bar, shown, events, gap, chart >= 13)
