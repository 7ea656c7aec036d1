"""Rows of cells: measuring, cutting, comparing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtui.tui.rows import WIDE, Line, Row, cells, changes, clip, fit, overlay, runs

ROW = st.lists(st.tuples(st.sampled_from("ab ⣿━"), st.sampled_from(" xyz")), min_size=1, max_size=60)


def row(pairs: list[tuple[str, str]]) -> Row:
    return Row("".join(text for text, _ in pairs), "".join(role for _, role in pairs))


def test_wide_characters_take_two_places_and_odd_ones_none() -> None:
    assert cells("a中b") == "a中" + WIDE + "b"
    assert cells("e\u0301") == "e"
    assert cells("a\tb\x1b[1m") == "a b [1m"


def test_half_a_wide_character_becomes_a_space() -> None:
    line = Line().add("ab中", "x")
    assert line.row(3).text == "ab "
    assert line.row(4).text == "ab中" + WIDE


def test_clip_keeps_to_its_width_in_cells() -> None:
    assert clip("short", 5) == "short"
    assert clip("longer text", 7) == "longer…"
    assert clip("中中中", 4) == "中…"
    assert clip("anything", 0) == ""


def test_overlay_is_cut_at_the_end() -> None:
    assert overlay(Row("......", "xxxxxx"), 4, "abc", "y") == Row("....ab", "xxxxyy")


def test_runs_join_cells_of_one_role() -> None:
    assert runs(Row("abcd", "xxyx"), 0, 4) == [("ab", "x"), ("c", "y"), ("d", "x")]


@given(ROW, st.data())
def test_changes_are_exactly_what_must_be_written(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    after = data.draw(st.lists(st.sampled_from(pairs), min_size=len(pairs), max_size=len(pairs)))
    old, new = row(pairs), row(after)
    text, role = list(old.text), list(old.roles)
    last = -1
    for y, start, end in changes(3, old, new):
        assert y == 3
        assert last < start < end
        last = end
        text[start:end], role[start:end] = new.text[start:end], new.roles[start:end]
    assert Row("".join(text), "".join(role)) == new
    assert bool(changes(0, old, new)) == (old != new)


def test_a_change_never_splits_a_wide_character() -> None:
    old, new = fit(Row(cells("a中c"), "xxxx"), 4), fit(Row(cells("a国c"), "xxxx"), 4)
    assert [(start, end) for _, start, end in changes(0, old, new)] == [(1, 3)]
