"""The cells of the category bar: they add up, and whoever deserves one has one."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.view import Band, Figure
from memtui.analysis.view import Bar as BarView
from memtui.tui.glyphs import UNICODE
from memtui.tui.look import make
from memtui.tui.palette import DARK
from memtui.tui.rows import Row
from memtui.tui.widgets.bar import DESERVES, Bar, shares

VALUES = st.lists(st.integers(-(2**34), 2**37), min_size=1, max_size=20)
LOOK = make(DARK, UNICODE)


@given(VALUES, st.integers(1, 300))
def test_cells_add_up_to_the_width(values: list[int], width: int) -> None:
    cells = shares(values, width)
    assert len(cells) == len(values)
    assert min(cells) >= 0
    assert sum(cells) == (width if any(value > 0 for value in values) else 0)


@given(VALUES, st.integers(40, 300))
def test_who_deserves_a_cell_has_one_and_nobody_much_more(values: list[int], width: int) -> None:
    total = sum(value for value in values if value > 0)
    tenants = len(values)
    for value, cells in zip(values, shares(values, width)):
        exact = value * width / total if total and value > 0 else 0
        assert cells >= 1 or exact < DESERVES
        assert cells == 0 or value > 0
        # Each tenant below a cell that is given one costs the big ones at most one.
        assert abs(cells - exact) <= max(1, tenants)


@given(st.lists(st.integers(0, 2**36), min_size=2, max_size=9), st.integers(60, 200))
def test_the_whole_bar_is_drawn_and_the_exact_bytes_stand_below(values: list[int], width: int) -> None:
    """GIVEN bands that add up WHEN they are drawn THEN the cells fill the bar and every tenant's bytes are said."""
    keys = ("parameters", "gradients", "optimizer_state", "activations", "temporaries", "inputs", "non_torch", "x", "y")
    bands = tuple(
        Band(key, "PGOatiNxy"[place], key, Figure(value)) for place, (key, value) in enumerate(zip(keys, values))
    )
    rows = asyncio.run(drawn(BarView("device", Figure(sum(values)), bands), width))
    line = rows[0].text
    inside = line[line.index("▐") + 1 : line.rindex("▌")]
    if sum(values):
        assert len(inside) == len(inside.strip())
        assert line.rindex("▌") == width - 2
    for band in bands:
        if band.figure.value:
            assert any(f"{band.letter} " in row.text for row in rows[1:])


async def drawn(bar: BarView, width: int) -> list[Row]:
    """The bar's rows; in a loop, without which Python 3.9 makes no widget."""
    widget = Bar(LOOK)
    widget.bar = bar
    return widget.draw(width, 1 + widget.legend_height(width))
