"""The overview under the fingers: choosing, sorting, opening a rank and coming back, marking, comparing."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from textual.pilot import Pilot

from memtui.tui.app import MemtuiApp, Outcome
from memtui.tui.screens.ranks import CompareScreen, RanksScreen
from memtui.tui.widgets.lines import Lines
from memtui.wire.frames import Event
from tests.support.made_up import MadeUpFeed
from tests.support.made_up_ranks import GIB, MadeUpRanks, RankTraining, ranks
from tests.support.screens import drive, text


async def overview(app: MemtuiApp, pilot: Pilot[Any]) -> RanksScreen:
    while app.overview is None or not app.overview.is_current:
        await pilot.pause(0.05)
    await pilot.pause(0.1)
    return app.overview


def chosen(screen: RanksScreen) -> Optional[int]:
    return None if screen.row is None else screen.row.rank


def test_enter_opens_a_rank_and_0_comes_back() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press("down", "down", "enter")
        await pilot.pause(0.1)
        assert app.screen is app.monitor
        lines = text(app)
        assert lines[0].strip().startswith("rank 2 · ") or "rank 2 · train.py" in lines[0]
        assert "pid 4244" in lines[0]
        assert "cuda:2" in lines[0]
        assert "0 ranks" in lines[-1]
        await pilot.press("0")
        await pilot.pause(0.1)
        assert app.screen is screen
        assert chosen(screen) == 2
        await pilot.press("down", "enter")
        await pilot.pause(0.1)
        assert "pid 4245" in text(app)[0]
        await pilot.press("escape")  # nothing is marked that it could take back
        await pilot.pause(0.1)
        assert app.screen is screen

    drive(ranks(8, 20), test)


def test_the_chosen_rank_stays_chosen_when_the_order_changes() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press("down")
        await pilot.press("s")
        assert screen.order == "headroom"
        assert chosen(screen) == 1
        assert screen.table.rows[0].rank == 5
        await pilot.press("home")
        assert chosen(screen) == 5
        await pilot.press("end")
        assert chosen(screen) == screen.table.rows[-1].rank

    drive(ranks(8, 20), test)


def test_two_marked_ranks_are_compared_by_category() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press("space", *("down",) * 5, "space", "c")
        await pilot.pause(0.1)
        assert isinstance(app.screen, CompareScreen)
        lines = text(app)
        assert "rank 0 against rank 5" in lines[0]
        activations = next(line for line in lines if " activations " in line)
        assert "+10.4 GiB" in activations
        parameters = next(line for line in lines if " parameters " in line)
        assert "0 B" in parameters
        await pilot.press("right")
        assert "rank 0 against rank 6" in text(app)[0]
        await pilot.press("q")
        assert app.screen is screen

    drive(ranks(8, 20), test)


def test_pages_through_more_ranks_than_there_are_lines() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        assert screen.table.cells_across(*screen.table.size) == 0  # too narrow for small multiples
        first = text(app)[-1]
        assert "1 to " in first
        assert " of 128" in first
        await pilot.press("pagedown")
        await pilot.pause(0.1)
        assert screen.table.first > 0
        assert "1 to " not in text(app)[-1]
        await pilot.press("end")
        assert chosen(screen) == 127

    drive(ranks(128, 4), test, size=(80, 24))


def test_small_multiples_have_every_rank_on_a_small_screen() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        words = " ".join(text(app)[3:20]).split()
        assert {str(rank) for rank in range(64)} <= set(words)
        await pilot.press("right")
        assert chosen(screen) == 16

    drive(ranks(64, 10), test, size=(80, 24))


@pytest.mark.parametrize("key", ["m", "w", "o"])
def test_pages_about_the_chosen_rank(key: str) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press(*("down",) * 3, key)
        await pilot.pause(0.1)
        assert app.screen is not screen
        assert app.feed.session is app.feed.members[3].session  # type: ignore[attr-defined]
        await pilot.press("escape")
        assert app.screen is screen

    drive(ranks(4, 20), test)


def test_o_shows_the_rank_that_ran_out_of_memory() -> None:
    """GIVEN ranks of which 2, and then 3, had no memory, THEN `o` on another one shows 2's page, on 3 its own."""
    feed = ranks(4, 20)
    for place, rank in enumerate((2, 3)):
        figures = {"asked_bytes": 2 * GIB, "device_free_bytes": GIB // 2}
        event = Event("oom", feed.clock_ns + place, 9, "forward", f"cuda:{rank}", figures)
        feed.sessions[rank].apply(event, feed.clock_ns)
    feed.advance(1)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press("o")
        await pilot.pause(0.1)
        assert "rank 2 · cuda:2" in text(app)[0]
        assert "Nothing has run out of memory" not in "".join(text(app))
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert app.screen is screen
        assert chosen(screen) == 0
        await pilot.press("end", "o")
        await pilot.pause(0.1)
        assert "rank 3 · cuda:3" in text(app)[0]

    drive(feed, test)


def test_a_rank_that_ends_stays_on_the_screen_with_its_figures() -> None:
    feed = ranks(4, 20)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        peak = screen.table.rows[2].peak
        feed.end_rank(2, "RuntimeError", "boom")
        feed.advance(3)
        screen.refresh_view()
        await pilot.pause()
        line = next(line for line in text(app) if line.lstrip("▸ ").startswith("2 "))
        assert line.endswith("ENDED")
        assert screen.table.rows[2].peak == peak
        assert any("rank 2 ended: RuntimeError: boom" in line for line in text(app))

    drive(feed, test)


def test_quitting_and_themes_work_from_the_overview() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        before = screen.look.colors.name
        await pilot.press("t")
        assert screen.look.colors.name != before
        await pilot.press("question_mark", "escape", "q")

    assert drive(ranks(2, 5), test) == Outcome("detach")


def test_one_process_has_no_overview() -> None:
    feed = MadeUpRanks([RankTraining(0, 1)], 5)
    feed.several = False

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.pause(0.6)
        assert app.screen is app.monitor
        await pilot.press("0")
        assert app.screen is app.monitor
        assert any("one process only" in line for line in text(app))

    drive(feed, test)


def test_a_feed_of_one_process_has_no_key_for_ranks() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("0")
        assert app.screen is app.monitor
        assert "ranks" not in text(app)[-1]

    drive(MadeUpFeed(), test)


def test_text_of_a_rank_reaches_the_terminal_escaped() -> None:
    feed = ranks(2, 5)
    session = feed.sessions[1]
    assert session.hello is not None
    object.__setattr__(session.hello, "hostname", "box\x1b[2J\x07")
    feed.end_rank(1, "Runtime\x1b[31mError", "bad\x1b]0;title\x07 thing")
    feed.advance(3)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await overview(app, pilot)
        await pilot.press("down")
        await pilot.pause(0.1)
        assert "\x1b" not in "".join(text(app))
        assert any("rank 1 ended: RuntimeError: bad thing" in line for line in text(app))

    drive(feed, test)


@pytest.mark.parametrize("size", [(20, 5), (39, 24), (80, 9)])
def test_a_terminal_that_is_too_small_is_asked_to_be_larger(size: tuple[int, int]) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press("down")
        await pilot.pause(0.6)
        assert [part for part in screen.query(Lines) if part.display and part.region.area] == [screen.small]
        assert screen.small.lines()[0].strip() == "enlarge the terminal"
        await pilot.resize_terminal(100, 30)
        await pilot.pause(0.1)
        assert not screen.small.display
        assert any("cuda:1" in line for line in screen.table.lines())
        assert chosen(screen) == 1

    drive(ranks(4, 20), test, size=size)
