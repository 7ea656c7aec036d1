"""The division of the screen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis import glossary
from memtui.tui import roles
from memtui.tui.plan import plan
from memtui.tui.widgets.header import Header


@given(st.integers(40, 250), st.integers(10, 120), st.integers(0, 8), st.integers(0, 12))
def test_the_parts_fit_and_the_chart_and_the_bar_are_always_there(
    width: int, height: int, legend: int, evidence: int
) -> None:
    made = plan(width, height, legend, evidence)
    used = made.chart + made.bar + made.evidence + made.events + 2 * made.gap + Header.HEIGHT + 1
    assert used <= height
    assert made.chart >= 5
    assert made.bar >= 1
    assert width - made.figures_width >= 32


def test_80x24_drops_the_least_first() -> None:
    made = plan(80, 24, 4, 6)
    assert (made.chart, made.bar, made.gap) == (9, 5, 0)
    assert made.events == 2
    assert made.evidence == 4
    assert not made.phase_strip


def test_a_large_screen_shows_everything_and_is_empty_at_the_bottom() -> None:
    made = plan(200, 50, 2, 6)
    assert (made.bar, made.evidence, made.gap, made.phase_strip) == (3, 6, 1, True)
    assert made.chart > 24


def test_every_tenant_and_every_listed_term_is_in_the_glossary() -> None:
    listed = [key for _, keys in glossary.ORDER for key in keys]
    assert [key for key in listed if key not in glossary.TERMS] == []
    inside = set(roles.TENANTS) - {"other_tenant"}
    assert [key for key in inside if glossary.explain(key) is None] == []
    assert glossary.explain("reserved_bytes") == glossary.explain("reserved")
    assert all(len(text) <= 100 and "\n" not in text for _, text in glossary.TERMS.values())
