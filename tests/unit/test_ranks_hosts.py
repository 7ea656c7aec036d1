"""Ranks of several machines: whose they are, what is compared between them, and what a broken link says."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from textual.pilot import Pilot

from memtui.commands.exhausted import tell_failed
from memtui.commands.ownline import OwnLines
from memtui.ranks.view import RanksView, build_ranks
from memtui.session.session import End
from memtui.tui.app import MemtuiApp
from memtui.tui.ranks.columns import places
from memtui.wire.frames import Event
from tests.support.made_up_ranks import GIB, MadeUpRanks, RankTraining
from tests.support.screens import drive, text


def on_hosts(*hosts: str) -> MadeUpRanks:
    """Two ranks on each host, whose GPUs have the same names on all of them."""
    count = 2 * len(hosts)
    feed = MadeUpRanks([RankTraining(rank, count, gpu=rank % 2) for rank in range(count)], 20)
    for rank, member in enumerate(feed.members):
        member.host = hosts[rank // 2]
    return feed


def view_of(feed: MadeUpRanks) -> RanksView:
    return build_ranks(feed.members, feed.now_ns(), None, feed.label)


@pytest.mark.parametrize(
    ("hosts", "width", "shown"),
    [
        (("gpu-a.example.org", "gpu-b.example.org"), 80, ["gpu-a:0", "gpu-a:1", "gpu-b:0", "gpu-b:1"]),
        (("10.0.0.1", "10.0.0.2"), 80, ["10.0.0.1:0", "10.0.0.1:1", "10.0.0.2:0", "10.0.0.2:1"]),
        (
            ("a-long-cluster-name-01", "a-long-cluster-name-02"),
            80,
            ["…name-01:0", "…name-01:1", "…name-02:0", "…name-02:1"],
        ),
        (("box", "box"), 80, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        (("box.a", "box.b"), 120, ["box.a:0", "box.a:1", "box.b:0", "box.b:1"]),
    ],
)
def test_where_a_rank_is(hosts: tuple[str, str], width: int, shown: list[str]) -> None:
    assert places(view_of(on_hosts(*hosts)).rows, width) == shown


def test_one_training_is_compared_and_devices_are_a_machines_own() -> None:
    """GPUs of two machines that have the same names are not shared."""
    view = view_of(on_hosts("left", "right"))
    assert (view.hosts, view.world_size, view.apart) == (("left", "right"), 4, False)
    assert not [finding for finding in view.findings if finding.key in ("shared", "contexts")]
    same = view_of(on_hosts("left", "left"))
    assert {finding.key for finding in same.findings} >= {"shared"}


def test_a_link_that_is_down_is_told_once_and_nothing_is_guessed_from_it() -> None:
    feed = on_hosts("left", "right")
    feed.held |= {2, 3}
    feed.advance(120)
    for member in feed.members[2:]:
        member.session.set_connection("lost", "no link to right since 10:18:10 (timed out)")
    view = view_of(feed)
    (finding,) = [finding for finding in view.findings if finding.key == "link"]
    assert (finding.ranks, finding.text) == ((2, 3), "no link to right since 10:18:10 (timed out)")
    assert not [finding for finding in view.findings if finding.key in ("silent", "stalled")]
    assert [row.state for row in view.rows] == ["live", "live", "lost", "lost"]


def test_unlike_trainings_are_not_compared() -> None:
    feed = on_hosts("left", "right")
    feed.trainings[3].batch = 9
    for number, member in enumerate(feed.members):
        member.number = number
    view = view_of(feed)
    assert (view.apart, view.findings) == (True, ())
    assert "skew" not in view.summary
    assert "fullest" in view.summary
    feed.end_rank(1, "ValueError", "no such sample")
    feed.sessions[0].end = End(0, unheard=True)
    finding, unheard = view_of(feed).findings
    assert (unheard.level, unheard.ranks) == ("unknown", (0,))
    assert unheard.text.endswith("ended: it went while the link to its machine was down; how is not known")
    assert finding.text.startswith("left/4243 ended: ValueError")


def test_the_overview_names_hosts() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while app.overview is None or not app.overview.is_current:
            await pilot.pause(0.05)
        await pilot.pause(0.2)
        said = "\n".join(text(app))
        assert "where" in said
        assert "left:0" in said
        assert "right:1" in said

    drive(on_hosts("left", "right"), test)


def test_the_overview_is_kept_while_a_rank_is_shown() -> None:
    """One that is taken apart draws nothing when it is shown again."""

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while app.overview is None or not app.overview.is_current:
            await pilot.pause(0.05)
        overview = app.overview
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert app.screen is app.monitor
        assert overview.is_running
        assert overview.table.is_running
        await pilot.press("0")
        await pilot.pause(0.2)
        assert app.screen is overview

    drive(on_hosts("left", "right"), test)


def test_what_failed_is_told_when_the_app_is_left() -> None:
    """GIVEN processes of which one ran out of memory, one was killed and two go on, THEN the first two are told of."""
    feed = on_hosts("left", "right")
    for number, member in enumerate(feed.members):
        member.number = number
    oom = Event("oom", feed.now_ns(), 6, "backward", "cuda:1", {"asked_bytes": 2 * GIB, "device_free_bytes": GIB})
    feed.sessions[1].apply(oom, feed.now_ns())
    feed.end_rank(1, "OutOfMemoryError", "CUDA out of memory.")
    feed.sessions[2].end = End(feed.now_ns(), silent=True)
    said = io.StringIO()

    tell_failed(cast(Any, feed), OwnLines(said))

    lines = said.getvalue().splitlines()
    assert lines[0] == "memtui: left/4243: out of memory on cuda:1 in backward, step 7"
    assert any(line.startswith("memtui: left/4243: ended: OutOfMemoryError") for line in lines)
    assert lines[-1].startswith("memtui: right/4244: ended: it went without a word")
    assert not any("4242" in line or "4245" in line for line in lines)
