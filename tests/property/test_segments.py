"""Segments as they are told and shown: nothing is lost, nothing is made up, and what makes no sense is refused."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.segments.cells import Part, divided, parts_of
from memtui.analysis.segments.space import Limits, Piece, Segment
from memtui.analysis.segments.summary import Space
from memtui.session.fragments import FRAGMENTS_KEPT, Fragments
from memtui.wire.frames import BlockSummary, Segments

PARTS = st.lists(
    st.builds(Part, st.integers(1, 1 << 40), st.sampled_from(("parameters", "inactive_split", "x")), st.booleans()),
    min_size=1,
    max_size=40,
)


@given(PARTS, st.integers(1, 200))
def test_a_cell_is_what_most_of_it_is(parts: list[Part], count: int) -> None:
    total = sum(part.size_bytes for part in parts)
    cells = divided(parts, count)
    assert len(cells) == count
    for place, cell in enumerate(cells):
        held: dict[str, int] = {}
        pins: set[str] = set()
        start = 0
        for part in parts:
            end = start + part.size_bytes
            # Everything times `count`: a cell is `total` long.
            overlap = min(end * count, (place + 1) * total) - max(start * count, place * total)
            if overlap > 0:
                held[part.key] = held.get(part.key, 0) + overlap
                pins |= {part.key} if part.pins else set()
            start = end
        assert cell is not None
        assert held[cell.key] == max(held.values())
        assert sum(held.values()) == total
        assert bool(cell.pin) == bool(pins)
        assert not cell.pin or cell.pin in pins


@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(0, 99), st.booleans()), min_size=1, max_size=20), st.booleans()
)
def test_the_parts_of_a_segment_are_all_of_it(told: list[tuple[int, int, bool]], private: bool) -> None:
    pieces, address = [], 0
    for size, stuck, live in told:
        if live:
            pieces.append(Piece(address, size, "live", "parameters", pinning=1))
        else:
            pieces.append(Piece(address, size, "free", stuck_bytes=0 if private else min(size, stuck)))
        address += size
    segment = Segment(0, address, 0, small=False, expandable=True, private=private, pieces=tuple(pieces))
    parts = list(parts_of(segment))
    assert sum(part.size_bytes for part in parts) == address
    assert sum(part.size_bytes for part in parts if part.key == "inactive_split") == segment.stuck_bytes
    assert all(part.size_bytes > 0 for part in parts)


ROWS = st.lists(st.lists(st.integers(-3, 40), min_size=0, max_size=8).map(tuple), max_size=6).map(tuple)


@given(ROWS, ROWS, st.dictionaries(st.sampled_from(("roundup_power2_divisions", "max_split_size")), st.integers(-1, 9)))
def test_an_answer_that_makes_no_sense_is_refused(rows: Any, pieces: Any, settings: dict[str, Any]) -> None:
    """Whatever a log or an agent says, it is a ValueError or a space whose bytes add up."""
    told = Segments(0, 0, "forward", "cuda:0", 0, 0, rows, pieces, ("parameters",), (), settings)
    try:
        space = Space(told, Limits(1 << 30))
    except ValueError:
        return
    assert space.reserved_bytes == sum(512 * row[1] for row in rows)
    assert space.ask(512).how != "unknown"
    assert 0 <= space.pinned_bytes <= space.reserved_bytes


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60), st.integers(1, 60))
def test_the_worst_step_is_never_lost(pinned: list[int], times: int) -> None:
    """However many steps there are, some hundreds are kept, in their order, and with them the most that was pinned."""
    fragments, values = Fragments(), pinned * times
    for step, value in enumerate(values):
        fragments.add(step, BlockSummary(0, 1, 1, 5, 0, value, 0, 0, 1), step * 1_000_000_000)
    found = fragments.found
    assert 1 <= len(found) <= FRAGMENTS_KEPT
    assert [each.step for each in found] == sorted({each.step for each in found})
    assert max(each.pinned_bytes for each in found) == max(values)
    assert all(values[each.step] == each.pinned_bytes for each in found)
