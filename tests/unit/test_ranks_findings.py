"""What is found by setting ranks side by side, from made-up ones whose fault is known."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Optional

import pytest

from memtui.analysis.build import build_view
from memtui.analysis.verdict import end_text
from memtui.commands.exhausted import tell_last
from memtui.commands.ownline import OwnLines
from memtui.ranks.finding import Finding
from memtui.ranks.view import RanksView, build_ranks
from memtui.ranks.words import ranks as named
from memtui.session.members import Member, earlier, first_failed, newest, number_lives
from memtui.session.session import End, Session
from memtui.sources.driver_shared import reading_for
from memtui.wire.frames import Event, Model
from tests.support.made_up_ranks import GIB, MadeUpRanks, RankTraining, ranks


def view_of(feed: MadeUpRanks) -> RanksView:
    return build_ranks(feed.members, feed.now_ns(), feed.driver, feed.label)


def found(view: RanksView, key: str) -> Optional[Finding]:
    return next((finding for finding in view.findings if finding.key == key), None)


def alike(count: int, seconds: float = 20.0) -> MadeUpRanks:
    return MadeUpRanks([RankTraining(rank, count) for rank in range(count)], seconds)


def test_ranks_that_are_alike_are_not_told_apart() -> None:
    view = view_of(alike(8))
    assert view.findings == ()
    assert [row.rank for row in view.rows] == list(range(8))
    assert "skew 0 B" in view.summary
    assert view.facts.startswith("DDP: reduction buckets")
    assert view.program == "torchrun --nproc-per-node 8 train.py --model gpt-1.6b"


@pytest.mark.parametrize("count", [2, 8, 64])
def test_the_one_with_larger_batches(count: int) -> None:
    feed = ranks(count, 20)
    odd = min(5, count - 1)
    finding = found(view_of(feed), "batches")
    assert finding is not None
    assert finding.ranks == (odd,)
    assert "activations" in finding.text
    assert "batches are larger (inputs 19.2 MiB against 12.0 MiB)" in finding.text


def test_a_rank_that_holds_less_is_told_too() -> None:
    each = [RankTraining(rank, 8, batch=0.5 if rank == 3 else 1.0) for rank in range(8)]
    finding = found(view_of(MadeUpRanks(each, 20)), "batches")
    assert finding is not None
    assert finding.ranks == (3,)
    assert "less than the others" in finding.text
    assert "smaller" in finding.text


def test_pipeline_stages_are_told_from_faults() -> None:
    """GIVEN ranks with unlike parts of a model, THEN that is said, none of them is odd, and skew is within a stage."""
    parts = (1.0, 1.0, 0.6, 0.6)
    each = [_of_part(rank, part) for rank, part in enumerate(parts)]
    view = view_of(MadeUpRanks(each, 20))
    assert [finding.key for finding in view.findings] == ["stages"]
    assert "ranks 0 and 1 6.1 GiB, ranks 2 and 3 3.7 GiB" in view.findings[0].text
    assert "skew 0 B" in view.summary


def _of_part(rank: int, part: float) -> RankTraining:
    return RankTraining(rank, 4, part=part)


class Half(RankTraining):
    """As many parameters as the others, in another dtype."""

    def model(self, time_ns: int) -> Model:
        model = super().model(time_ns)
        return replace(model, parameters=2 * model.parameters, dtypes={"bfloat16": self.parameters})


def test_the_same_model_in_another_dtype_is_a_fault() -> None:
    each = [RankTraining(rank, 4) if rank != 2 else Half(2, 4, part=0.5) for rank in range(4)]
    view = view_of(MadeUpRanks(each, 20))
    finding = found(view, "model")
    assert finding is not None
    assert finding.ranks == (2,)
    assert "bfloat16 against float32" in finding.text
    assert found(view, "stages") is None


def test_contexts_that_ranks_left_on_the_first_device() -> None:
    feed = alike(8)
    for rank in range(1, 8):
        feed.trainings[rank].stray = GIB // 2
    feed.advance(2)
    finding = found(view_of(feed), "contexts")
    assert finding is not None
    assert finding.ranks == tuple(range(1, 8))
    assert finding.text.startswith("7 foreign contexts on cuda:0, the device of rank 0 (ranks 1 to 7, 3.5 GiB)")
    assert "set_device(local_rank)" in finding.text


def test_two_ranks_on_one_device() -> None:
    each = [RankTraining(rank, 4, gpu=min(rank, 2)) for rank in range(4)]
    finding = found(view_of(MadeUpRanks(each, 20)), "shared")
    assert finding is not None
    assert finding.ranks == (2, 3)
    assert finding.text.startswith("ranks 2 and 3 share cuda:2")


def test_a_rank_that_is_stopped() -> None:
    feed = alike(4)
    feed.stop_rank(2)
    feed.advance(3)
    view = view_of(feed)
    finding = found(view, "stopped")
    assert finding is not None
    assert finding.ranks == (2,)
    assert finding.level == "bad"
    assert f"kill -CONT {4242 + 2}" in finding.text
    assert next(row for row in view.rows if row.rank == 2).state == "stopped"


def test_a_rank_of_which_nothing_is_heard() -> None:
    feed = alike(4)
    feed.held.add(1)
    feed.advance(5)
    finding = found(view_of(feed), "silent")
    assert finding is not None
    assert finding.ranks == (1,)


def test_the_first_that_ended_is_told_and_its_last_figures_are_kept() -> None:
    feed = alike(4)
    before = next(row for row in view_of(feed).rows if row.rank == 3)
    feed.end_rank(3)
    assert found(view_of(feed), "ended") is None  # another one may have ended before, and not be known to have
    feed.advance(0.5)
    feed.end_rank(0, "RuntimeError", "Connection closed by peer")
    feed.advance(2)
    view = view_of(feed)
    finding = found(view, "ended")
    assert finding is not None
    assert finding.ranks == (3, 0)
    assert finding.text.startswith("rank 3 ended first: it went without a word")
    assert "rank 0 followed within 500 ms" in finding.text
    row = next(row for row in view.rows if row.rank == 3)
    assert row.over
    assert (row.peak, row.step, row.used) == (before.peak, before.step, before.used)
    assert "2 of 4 ranks live" in view.summary


def test_a_rank_that_is_heard_no_more_may_have_ended_before() -> None:
    """GIVEN an end, and a connection that is lost, THEN for a while nothing is concluded; and then it is."""
    feed = alike(4)
    feed.sessions[2].set_connection("lost", "the agent closed the connection")
    feed.end_rank(3)
    feed.advance(3)
    assert found(view_of(feed), "ended") is None
    feed.advance(3)
    finding = found(view_of(feed), "ended")
    assert finding is not None
    assert finding.ranks == (3,)


def test_of_killed_ranks_the_first_that_was_missed_was_the_first() -> None:
    """GIVEN a rank that was heard last long before, WHEN the launcher kills it after another one was, THEN it followed.

    Each says something ten times a second, on a busy machine later; that it is gone is seen as it happens.
    """
    feed = alike(4)
    feed.held.add(0)
    feed.advance(1)
    feed.end_rank(3)
    feed.advance(0.2)
    for index in (0, 1, 2):
        feed.end_rank(index)
    feed.advance(2)
    finding = found(view_of(feed), "ended")
    assert finding is not None
    assert finding.ranks[0] == 3
    assert set(finding.ranks) == {0, 1, 2, 3}
    failed = first_failed(feed.members)
    assert failed is not None
    assert failed.rank == 3


def test_ranks_that_finished_are_no_news() -> None:
    feed = alike(2)
    for rank in (0, 1):
        feed.end_rank(rank, None)
        end = feed.sessions[rank].end
        assert end is not None
        feed.sessions[rank].end = replace(end, silent=False)
    feed.advance(3)
    assert view_of(feed).findings == ()


def test_a_rank_that_came_back() -> None:
    feed = alike(2)
    feed.end_rank(1, "ValueError", "no such sample")
    feed.end_rank(0)
    for rank in (0, 1):
        feed.come_back(rank)
    feed.advance(8)
    view = view_of(feed)
    assert [(row.rank, row.life) for row in view.rows] == [(0, 2), (1, 2)]
    assert [(row.rank, row.life, row.over) for row in view.past] == [(0, 1, True), (1, 1, True)]
    finding = found(view, "restarted")
    assert finding is not None
    assert "ranks 0 and 1 came back (life 2)" in finding.text


def test_the_slowest_is_in_the_summary() -> None:
    each = [RankTraining(rank, 4, step_s=2.0 if rank != 1 else 2.4) for rank in range(4)]
    assert "slowest rank 1, +400 ms a step" in view_of(MadeUpRanks(each, 30)).summary


def test_sorted_by_what_is_asked() -> None:
    view = view_of(ranks(8, 20))
    assert next(row.rank for row in view.ordered("headroom")) == 5
    assert next(row.rank for row in view.ordered("skew")) == 5
    assert [row.rank for row in view.ordered("rank")] == list(range(8))


def test_lives_are_counted_in_the_order_in_which_they_came() -> None:
    sessions = [Session(number) for number in range(3)]
    members = [Member(number, lambda kept=kept: kept, rank=4) for number, kept in enumerate(sessions)]
    members.append(Member(9, lambda: sessions[0]))
    number_lives(members)
    assert [member.life for member in members] == [1, 2, 3, 1]
    assert newest(members) == [members[2]]
    assert earlier(members) == members[:2]


def test_one_reading_of_the_driver_serves_every_rank() -> None:
    feed = alike(2)
    assert feed.driver is not None
    uuid = feed.driver.devices[1].uuid
    own = reading_for(feed.driver, 4243, (uuid.removeprefix("GPU-"),))
    (device,) = own.devices
    assert device.uuid == uuid
    assert device.process_bytes == device.used_bytes
    assert device.others == ()
    foreign = reading_for(feed.driver, 4242, (uuid,)).devices[0]
    assert foreign.process_bytes is None
    assert [process.pid for process in foreign.others or ()] == [4243]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((5,), "rank 5"),
        ((0, 3), "ranks 0 and 3"),
        ((1, 2, 3, 4), "ranks 1 to 4"),
        ((0, 2, 3, 4, 9), "ranks 0, 2 to 4 and 9"),
        (tuple(range(0, 20, 2)), "ranks 0, 2, 4, 6, 8, 10 and 4 more"),
    ],
)
def test_ranks_in_words(numbers: tuple[int, ...], text: str) -> None:
    assert named(numbers) == text


def test_a_rank_that_ran_out_of_memory_and_lives_on() -> None:
    feed = alike(4)
    event = Event("oom", feed.clock_ns, 9, "forward", "cuda:3", {"asked_bytes": 2 * GIB, "device_free_bytes": GIB // 2})
    feed.sessions[3].apply(event, feed.clock_ns)
    feed.advance(1)
    finding = found(view_of(feed), "out of memory")
    assert finding is not None
    assert finding.ranks == (3,)
    assert finding.text.startswith("rank 3: out of memory")
    feed.advance(70)
    assert found(view_of(feed), "out of memory") is None


def test_who_went_without_a_word_is_said_to_on_its_own_screen_too() -> None:
    feed = alike(2)
    feed.end_rank(1)
    assert end_text(feed.sessions[1].end or End(0)) == "ended: it went without a word, as killed processes do"
    view = build_view(feed.sessions[1], "cuda:1", feed.clock_ns)
    assert view.verdict.level == "bad"
    assert "without a word" in view.verdict.text


@pytest.mark.parametrize(
    ("count", "said"), [(2, "memtui: rank 1: out of memory on cuda:1"), (1, "memtui: out of memory")]
)
def test_the_error_that_ended_a_rank_is_told_with_its_name(count: int, said: str) -> None:
    feed = alike(count)
    session, device = feed.sessions[count - 1], f"cuda:{count - 1}"
    session.apply(Event("oom", feed.clock_ns, 9, "forward", device, {"asked_bytes": 2 * GIB}), feed.clock_ns)
    feed.end_rank(count - 1, "OutOfMemoryError", "CUDA out of memory")
    stream = io.StringIO()
    tell_last(session, OwnLines(stream))
    assert stream.getvalue().startswith(said)
