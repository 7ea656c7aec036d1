"""The columns of a table of ranks: figures never touch, whatever they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.analysis import units
from memtui.analysis.view import Figure
from memtui.prometheus.fleet import fleet_of
from memtui.tui.ranks.columns import BYTES, USED, cell_of, layout, unit_of
from tests.support.looks import look_of, simulated

_MIB = 1 << 20


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("used", [Figure(180 * _MIB), Figure(1_023 * _MIB, "lower_bound")])
def test_figures_of_a_small_process_on_a_large_device_do_not_touch(width: int, used: Figure) -> None:
    (course,) = fleet_of(look_of(simulated(8, 1, 1))).courses
    row = replace(
        course.view.rows[0],
        used=used,
        peak=Figure(177 * _MIB),
        predicted=Figure(385 * _MIB, "predicted"),
        headroom=Figure(-24_190 * _MIB, "predicted"),
        step_ns=66_000_000_000,
    )
    divided, unit = layout(width, [row]), unit_of([row])
    assert unit == "MiB"
    for column, cells in zip((USED, *BYTES), (divided.used, *divided.numbers)):
        text = cell_of(column, row, unit, cells)
        assert len(text) == cells
        assert text.startswith(" "), (column.key, text)
    assert divided.took > len(units.duration(row.step_ns))
