"""A rank's series as a session: frames, categories, what happened, and any instant of it."""

from __future__ import annotations

from memtui.analysis.build import build_view
from memtui.analysis.oom.story import build_story
from memtui.prometheus.client import Track
from memtui.prometheus.collect import AGENTS, Key
from memtui.prometheus.history import RankHistory
from memtui.prometheus.moments import moment_now, moments_of
from memtui.tui.feed import absent
from tests.support.fleet_ranks import CAPACITY_BYTES, Planted, Rank
from tests.support.looks import NOW, StandingFeed, look_of, simulated

_DEVICE = "cuda:0"


def tracks_of(rank: Rank, times: list[float], device: str = _DEVICE) -> list[Track]:
    """What range queries say of a simulated rank."""
    points: dict[str, list[tuple[float, float]]] = {}
    for time_s in times:
        figures = rank.figures(time_s)
        figures["device_total_bytes"] = CAPACITY_BYTES
        figures["device_used_bytes"] = figures["process_device_bytes"]
        figures["device_free_bytes"] = CAPACITY_BYTES - figures["process_device_bytes"]
        figures["device_other_bytes"] = 0
        for name, value in figures.items():
            points.setdefault(name, []).append((time_s, value))
    labels = {"phase": "phase", "state": "state", "ends_total": "outcome", "category_bytes": "category"}
    found = []
    for name, values in points.items():
        metric, _, label = name.partition("|")
        more = {labels[metric]: label} if metric in labels else {}
        if metric.startswith("device_"):
            more = {"device_uuid": rank.uuid}
        else:
            more["device"] = device
        found.append(Track({"__name__": f"memtui_{metric}", **more}, values))
    return found


def history_of(rank: Rank, times: list[float]) -> RankHistory:
    info = [{"device": _DEVICE, "device_uuid": rank.uuid, "device_name": "H100", "host": "node-0", "world_size": "8"}]
    moments = moments_of(tracks_of(rank, times), {_DEVICE: rank.uuid})
    return RankHistory(Key("run", str(rank.rank), str(rank.pid), "memtui", "node-0:9464"), info, moments)


_TIMES = [NOW - 600 + 10 * place for place in range(61)]


def test_a_session_says_what_the_series_say() -> None:
    rank = simulated(8, 1, 1, planted=Planted()).rank(3)
    session = history_of(rank, _TIMES).whole
    figures = rank.figures(NOW)
    view = build_view(session, session.default_device(), int(NOW * 1e9))
    values = {each.key: each.figure.value for each in view.rows}
    assert values["allocated_bytes"] == figures["allocated_bytes"]
    assert values["reserved_bytes"] == figures["reserved_bytes"]
    assert values["device_used_bytes"] == figures["process_device_bytes"]
    assert values["predicted_peak_bytes"] == figures["predicted_peak_device_bytes"]
    assert values["headroom_bytes"] == figures["headroom_bytes"]
    assert values["step_peak_bytes"] is None  # nobody tells it
    assert sum(band.figure.value or 0 for band in view.bar.bands) == CAPACITY_BYTES
    assert view.phase == rank.course.at(NOW - rank.begun + rank._shift_s)[0].phase
    assert view.host == "node-0"
    assert view.verdict.level == "good"
    assert [rule.key for rule in view.rules] == ["capacity", "predicted_peak"]


def test_any_instant_is_as_it_was_then_and_the_chart_has_all() -> None:
    rank = simulated(8, 1, 1, planted=Planted()).rank(3)
    history = history_of(rank, _TIMES)
    for time_s in (_TIMES[0], _TIMES[7], _TIMES[24], _TIMES[25], _TIMES[60]):
        session = history.session_at(int(time_s * 1e9))
        device = session.device_frame(_DEVICE)
        assert device is not None
        assert device.allocated_bytes == rank.figures(time_s)["allocated_bytes"]
        series = session.series(_DEVICE, "allocated_bytes")
        assert series is not None
        assert series.last_time_ns == int(NOW * 1e9)
    before = history.session_at(int((_TIMES[0] - 1) * 1e9))
    assert before.frame is None
    assert before.hello is not None


def test_scrapes_apart_are_no_gaps_in_the_chart() -> None:
    series = history_of(simulated(8, 1, 1).rank(3), _TIMES).whole.series(_DEVICE, "allocated_bytes")
    assert series is not None
    assert series.apart_ns == 10_000_000_000


def test_a_scrape_without_a_new_frame_is_no_moment() -> None:
    fleet = simulated(8, 1, 1)
    silent = fleet.planted.silent
    assert silent is not None
    moments = moments_of(tracks_of(fleet.rank(silent), _TIMES), {})
    assert len(moments) == 57  # of 61: the last is of when it fell silent
    assert moments[-1].time_ns == int((NOW - 42) * 1e9)


def test_newer_scrapes_go_on_and_old_ones_change_nothing() -> None:
    rank = simulated(8, 1, 1, planted=Planted()).rank(3)
    history = history_of(rank, _TIMES[:30])
    newer = moments_of(tracks_of(rank, _TIMES[28:]), {_DEVICE: rank.uuid}, first=10_000)
    assert history.add(newer)
    assert history.count == 61
    assert not history.add(newer)
    whole = history_of(rank, _TIMES)
    one, other = history.whole.device_frame(_DEVICE), whole.whole.device_frame(_DEVICE)
    assert one == other


def test_an_end_and_failed_allocations_are_events_without_their_texts() -> None:
    fleet = simulated(64, 8, planted=Planted.usual(64, 4, more=True))
    assert fleet.planted.exhausted is not None
    session = history_of(fleet.rank(fleet.planted.exhausted), _TIMES).whole
    assert session.end is not None
    (oom,) = session.events_of("oom")
    assert "not in Prometheus" in oom.text
    answer = build_story(session, oom).answer
    assert answer.cause.reason == "no figures"
    assert "around it" not in answer.deciding  # of what: there is no log here
    assert answer.deciding == "PyTorch's own message has them: memtui explain LOG reads it in what the program printed."
    view = build_view(session, session.default_device(), int(NOW * 1e9))
    assert view.state == "ended"
    assert view.verdict.level == "bad"
    assert any("out of memory" in line.text for line in view.events)


def test_a_rank_that_ended_before_its_first_scrape_has_run_out_of_memory_and_holds_nothing() -> None:
    fleet = simulated(64, 8, planted=Planted.usual(64, 4, more=True))
    exhausted = fleet.planted.exhausted
    assert exhausted is not None
    held = ("allocated_bytes", "reserved_bytes", "process_device_bytes")
    tracks = [
        track
        for track in tracks_of(fleet.rank(exhausted), [NOW - 20, NOW - 10, NOW])
        if not track.labels["__name__"].endswith(held)
    ]
    moments = moments_of(tracks, {_DEVICE: fleet.rank(exhausted).uuid})
    (event,) = [event for moment in moments for event in moment.events if event.name == "oom"]
    assert "1 so far" in event.text
    assert all(moment.driver is None for moment in moments)  # the device is others' by now
    # What is fetched later goes on from what is known.
    later = moments_of(tracks, {_DEVICE: fleet.rank(exhausted).uuid}, first=10_000)
    assert not [event for moment in later for event in moment.events]


def test_what_other_agents_hold_of_the_device_is_others() -> None:
    rank = simulated(8, 1, 1, planted=Planted()).rank(3)
    own = rank.figures(_TIMES[0])["process_device_bytes"]
    beside = Track({"__name__": f"memtui_device_{AGENTS}", "device_uuid": rank.uuid}, [(_TIMES[0], own + (1 << 30))])
    (moment,) = moments_of([*tracks_of(rank, _TIMES[:1]), beside], {_DEVICE: rank.uuid})
    assert moment.driver is not None
    (reading,) = moment.driver.devices
    assert reading.other_process_bytes() == 1 << 30


def test_a_driver_that_was_read_before_the_rank_took_memory_makes_nothing_negative() -> None:
    rank = simulated(8, 1, 1, planted=Planted()).rank(3)
    tracks = []
    for track in tracks_of(rank, _TIMES[:3]):
        name = track.labels["__name__"].removeprefix("memtui_")
        if name in ("device_used_bytes", "device_free_bytes"):
            value = 0.0 if name == "device_used_bytes" else float(CAPACITY_BYTES)
            tracks.append(track._replace(points=[(time_s, value) for time_s, _ in track.points]))
        elif name != "process_device_bytes":
            tracks.append(track)
    info = [{"device": _DEVICE, "device_uuid": rank.uuid}]
    moments = moments_of(tracks, {_DEVICE: rank.uuid})
    session = RankHistory(Key("run", "3", "1", "memtui", "x"), info, moments).whole
    view = build_view(session, _DEVICE, int(NOW * 1e9))
    assert view.bar.bands
    assert all((band.figure.value or 0) >= 0 for band in view.bar.bands)


def test_nothing_of_a_rank_is_said_to_be_nothing() -> None:
    session = RankHistory(Key("run", "0", "1", "memtui", "x"), [], []).whole
    view = build_view(session, session.default_device(), 0)
    assert "Prometheus has no figures of it" in view.state_text


def test_an_opened_rank_has_figures_before_its_past_has_come() -> None:
    fleet = simulated(64, 8)
    look = look_of(fleet)
    feed = StandingFeed(look)
    feed.choose(feed.members[8])
    frame = feed.session.device_frame(_DEVICE)
    assert frame is not None
    assert frame.allocated_bytes == fleet.rank(8).figures(NOW - 2)["allocated_bytes"]
    assert len(moment_now(look, next(iter(look.ranks)))) == 1
    assert absent(feed, "tensors") == ("Prometheus holds no tensors; on node-001: memtui attach --pid 20008 shows them")
    assert absent(feed, "events").startswith("Prometheus holds no texts of events; on node-001: memtui attach")
    assert absent(feed, "memory") == ""
    assert not feed.request("tensors")
