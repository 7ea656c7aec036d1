"""On small screens whole parts are left out: nothing ends in the middle of a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.tui.app import MemtuiApp
from memtui.tui.rows import cells, shorten, words
from memtui.tui.widgets.lines import Lines
from memtui.wire.frames import Event
from tests.support.made_up import BEGUN_NS, GIB, MadeUpFeed, MadeUpProgram
from tests.support.recorded import gpt
from tests.support.screens import drive, settle, text

SIZES = [(40, 10), (46, 11), (60, 15), (60, 24), (72, 20), (80, 24), (100, 30)]


def busy() -> MadeUpFeed:
    feed = MadeUpFeed()
    figures = {"asked_bytes": 2 * GIB, "device_free_bytes": GIB, "allocated_bytes": 70 * GIB}
    feed.session.apply(Event("oom", feed.clock_ns - 1, 6, "backward", "cuda:0", figures), 0)
    feed.session.apply(gpt(time_ns=BEGUN_NS), feed.clock_ns)
    return feed


def ended() -> MadeUpFeed:
    feed = busy()
    feed.end("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", 1)
    return feed


def started() -> MadeUpFeed:
    feed = MadeUpFeed()
    feed.program = MadeUpProgram()
    return feed


def written(lines: list[str], ellipsis: str) -> set[str]:
    """The words of lines, without figures, what is drawn, and names that are cut in their middle."""
    found = (word.removesuffix(ellipsis).strip(":;,") for line in lines for word in line.split())
    return {word for word in found if word.replace("-", "").isalpha() and ellipsis not in word}


@pytest.mark.parametrize("make", [busy, ended, started])
@pytest.mark.parametrize("keys", [(), ("2",), ("4",), ("5",), ("p",), ("left",), ("down",), ("m",), ("q",)])
def test_no_word_is_cut(make: Callable[[], MadeUpFeed], keys: tuple[str, ...]) -> None:
    """GIVEN all words of a very large screen THEN a small one has no others, but for what it says in fewer."""
    seen: dict[tuple[int, int], list[str]] = {}
    everything = (400, 120)

    for size in (everything, *SIZES):

        async def test(app: MemtuiApp, pilot: Pilot[Any], size: tuple[int, int] = size) -> None:
            await pilot.press(*keys)
            if app.screen is app.monitor:
                await settle(app, pilot)
            parts = ("header", "keys", "evidence", "event_strip", "event_list", "tensor_list", "step")
            shown = [part for name in parts if (part := getattr(app.monitor, name)).display and part.size.height]
            if app.screen is not app.monitor:
                shown = list(app.screen.query(Lines))
            seen[size] = [line for part in shown for line in part.lines()]

        if keys == ("q",) and make is not started:
            return
        drive(make(), test, size=size)
    known = written(seen[everything], "…")
    known |= {"up", "down", "more", "to", "of"}  # where something is longer than the screen
    if make is ended:  # what is said for a moment, of the error, stands in the place of how the program has ended
        known |= written(["exited with status 1: OutOfMemoryError: CUDA out of memory. Tried to allocate"], "…")
    for size in SIZES:
        strange = written(seen[size], "…") - known
        assert not strange, (size, seen[size])


@pytest.mark.parametrize("size", [(40, 10), (46, 11), (60, 15)])
@pytest.mark.parametrize("tab", ["1", "2", "4", "5"])
def test_the_way_out_and_to_the_help_is_told_at_every_size(size: tuple[int, int], tab: str) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press(tab)
        last = text(app)[-1]
        assert last.endswith("? help  q quit")
        assert last.split()[:2] in (["1", "2"], ["1", "memory"])
        # A tab can be pointed at where it is written.
        await pilot.click("#keys", offset=(last.index("5"), 0))
        assert app.monitor.tab == "tensors"

    drive(MadeUpFeed(), test, size=size)


def test_whole_parts_go_first_then_whole_words() -> None:
    verdict = "fits, 52 % to spare: predicted peak 38.7 GiB of 80.0"
    assert shorten(verdict, 60) == verdict
    assert shorten(verdict, 34) == "fits, 52 % to spare"
    assert shorten("peak allocated ≥ 35.8 GiB in backward, step 2", 34) == "peak allocated ≥ 35.8 GiB"
    assert shorten("a 1.0 GiB | b", 10) == "a 1.0 GiB"
    assert shorten("12:00:01 · allocated 995.8 MiB to 5.5 GiB", 38) == "12:00:01 · allocated 995.8 MiB to…"
    assert shorten("model.py:38 softmax ← model.py:102 forward", 30) == "model.py:38 softmax"
    assert shorten("64 °C · also here: python 977 512.0 MiB", 30) == "64 °C · also here: python…"
    assert words("train.py --model gpt-1.6b", 21) == "train.py --model…"
    assert words("a_script_with_a_long_name.py", 10) == "a_script_…"


@pytest.mark.parametrize("width", range(1, 60))
def test_what_is_shortened_fits(width: int) -> None:
    for sentence in (
        "fits, 5 %: peak 38.7 GiB · that is all",
        "一二三 四五六 七八",
        "nothing-to-break-at-all-in-this-one",
        "",
    ):
        assert len(cells(shorten(sentence, width))) <= width
        assert len(cells(words(sentence, width))) <= width
