"""The tensors tab under the fingers: asking, sorting, filtering, scrolling."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.tui import tensors
from memtui.tui.app import MemtuiApp
from tests.support.made_up import BEGUN_NS, SECOND, MadeUpFeed, MadeUpRecording, Training
from tests.support.recorded import gpt
from tests.support.screens import drive, settle, text


def body(app: MemtuiApp) -> list[str]:
    return text(app)[3:-1]


def test_it_asks_while_it_is_shown_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        feed = app.feed
        assert isinstance(feed, MadeUpFeed)
        await settle(app, pilot)
        assert feed.requests == []
        await pilot.press("5")
        assert feed.requests == ["tensors"]
        await settle(app, pilot)
        assert feed.requests == ["tensors"]  # not before its time
        monkeypatch.setattr(tensors, "EVERY_S", 0.0)
        await settle(app, pilot)
        assert len(feed.requests) > 1
        await pilot.press("p")
        count = len(feed.requests)
        await pilot.pause(0.4)
        assert len(feed.requests) == count  # the picture is held
        await pilot.press("p", "1")
        count = len(feed.requests)
        await settle(app, pilot)
        assert len(feed.requests) == count

    drive(MadeUpFeed(), test)


def test_age_and_total_are_told() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        assert "0 s ago" in body(app)[0]
        app.feed.advance(3)  # type: ignore[attr-defined]
        await settle(app, pilot)
        assert "3 s ago" in body(app)[0]
        found = app.feed.session.tensors("cuda:0")
        assert found is not None
        total = next(line for line in body(app) if line.lstrip().startswith("allocated"))
        assert f"{found.allocated_bytes / 2**30:.1f} GiB" in total
        assert "100.0 %" in total

    drive(MadeUpFeed(), test)


def test_every_key_is_text_while_the_filter_is_written() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5", "slash", *"q1p?", "backspace", "backspace", "backspace", "backspace")
        await settle(app, pilot)
        assert app.screen is app.monitor
        assert app.monitor.tab == "tensors"
        await pilot.press(*"h.11.")
        await settle(app, pilot)
        assert "/ h.11._" in body(app)[1]
        await pilot.press("enter")
        await settle(app, pilot)
        rows = [line for line in body(app) if ".weight" in line]
        assert rows
        assert all("h.11." in line for line in rows)
        assert any("sum of these" in line for line in body(app))
        await pilot.press("escape")
        await settle(app, pilot)
        assert any("h.0." in line for line in body(app))
        assert not any("sum of these" in line for line in body(app))
        await pilot.press("2")
        await settle(app, pilot)
        assert app.monitor.tab == "events"

    drive(MadeUpFeed(), test, size=(160, 40))


def test_sorting_and_categories() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5", "s")
        await settle(app, pilot)
        assert "by name ↑" in body(app)[1]
        assert "batch" in body(app)[3]
        assert "transformer.h.0.attn" in body(app)[4]
        await pilot.press("r")
        await settle(app, pilot)
        assert "by name ↓" in body(app)[1]
        await pilot.press("S", "c")
        await settle(app, pilot)
        assert "P parameters" in body(app)[1]
        rows = [line for line in body(app) if "transformer" in line]
        assert rows
        assert all(line.startswith(" P ") for line in rows)
        await pilot.press("C")
        await settle(app, pilot)
        assert "all categories" in body(app)[1]

    drive(MadeUpFeed(), test)


def test_scrolling_stays_within_the_rows() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5", "end", "down", "down")
        await settle(app, pilot)
        assert "149" in body(app)[0].split(" of ")[0].split(" to ")[-1]
        last = body(app)[3]
        await pilot.press("up")
        await settle(app, pilot)
        assert body(app)[4] == last
        await pilot.press("pagedown", "home")
        await settle(app, pilot)
        assert " 1 to " in body(app)[0]

    drive(MadeUpFeed(), test, size=(80, 24))


def test_another_device_has_other_tensors() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5", "right_square_bracket")
        assert app.monitor.device == "cuda:1"
        assert any("transformer" in line for line in body(app))

    drive(MadeUpFeed(Training(devices=2)), test)


def test_what_an_empty_tab_says() -> None:
    class Mute(MadeUpFeed):
        agent = False

        def request(self, name: str) -> bool:
            self.requests.append(name)
            return self.agent

    async def silent(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        assert "no agent to ask" in body(app)[0]

    async def waiting(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        app.feed.advance(4)  # type: ignore[attr-defined]
        await settle(app, pilot)
        assert "asked for 4 s ago" in body(app)[0]

    async def recorded(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        assert "no tensors in this recording" in body(app)[0]

    async def over(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        assert "the program has ended" in body(app)[0]
        assert "listed only while this tab is looked at, and nobody did" in " ".join(" ".join(body(app)).split())
        app.feed.session.apply(gpt(time_ns=BEGUN_NS), 0)
        await settle(app, pilot)
        assert "4 shows those of a recorded step" in " ".join(" ".join(body(app)).split())

    async def unanswered(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        app.feed.end("RuntimeError", "no", 1)  # type: ignore[attr-defined]
        await settle(app, pilot)
        assert "ended before it answered" in body(app)[0]

    async def held(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("p", "5")
        assert "paused, and no tensors were listed before: p goes on" in body(app)[0]
        await pilot.press("p")
        assert "asked for 0 s ago" in body(app)[0]

    drive(Mute(), silent)
    answering = Mute()
    answering.agent = True
    drive(answering, waiting)
    drive(answering, held)
    drive(answering, unanswered)
    drive(MadeUpRecording(), recorded)
    ended = Mute()
    ended.end("RuntimeError", "no", 1)
    drive(ended, over)
    assert ended.requests == []


def test_the_last_list_stays_when_the_program_has_ended_and_while_the_picture_is_held() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        feed = app.feed
        assert isinstance(feed, MadeUpFeed)
        await pilot.press("5")
        listed = body(app)
        feed.advance(3)
        await pilot.press("1", "p")
        feed.session.apply(feed.training.tensors(feed.clock_ns), feed.clock_ns)
        await pilot.press("5")
        assert body(app)[1:8] == listed[1:8]  # as it was before the pause
        await pilot.press("p")
        feed.advance(4)
        feed.end("RuntimeError", "no", 1)
        feed.clock_ns += 900 * SECOND
        await settle(app, pilot)
        assert "step 7 · 4 s before the end" in body(app)[0]
        assert any("transformer" in line for line in body(app))

    drive(MadeUpFeed(), test)


@pytest.mark.parametrize("size", [(40, 10), (60, 12), (80, 24), (300, 80)])
def test_it_fits_every_screen(size: tuple[int, int]) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        lines = text(app)
        assert all(len(line) <= size[0] for line in lines)
        assert any(line.lstrip().startswith("allocated") for line in lines)
        await pilot.press("slash", "z", "z", "z", "z")
        assert any("nothing matches" in line for line in text(app))

    drive(MadeUpFeed(), test, size=size)
