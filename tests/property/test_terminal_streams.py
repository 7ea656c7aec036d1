"""Whatever a program writes, the terminal neither breaks nor lets a control character through."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from memtui.tui.terminal.backlog import Backlog
from memtui.tui.terminal.cells import Runs
from memtui.tui.terminal.emulator import Emulator

numbers = st.lists(
    st.sampled_from(["", "0", "1", "2", "3", "5", "6", "7", "9", "25", "38", "48", "200", "1049", "99999999999"]),
    max_size=6,
)
sequences = st.one_of(
    st.builds(
        lambda start, marker, values, separator, intermediate, final: (
            start + marker + separator.join(values) + intermediate + final
        ),
        st.sampled_from(["\x1b[", "\x9b"]),
        st.sampled_from(["", "?", ">", "="]),
        numbers,
        st.sampled_from([";", ":"]),
        st.sampled_from(["", " ", "!", "$"]),
        st.characters(min_codepoint=0x40, max_codepoint=0x7E),
    ),
    st.builds(lambda final: "\x1b" + final, st.characters(max_codepoint=0x9F)),
    st.builds(
        lambda start, text, end: start + text + end,
        st.sampled_from(["\x1b]", "\x1bP", "\x1b_"]),
        st.text(max_size=9),
        st.sampled_from(["\x07", "\x1b\\", ""]),
    ),
    st.builds(lambda charset: "\x1b(" + charset, st.sampled_from("0BU")),
)
pieces = st.one_of(
    sequences,
    st.text(max_size=12),
    st.text(alphabet="ab日é\u0301\u200d\ufe0f\U0001f600\u202e\t\r\n\b", max_size=30),
)
outputs = st.one_of(
    st.lists(pieces, max_size=40).map(lambda parts: "".join(parts).encode("utf-8", "replace")), st.binary(max_size=300)
)


#: Every control sequence without its parameters.
_BARE = "".join(f"a\x1b[{chr(final)}" for final in range(0x40, 0x7F)).encode()


def screen_of(emulator: Emulator) -> list[Runs]:
    screen = emulator.screen
    return [*screen.history, *(screen.runs(y) for y in range(screen.lines))]


@settings(max_examples=400)
@given(outputs, st.integers(1, 12), st.integers(1, 6))
@example(_BARE, 4, 2)
def test_cells_are_all_that_comes_out(output: bytes, columns: int, lines: int) -> None:
    replies: list[bytes] = []
    emulator = Emulator(columns, lines, replies.append)
    emulator.feed(output)
    for runs in screen_of(emulator):
        text = "".join(part for part, _ in runs)
        assert cell_len(text) <= columns
        assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in text)
    screen = emulator.screen
    assert 0 <= screen.cursor.x <= columns
    assert 0 <= screen.cursor.y < lines
    assert screen.dirty <= set(range(lines))
    # Nothing the program wrote comes back to it: an answer is made of numbers.
    assert all(reply.isascii() and reply.startswith(b"\x1b[") for reply in replies)


@given(outputs, st.lists(st.integers(1, 7), min_size=1, max_size=30))
def test_where_the_output_is_cut_does_not_matter(output: bytes, sizes: list[int]) -> None:
    whole, cut = Emulator(10, 4, bytes), Emulator(10, 4, bytes)
    whole.feed(output)
    position = turn = 0
    while position < len(output):
        size = sizes[turn % len(sizes)]
        cut.feed(output[position : position + size])
        position, turn = position + size, turn + 1
    assert screen_of(cut) == screen_of(whole)
    assert (cut.screen.cursor.x, cut.screen.cursor.y) == (whole.screen.cursor.x, whole.screen.cursor.y)


@given(outputs, st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), max_size=4), outputs)
def test_sizes_change_at_any_time(before: bytes, sizes: list[tuple[int, int]], after: bytes) -> None:
    emulator = Emulator(8, 4, bytes)
    emulator.feed(before)
    for columns, lines in sizes:
        emulator.screen.resize(lines, columns)
    emulator.feed(after)
    screen = emulator.screen
    assert 0 <= screen.cursor.x <= screen.columns
    assert 0 <= screen.cursor.y < screen.lines
    for y in range(screen.lines):
        assert cell_len("".join(text for text, _ in screen.runs(y))) <= screen.columns


@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=20), st.integers(0, 200), st.integers(1, 60))
@example([(b"\x00\n", True), (b"\x00", False)], 2, 1)  # what is dropped ends where a piece ends
def test_the_backlog_keeps_the_end(pieces: list[tuple[bytes, bool]], limit: int, step: int) -> None:
    backlog = Backlog()
    for data, replayed in pieces:
        backlog.append(data, replayed)
    stream = b"".join(data for data, _ in pieces)
    dropped = backlog.trim(limit)
    assert backlog.size == len(stream) - len(dropped) <= max(limit, 0)
    kept = b""
    while True:
        data, _ = backlog.take(step)
        if not data:
            break
        assert len(data) <= step
        kept += data
    assert dropped + kept == stream
