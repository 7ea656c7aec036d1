"""The overview of a server's ranks under the fingers: groups, a group's ranks, and time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.prometheus.fleet import Fleet, fleet_of
from memtui.prometheus.watcher import Heard
from memtui.tui.app import MemtuiApp
from memtui.tui.screens.fleet import FleetScreen
from tests.support.fleet_ranks import Planted
from tests.support.looks import NOW, StandingFeed, look_of, simulated
from tests.support.screens import drive, text


async def overview(app: MemtuiApp, pilot: Pilot[Any]) -> FleetScreen:
    while app.overview is None or not app.overview.is_current:
        await pilot.pause(0.05)
    await pilot.pause(0.1)
    assert isinstance(app.overview, FleetScreen)
    return app.overview


def test_the_worst_ranks_come_first_and_s_sorts_otherwise() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        assert [row.rank for row in screen.table.rows[:3]] == [35, 8, 52]
        await pilot.press("s")
        assert [row.rank for row in screen.table.rows[:3]] == [0, 1, 2]
        assert screen.order == "rank"

    drive(StandingFeed(look_of(simulated(64, 8))), test)


def test_a_group_is_opened_and_left_again() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press("b")
        assert screen.by == "host"
        assert screen.groups.display
        assert not screen.table.display
        await pilot.press("down", "enter")
        assert screen.by is None
        assert {row.host for row in screen.table.rows} == {"node-001"}
        assert "node-001" in text(app)[0]
        assert "8 ranks" in text(app)[0]
        await pilot.press("escape")
        assert screen.by == "host"
        await pilot.press("escape")
        assert screen.by is None
        assert len(screen.table.rows) == 64

    drive(StandingFeed(look_of(simulated(64, 8))), test)


def test_several_runs_are_shown_first_and_each_by_itself() -> None:
    one, other = look_of(simulated(16, 2, 1), run="a"), look_of(simulated(8, 1, 1, planted=Planted()), run="b")
    feed = StandingFeed(replace(one, ranks={**one.ranks, **other.ranks}, info={**one.info, **other.info}))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        assert screen.by == "run"
        assert [group.name for group in screen.groups.groups] == ["a", "b"]
        await pilot.press("down", "enter")
        assert len(screen.table.rows) == 8
        assert feed.course is not None
        assert feed.course.run.name == "b"
        assert "8 ranks" in text(app)[0]
        await pilot.press("b")
        assert screen.by == "run"
        assert "2 runs" in text(app)[0]
        await pilot.press("enter")
        await pilot.press("escape")
        assert screen.by == "run"

    drive(feed, test)


def test_arrows_go_back_in_time_and_l_comes_back() -> None:
    feed = StandingFeed(look_of(simulated(64, 8)))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await overview(app, pilot)
        await pilot.press("comma")
        assert feed.replay
        then = feed.now_ns()
        assert "REPLAY" in text(app)[0]
        await pilot.press("less_than_sign")
        assert feed.now_ns() == then - 300_000_000_000  # ten times a twentieth of ten minutes
        await pilot.press("l")
        assert not feed.replay
        assert "REPLAY" not in text(app)[0]

    drive(feed, test)


def test_a_rank_in_view_is_asked_for_its_categories_and_an_opened_one_for_its_past() -> None:
    feed = StandingFeed(look_of(simulated(1_024, 64, 8)))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        first = feed._wanted.shown
        assert 0 < len(first) < 64
        await pilot.press("pagedown")
        await pilot.pause(0.1)
        assert set(feed._wanted.shown).isdisjoint(first)
        await pilot.press("home", "enter")
        await pilot.pause(0.1)
        assert feed._wanted.opened is not None
        assert feed._wanted.opened.rank == "537"
        await pilot.press("0")
        await pilot.pause(0.1)
        assert app.screen is screen
        assert feed._wanted.opened is None

    drive(feed, test)


def test_an_opened_rank_says_what_a_server_lacks_and_l_comes_back_to_now() -> None:
    feed = StandingFeed(look_of(simulated(64, 8)))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        await pilot.press("comma", "enter")
        await pilot.pause(0.2)
        assert app.screen is not screen
        assert feed.replay
        assert "REPLAY" in "\n".join(text(app))
        await pilot.press("2")
        await pilot.pause(0.2)
        shown = "\n".join(text(app))
        assert "Prometheus holds no texts of events; on node-" in shown
        assert "nothing out of the ordinary" not in shown
        await pilot.press("o")
        await pilot.pause(0.2)
        shown = "\n".join(text(app))
        assert "Prometheus holds no messages of failed allocations" in shown
        assert "Nothing has run out of memory here" not in shown
        await pilot.press("escape", "1", "l")
        await pilot.pause(0.2)
        assert not feed.replay
        assert "REPLAY" not in "\n".join(text(app))

    drive(feed, test)


def test_all_ranks_may_go_while_they_are_watched() -> None:
    feed = StandingFeed(look_of(simulated(16, 2, 1)))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        screen = await overview(app, pilot)
        look = feed.fleet.look if feed.fleet is not None else pytest.fail("nothing was heard")
        nobody: Fleet = fleet_of(replace(look, ranks={}, info={}, targets={}, devices={}, time_s=NOW + 60))
        feed._take(Heard(feed._wanted, nobody))
        screen.refresh_view()
        await pilot.press("b", "s", "enter", "down", "c", "escape", "space", "v")
        await pilot.pause(0.1)
        assert "no series of any rank" in "\n".join(text(app))

    drive(feed, test)


def test_a_process_that_is_no_rank_is_called_by_its_pid_on_both_screens() -> None:
    """GIVEN a training without a launcher, THEN neither its overview nor its own screen calls it a rank."""
    ranked = look_of(simulated(1, 1, 1, planted=Planted()))
    ((key, rank),) = ranked.ranks.items()
    alone = key._replace(rank="")
    feed = StandingFeed(replace(ranked, ranks={alone: rank}, info={alone: {**ranked.info[key], "local_rank": ""}}))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await overview(app, pilot)
        shown = text(app)
        assert "1 process" in shown[0]
        assert any(f"process {key.pid} " in line for line in shown)
        assert not [line for line in shown if "rank 0" in line or "between the ranks" in line]
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert f"process {key.pid}" in text(app)[0]
        assert "rank 0" not in text(app)[0]

    drive(feed, test)
