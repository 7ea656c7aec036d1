"""Memory divided into cells: nothing is lost, nothing is made up, and a cell is of what most of it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.segments.cells import Part, divided, parts_of
from memtui.analysis.segments.space import Piece, Segment

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
