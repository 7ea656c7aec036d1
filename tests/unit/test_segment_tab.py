"""The segments tab under the fingers: asking the agent, asking what would fit, going through the segments."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.tui import segments
from memtui.tui.app import MemtuiApp
from tests.support.made_up import SECOND, MadeUpFeed, MadeUpRecording, Training
from tests.support.screens import drive, settle, text


def body(app: MemtuiApp) -> list[str]:
    return text(app)[3:-1]


def shown(app: MemtuiApp, words: str) -> bool:
    return any(words in line for line in body(app))


async def typed(app: MemtuiApp, pilot: Pilot[Any], key: str, words: str) -> None:
    await pilot.press(key, *words, "enter")
    await settle(app, pilot)


def test_it_asks_while_it_is_shown_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        feed = app.feed
        assert isinstance(feed, MadeUpFeed)
        await pilot.press("6")
        await settle(app, pilot)
        assert feed.requests == ["segments"]
        await pilot.press("r")
        await settle(app, pilot)
        assert feed.requests == ["segments", "segments"]
        monkeypatch.setattr(segments, "EVERY_S", 0.0)
        await settle(app, pilot)
        await pilot.press("p")
        count = len(feed.requests)
        assert count > 2
        await pilot.pause(0.4)
        assert len(feed.requests) == count  # the picture is held
        await pilot.press("p", "1")
        count = len(feed.requests)
        await settle(app, pilot)
        assert len(feed.requests) == count

    drive(MadeUpFeed(), test)


def test_what_would_fit_is_answered_and_stays_answered() -> None:
    """GIVEN an A100 with 27.7 GiB left and 13.5 in the cache, THEN each answer says where from, and of the present."""

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6")
        for words, answer in (
            ("96KiB", "96.0 KiB: fits, with 2.0 MiB more from the driver"),
            ("300MiB", "300.0 MiB: fits, in a free block of 512.0 MiB"),
            ("1.5GiB", "1.5 GiB: fits, with 1.5 GiB more from the driver"),
            ("35g", "35.0 GiB: fits, but only once the cache has gone back"),
            ("70GiB", "70.0 GiB: does not fit, "),
            ("much", "not a size: 'much'; write it as 24GiB or 512MiB"),
            ("1e400", "not a size: '1e400'; write it as 24GiB or 512MiB"),
            ("0", "0 bytes always fit"),
        ):
            await typed(app, pilot, "f", words)
            assert shown(app, answer), answer
        await typed(app, pilot, "f", "35g")
        app.feed.advance(3)  # type: ignore[attr-defined]
        await pilot.press("r")
        await settle(app, pilot)
        assert shown(app, "35.0 GiB: fits, but")
        await pilot.press("escape")
        await settle(app, pilot)
        assert not shown(app, "35.0 GiB")

    drive(MadeUpFeed(), test)


def test_every_key_is_text_while_something_is_typed() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6", "f", "q", "5", "backspace", "backspace", "1")
        assert app.monitor.tab == "segments"
        assert shown(app, "would it fit? 1_")
        await pilot.press("escape")
        assert not shown(app, "would it fit?")
        await pilot.press("5")
        assert app.monitor.tab == "tensors"

    drive(MadeUpFeed(), test)


def test_another_batch_needs_recorded_steps() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6")
        await typed(app, pilot, "b", "x2")
        assert shown(app, "no step has been recorded: d records the next one")
        await typed(app, pilot, "b", "huge")
        assert shown(app, "'huge' is no size of a batch: write tokens (4096)")

    drive(MadeUpFeed(), test)


def test_the_what_if_page_leads_to_any_batch() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("w", "b")
        await pilot.pause()
        await pilot.press(*"x3")
        assert app.monitor.tab == "segments"
        assert shown(app, "another batch? x3_")

    drive(MadeUpFeed(), test)


def test_a_marked_segment_is_on_the_map_alone() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6", "down", "down")
        assert sum("▸" in line for line in body(app)) == 1
        assert shown(app, "(escape: all)")
        marked = app.monitor.segment_map.marked
        await pilot.press("s")  # in another order the same one is marked
        assert app.monitor.segment_map.marked == marked
        assert sum("▸" in line for line in body(app)) == 1
        await pilot.press("end")
        assert "▸" in [line for line in body(app) if " MiB  ▐" in line][-1]
        await pilot.press("escape")
        assert shown(app, "all, by address")

    drive(MadeUpFeed(), test)


def test_what_an_empty_tab_says() -> None:
    async def recorded(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6")
        assert "no segments in this recording" in body(app)[0]

    async def over(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        app.feed.end("", "", 0)  # type: ignore[attr-defined]
        await pilot.press("6")
        assert "the program has ended, and there is no map of its segments" in " ".join(body(app))

    async def held(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("p", "6")
        assert "paused, and no segments were read before: p goes on" in body(app)[0]

    drive(MadeUpRecording(), recorded)
    drive(MadeUpFeed(), over)
    drive(MadeUpFeed(), held)


def test_another_device_has_other_segments() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6", "f", *"1g", "enter", "down")
        assert shown(app, "1.0 GiB: fits")
        await pilot.press("right_square_bracket")
        await settle(app, pilot)
        assert not shown(app, "1.0 GiB: fits")
        assert app.monitor.segment_map.marked is None
        assert shown(app, "segments in backward")

    drive(MadeUpFeed(Training(devices=2)), test)


def test_the_last_map_stays_when_the_program_has_ended() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6")
        feed = app.feed
        assert isinstance(feed, MadeUpFeed)
        feed.clock_ns += 4 * SECOND
        feed.end("", "", 0)
        feed.clock_ns += 900 * SECOND
        await settle(app, pilot)
        assert "4 s before the end" in body(app)[0]

    drive(MadeUpFeed(), test)


@pytest.mark.parametrize("size", [(40, 10), (60, 12), (80, 24), (300, 80)])
def test_it_fits_every_screen(size: tuple[int, int]) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("6", "f", *"99g", "enter")
        await settle(app, pilot)
        lines = text(app)
        assert len(lines) == size[1]
        assert all(len(line) <= size[0] for line in lines)
        assert any("does not fit" in line for line in lines)

    drive(MadeUpFeed(), test, size=size)
