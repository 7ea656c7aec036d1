"""What samples of a server's come to: rows, runs, lives, groups and findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.prometheus.collect import AGENTS, DeviceLook, Key, Last, Look, Place, RankLook, Target
from memtui.prometheus.fleet import Course, fleet_of, part_of
from memtui.prometheus.rows import Named, ladder_of, row_of
from memtui.prometheus.runs import runs_of
from memtui.ranks.row import RankRow, identity
from tests.support.fleet_ranks import CAPACITY_BYTES, Planted
from tests.support.looks import NOW, look_of, simulated

_KEY = Key("gpt", "3", "4242", "memtui", "node-1:9464")


def look_at(rank: RankLook, **more: object) -> Look:
    place = Place(_KEY.job, _KEY.instance)
    return Look(NOW, {_KEY: rank}, {}, {place: Target(True, NOW - 2)}, {}, **more)  # type: ignore[arg-type]


def row(rank: RankLook) -> RankRow:
    return row_of(Named(_KEY, 3), look_at(rank), rank)


def only(look: Look) -> Course:
    (course,) = fleet_of(look).courses
    return course


def texts(course: Course, key: str) -> list[str]:
    return [finding.text for finding in course.view.findings if finding.key == key]


# Rows


def test_a_row_of_all_figures() -> None:
    fleet = simulated(64, 8)
    course = only(look_of(fleet))
    found = course.view.rows[8]  # the one that is nearly full
    figures = fleet.rank(8).figures(NOW - 2)
    assert found.rank == 8
    assert found.host == "node-001"
    assert found.device == "cuda:0"
    assert (found.local_rank, found.world_size, found.pid) == (0, 64, 20_008)
    assert found.total.value == CAPACITY_BYTES
    assert found.used.value == figures["process_device_bytes"]
    assert found.predicted.value == figures["predicted_peak_device_bytes"]
    assert found.headroom.value == figures["headroom_bytes"]
    assert found.level == "warning"
    assert found.completed == figures["steps_total"]
    assert found.step == found.completed + 1
    assert found.state == "live"
    assert sum(band.figure.value or 0 for band in found.bar.bands) == CAPACITY_BYTES


def test_what_is_not_known_is_none() -> None:
    found = row(RankLook({"cuda:0": DeviceLook("GPU-1", {"allocated_bytes": 5.0})}))
    for figure in (found.total, found.predicted, found.headroom, found.used):
        assert figure.value is None
        assert figure.kind == "unknown"
    assert found.peak.kind == "lower_bound"
    assert found.level == "unknown"
    assert found.percent is None
    for value in (found.step, found.step_ns, found.forward_ns, found.since_ns, found.age_ns, found.local_rank):
        assert value is None


def test_figures_that_cannot_be_are_left_out() -> None:
    figures = {"allocated_bytes": 1e300, "steps_total": -1.0, "last_step_seconds": -5.0, "headroom_bytes": -1e30}
    found = row(RankLook({"cuda:0": DeviceLook("", figures)}))
    assert found.step is None
    assert found.step_ns is None
    assert found.headroom.value is None
    assert found.peak.value is None


def test_texts_of_a_server_are_harmless() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202ex"
    key = Key(evil, "0", "1", evil, evil)
    rank = RankLook({evil: DeviceLook(evil, {"allocated_bytes": 1.0})}, evil, evil, evil)
    look = Look(NOW, {key: rank}, {key: {"host": evil, "device_name": evil}}, {}, {})
    course = only(look)
    said = [course.run.name, course.view.summary, *(finding.text for finding in course.view.findings)]
    for each in course.view.rows:
        said += [each.host, each.device, each.device_name, each.uuid, each.phase, each.state_text]
    for text in said:
        assert text.isprintable()
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_the_peak_is_the_higher_of_the_counter_and_the_last_minutes() -> None:
    figures = {"allocated_peak_bytes": 3.0, "allocated_window_peak_bytes": 7.0}
    assert row(RankLook({"cuda:0": DeviceLook("", figures)})).peak.value == 7


def test_frames_that_are_old_at_the_scrape_are_missed_whatever_the_state_says() -> None:
    late = {"frame_timestamp_seconds": NOW - 60}
    assert row(RankLook({"cuda:0": DeviceLook("", late)}, state="live")).state == "silent"
    near = {"frame_timestamp_seconds": NOW - 10}
    found = row(RankLook({"cuda:0": DeviceLook("", near)}, state="live"))
    assert found.state == "live"
    assert found.age_ns == 8_000_000_000  # against the scrape, which was two seconds ago


def test_of_several_devices_the_one_with_most_reserved_is_shown() -> None:
    devices = {
        "cuda:0": DeviceLook("GPU-0", {"reserved_bytes": 1.0}),
        "cuda:1": DeviceLook("GPU-1", {"reserved_bytes": 2.0}),
        "host": DeviceLook("", {"reserved_bytes": 9.0}),
    }
    assert row(RankLook(devices)).device == "cuda:1"


# Runs


def rank_of(frame_s: float, *, outcome: str = "") -> RankLook:
    figures = {"frame_timestamp_seconds": frame_s, "steps_total": 5.0}
    return RankLook({"cuda:0": DeviceLook("", figures)}, "forward", "ended" if outcome else "live", outcome)


def test_a_rank_that_came_back_is_another_life() -> None:
    old, new = _KEY._replace(pid="1"), _KEY._replace(pid="2")
    other = _KEY._replace(rank="0", pid="3")
    ranks = {new: rank_of(NOW), old: rank_of(NOW - 100, outcome="oom"), other: rank_of(NOW)}
    course = only(replace(look_at(ranks[new]), ranks=ranks))
    assert [(each.rank, each.life, each.pid) for each in course.view.rows] == [(0, 1, 3), (3, 2, 2)]
    assert [(each.rank, each.life, each.pid) for each in course.view.past] == [(3, 1, 1)]
    assert course.keys[3, 1] == old


def test_one_name_of_two_trainings_is_told_apart_by_target() -> None:
    twin = _KEY._replace(instance="node-2:9464", pid="7")
    look = replace(look_at(rank_of(NOW)), ranks={_KEY: rank_of(NOW), twin: rank_of(NOW)})
    assert [run.name for run in runs_of(look)] == ["gpt on node-1:9464", "gpt on node-2:9464"]


def test_a_process_without_a_rank_is_a_run_of_its_own() -> None:
    keys = [Key("train.py", "", pid, "memtui", "node-1:9464") for pid in ("11", "12")]
    look = replace(look_at(rank_of(NOW)), ranks={key: rank_of(NOW) for key in keys})
    assert [run.name for run in runs_of(look)] == ["train.py · pid 11 on node-1", "train.py · pid 12 on node-1"]


@pytest.mark.parametrize(
    ("state", "outcome", "key"), [("silent", "", "silent"), ("stopped", "", "stopped"), ("ended", "oom", "ended")]
)
def test_a_process_without_a_rank_is_called_by_its_pid(state: str, outcome: str, key: str) -> None:
    """GIVEN a process that no launcher has numbered, THEN nothing that is said of it gives it a rank."""
    process = Key("train.py", "", "4242", "memtui", "node-1:9464")
    rank = rank_of(NOW - 60)
    rank.state, rank.outcome = state, outcome
    rank.devices["cuda:0"].figures |= {"headroom_bytes": 1 << 20, "capacity_bytes": 1 << 34, "steps_total": 7}
    rank.devices["cuda:0"].figures |= {"leak_bytes_per_step": 1 << 20, "ooms_total": 2}
    course = only(replace(look_at(rank), ranks={process: rank}))
    (row,) = course.view.rows
    assert identity(row).startswith("process 4242 · ")
    [text] = texts(course, key)
    assert "process 4242" in text
    said = [course.view.summary, *(finding.text for finding in course.view.findings)]
    assert not [each for each in said if "rank" in each]
    lost = replace(
        look_at(rank), ranks={}, info={process: {}}, targets={Place("memtui", "node-1:9464"): Target(False, NOW)}
    )
    [text] = texts(only(lost), "gone")
    assert text.endswith("nothing is known of process 4242")


# What is wrong


def test_three_planted_outliers_come_first() -> None:
    fleet = simulated(1_024, 64, 8)
    planted = fleet.planted
    view = only(look_of(fleet)).view
    first = [each.rank for each in view.ordered("outliers")[:3]]
    assert first[0] == planted.silent
    assert set(first) == {planted.silent, planted.full, planted.large}


def test_nothing_is_wrong_where_nothing_is_planted() -> None:
    course = only(look_of(simulated(64, 8, planted=Planted())))
    assert {finding.key for finding in course.view.findings} == {"stages"}


@pytest.mark.parametrize(("ranks", "stages"), [(64, 4), (1_024, 8)])
def test_one_that_holds_as_much_as_another_stage_is_found_by_its_neighbours(ranks: int, stages: int) -> None:
    fleet = simulated(ranks, ranks // 16, stages)
    said = texts(only(look_of(fleet)), "memory")
    assert any(text.startswith(f"rank {fleet.planted.large} holds ") and "stage of its" in text for text in said)


def test_a_host_that_is_not_scraped_is_told_from_a_silent_rank() -> None:
    fleet = simulated(64, 8)
    course = only(look_of(fleet, gone=[3]))
    (gone,) = texts(course, "gone")
    assert gone.startswith("node-003:9464 is not scraped any more")
    assert gone.endswith("ranks 24 to 31")
    (silent,) = texts(course, "silent")
    assert silent.startswith(f"no frame of rank {fleet.planted.silent} (node-004) for 40.0 s")  # at the scrape
    by_rank = {each.rank: each for each in course.view.rows}
    assert {by_rank[rank].state for rank in range(24, 32)} == {"lost"}
    assert by_rank[24].used.value is None
    assert course.view.summary.startswith("56 of 64 ranks live")


def test_what_is_known_of_ranks_whose_host_has_gone() -> None:
    look = look_of(simulated(64, 8), gone=[3])
    keys = {int(key.rank): key for key in look.info}
    last = {
        keys[24]: Last(False, "oom"),
        keys[25]: Last(True, "ok"),
        keys[26]: Last(True, ""),
        keys[27]: Last(False, ""),
    }
    course = only(replace(look, last=last))
    by_rank = {each.rank: each for each in course.view.rows}
    assert by_rank[24].state_text == "ended: out of memory"
    assert not {25, 26} & by_rank.keys()
    (gone,) = texts(course, "gone")
    assert gone.endswith("ranks 27 to 31")
    assert [text for text in texts(course, "ended") if text.startswith("rank 24: ended: out of memory")]


def test_what_other_agents_hold_of_a_device_is_others() -> None:
    driver = {"total_bytes": 100.0, "used_bytes": 70.0, "free_bytes": 30.0, "other_bytes": 5.0, AGENTS: 60.0}
    held = DeviceLook("GPU-1", {"process_device_bytes": 40.0, "reserved_bytes": 35.0})
    ladder = ladder_of(held, driver, host=False)
    assert (ladder.other_process_bytes, ladder.unattributed_bytes) == (25, 5)
    # The driver was read before the allocator took more: nothing is negative.
    early = {"total_bytes": 100.0, "used_bytes": 10.0, "free_bytes": 90.0, "other_bytes": 0.0}
    assert ladder_of(DeviceLook("GPU-1", {"reserved_bytes": 35.0}), early, host=False).unattributed_bytes is None


def test_many_of_a_kind_are_one_line() -> None:
    course = only(look_of(simulated(64, 8), gone=range(5)))
    (gone,) = texts(course, "gone")
    assert gone == "5 hosts are not scraped any more: nothing is known of ranks 0 to 39"


def test_an_end_a_leak_and_a_full_device_are_told() -> None:
    fleet = simulated(64, 8, planted=Planted.usual(64, 4, more=True))
    course = only(look_of(fleet))
    assert texts(course, "ended")[0].startswith(f"rank {fleet.planted.exhausted}: ended: out of memory")
    assert texts(course, "leak")[0].startswith(f"rank {fleet.planted.leaking} grows 24.0 MiB a step: full in about ")
    assert texts(course, "full")[0].startswith(f"rank {fleet.planted.full} (node-001) is nearly full, ")


def test_many_that_stand_still_are_one_line() -> None:
    look = look_of(simulated(64, 8, planted=Planted()))
    for place, rank in enumerate(look.ranks.values()):
        if place < 10:
            rank.state = "stopped"
    assert texts(only(look), "stopped") == ["ranks 0 to 9 are stopped (T): kill -CONT lets them go on"]
    for place, rank in enumerate(look.ranks.values()):
        rank.state = "live"
        if place < 10:
            rank.main()[1].figures["step_since_timestamp_seconds"] = NOW - 600
    assert texts(only(look), "stalled") == ["ranks 0 to 9 stopped stepping, and others did not"]


def test_as_many_parts_as_ranks_are_not_compared_one_by_one() -> None:
    look = look_of(simulated(1_024, 64, 8, planted=Planted()))
    for place, rank in enumerate(look.ranks.values()):
        rank.main()[1].most = {"parameters": (place + 1) ** 4}
    course = only(look)
    assert len(course.view.findings) < 20


def test_a_silent_ranks_old_figures_are_compared_with_nobodys() -> None:
    fleet = simulated(64, 8)
    for finding in only(look_of(fleet)).view.findings:
        if finding.key in ("memory", "batches", "model"):
            assert fleet.planted.silent not in finding.ranks


# Groups


def test_groups_by_host_have_the_worst_first() -> None:
    fleet = fleet_of(look_of(simulated(64, 8), gone=[6]))
    groups = fleet.groups("host", fleet.courses[0])
    assert {group.name for group in groups[:2]} == {"node-004", "node-006"}
    assert sorted(group.name for group in groups) == [f"node-{number:03d}" for number in range(8)]
    assert all(len(group.rows) == 8 for group in groups)


def test_groups_by_stage_are_neighbours_and_strays_are_of_none() -> None:
    simulation = simulated(64, 8)
    fleet = fleet_of(look_of(simulation))
    groups = {group.name.partition(":")[0]: group for group in fleet.groups("stage", fleet.courses[0])}
    assert set(groups) == {"stage 0", "stage 1", "stage 2", "stage 3", "of no stage"}
    strays = {row.rank for row in groups["of no stage"].rows}
    assert strays == {simulation.planted.full, simulation.planted.large}
    assert {row.rank for row in groups["stage 1"].rows} == set(range(16, 32))


def test_a_group_alone_has_its_own_findings_and_summary() -> None:
    course = only(look_of(simulated(64, 8)))
    part = part_of(course, [(rank, 1) for rank in range(8)])
    assert [each.rank for each in part.rows] == list(range(8))
    assert not [finding for finding in part.findings if finding.level != "unknown"]


def test_runs_are_groups_too() -> None:
    one, other = look_of(simulated(16, 2, 1), run="a"), look_of(simulated(16, 2, 1), run="b")
    fleet = fleet_of(replace(one, ranks={**one.ranks, **other.ranks}, info={**one.info, **other.info}))
    assert fleet.groupings(None)[0] == "run"
    assert [group.name for group in fleet.groups("run", None)] == ["a", "b"]
