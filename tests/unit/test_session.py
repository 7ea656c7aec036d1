"""What a session makes of messages that come late, twice, or in another order."""

from __future__ import annotations

from memtui.analysis.build import build_view
from memtui.session.readings import DeviceReading, DriverReading, HostReading
from memtui.session.session import Session
from memtui.wire.frames import Bye, Device, DeviceFrame, Event, Frame
from tests.support.sessions import CUDA, GIB, MIB, SECOND, UUID, Run, classified, hello


def test_a_history_that_is_sent_again_is_known() -> None:
    """GIVEN a reconnection, THEN neither frames nor events nor steps come twice, and the revision stands still."""
    run = Run()
    frames = [run.frame(MIB * size) for size in range(1, 6)]
    event = Event("new_peak", run.now_ns, 0, "forward", "cuda:0", {"allocated_peak_bytes": 5})
    run.session.apply(event, 0)
    revision = run.session.revision

    assert not any(run.session.apply(frame, 0) for frame in frames)
    assert not run.session.apply(event, 0)
    assert run.session.revision == revision
    assert len(run.session.events) == 1


def test_the_host_is_no_device_once_it_is_no_longer_read() -> None:
    """Its latest figures are not its present ones, and nothing says how old they are."""
    run = Run()
    host = DeviceFrame("host", allocated_bytes=MIB, reserved_bytes=2 * MIB, rss_bytes=3 * MIB)
    run.session.apply(Frame(1, run.now_ns, 0, 0, "startup", 0, (host,)), 0)
    assert run.session.device_frame("host") is not None
    run.sequence = 1

    run.frame(MIB)

    assert run.session.device_frame("host") is None
    assert [device.device for device in run.session.devices] == ["cuda:0"]


def test_an_agent_that_starts_afresh_counts_from_the_beginning() -> None:
    """Its frames are news although their numbers are low."""
    run = Run()
    run.frame(MIB)
    run.frame(2 * MIB)
    run.session.apply(hello(CUDA, started_ns=99), 0)
    run.sequence = 0

    run.frame(3 * MIB)

    frame = run.session.device_frame("cuda:0")
    assert frame is not None
    assert frame.allocated_bytes == 3 * MIB


def test_a_spike_between_two_samples_is_in_the_series() -> None:
    """GIVEN the peak counter rose, THEN that height was reached in between, and the chart has it."""
    run = Run()
    run.frame(MIB, allocated_peak_bytes=MIB)
    run.frame(MIB, allocated_peak_bytes=50 * MIB)
    run.frame(MIB, allocated_peak_bytes=50 * MIB)
    series = run.session.series("cuda:0", "allocated_bytes")

    assert series is not None
    assert series.window(0, run.now_ns + 1, 1) == [(MIB, 50 * MIB)]
    assert series.window(run.now_ns, run.now_ns + 1, 1) == [(MIB, MIB)]


def test_exact_peaks_of_steps_are_in_the_series() -> None:
    """Below the highest ever, where torch's counter says nothing; each where it was reached, and once."""
    run = Run()
    run.frame(MIB, allocated_peak_bytes=99 * MIB, step_peak_bytes=MIB, step_peak_exact=True)
    run.frame(MIB, allocated_peak_bytes=99 * MIB, step_peak_bytes=50 * MIB, step_peak_exact=True)
    highest = {"highest_step_peak_bytes": 50 * MIB, "highest_step_peak_step": 1}
    run.end_step(MIB, 50 * MIB, allocated_peak_bytes=99 * MIB, step_peak_bytes=MIB, step_peak_exact=True, **highest)
    run.step += 20
    highest = {"highest_step_peak_bytes": 70 * MIB, "highest_step_peak_step": 12}
    run.end_step(MIB, 30 * MIB, allocated_peak_bytes=99 * MIB, step_peak_bytes=MIB, step_peak_exact=True, **highest)
    series = run.session.series("cuda:0", "allocated_bytes")

    assert series is not None
    assert series.window(run.now_ns - 3 * SECOND // 10, run.now_ns + SECOND // 10, 4) == [
        (MIB, MIB),
        (MIB, 50 * MIB),
        (MIB, MIB),
        (MIB, 70 * MIB),
    ]


def test_the_highest_of_many_short_steps_is_known() -> None:
    """It is told between the last steps of two frames, and counts as one with optimizer state if all of them do."""
    run = Run()
    run.frame(MIB)
    run.end_step(MIB, 20 * MIB)
    since = run.step_since_ns
    run.step += 30
    run.end_step(MIB, 10 * MIB, highest_step_peak_bytes=90 * MIB, highest_step_peak_step=7)
    highest = run.session.steps.highest("cuda:0")
    assert highest is not None
    assert (highest.step, highest.bytes_held, highest.exact) == (7, 90 * MIB, True)

    for event_ns, expected in ((since + 1, None), (since, 90 * MIB)):
        run.session.apply(Event("optimizer_state_appeared", event_ns, 1, "optimizer", None, {"state_bytes": 1}), 0)
        steady = run.session.steps.steady("cuda:0")
        assert (steady.bytes_held if steady is not None else None) == expected


def test_a_peak_from_before_the_first_frame_is_no_spike() -> None:
    """It was reached before anybody looked, at an instant nobody knows."""
    run = Run()
    run.frame(MIB, allocated_peak_bytes=50 * MIB)
    series = run.session.series("cuda:0", "allocated_bytes")

    assert series is not None
    assert series.window(0, run.now_ns + 1, 1) == [(MIB, MIB)]


def test_devices_are_matched_by_uuid_not_by_order() -> None:
    """GIVEN the driver counts devices in another order, THEN each reading finds torch's name for it."""
    session = Session(1)
    first = Device("cuda:0", "cuda", "", "caching allocator", uuid="aaaa-bb")
    second = Device("cuda:1", "cuda", "", "caching allocator", uuid="cccc-dd")
    session.apply(hello(first, second), 0)
    session.apply_driver(
        DriverReading(
            1,
            (
                DeviceReading("GPU-CCCC-DD", 1, 0, total_bytes=2, used_bytes=2, free_bytes=0),
                DeviceReading("MIG-aaaa-bb", 1, 1, total_bytes=1, used_bytes=1, free_bytes=0),
            ),
        )
    )

    assert session.reading("cuda:1") is not None
    assert [session.reading(name).total_bytes for name in ("cuda:0", "cuda:1")] == [1, 2]  # type: ignore[union-attr]
    assert [device.device for device in session.devices] == ["cuda:0", "cuda:1"]


def test_a_step_that_is_told_twice_is_one() -> None:
    """A tick may be ahead of the boundaries before it: its frame says that the step is over, theirs not yet."""
    run = Run()
    run.frame(GIB)
    run.end_step(GIB, 2 * GIB)
    run.end_step(GIB, 3 * GIB, exact=False)
    run.frame(GIB, step=1, phase="optimizer", boundary="optimizer_start")
    run.step -= 1
    run.end_step(GIB, 3 * GIB)

    assert [(step.number, step.peaks[0].exact) for step in run.session.steps.recent] == [(1, True), (2, True)]


def test_the_steps_with_state_are_told_apart_when_that_is_known_late() -> None:
    """GIVEN steps, and only then the event that says since when state was there, THEN steps before it do not count."""
    run = Run()
    run.frame(MIB)
    run.end_step(MIB, 900 * MIB)
    since = run.now_ns
    run.end_step(MIB, 500 * MIB)
    run.end_step(MIB, 600 * MIB)
    assert run.session.steps.steady("cuda:0") is None

    run.session.apply(Event("optimizer_state_appeared", since, 1, "optimizer", None, {"state_bytes": 1}), 0)

    steady = run.session.steps.steady("cuda:0")
    highest = run.session.steps.highest("cuda:0")
    assert steady is not None
    assert highest is not None
    assert (steady.bytes_held, highest.bytes_held) == (600 * MIB, 900 * MIB)


def test_the_end_is_put_together_from_what_comes() -> None:
    """The agent knows the exception, the supervisor the status; in any order."""
    run = Run()
    run.frame(MIB)
    run.session.ended(run.now_ns, 1)
    run.session.apply(Bye(run.now_ns, "RuntimeError", "bad\x1b[31m shape"), 0)

    view = build_view(run.session, "cuda:0", run.now_ns)

    assert view.state == "ended"
    assert view.state_text == "exited with status 1: RuntimeError: bad shape"
    assert view.verdict.level == "bad"


def test_silence_and_loss() -> None:
    """No frame for a while is silence; a broken connection is loss; both keep the last figures."""
    run = Run()
    run.frame(MIB, 2 * MIB)

    silent = build_view(run.session, "cuda:0", run.now_ns + 4 * SECOND)
    run.session.set_connection("lost", "the agent closed the connection; the process lives")
    lost = build_view(run.session, "cuda:0", run.now_ns + 4 * SECOND)

    assert silent.state == "silent"
    assert lost.state == "lost"
    assert lost.bar.total.value == 2 * MIB


def test_the_last_figures_of_a_dead_process_stay() -> None:
    """What the system says of a process that is gone is nothing; what it said last is worth more."""
    session = Session(1)
    session.apply_host(HostReading(1, True, rss_bytes=GIB, total_bytes=16 * GIB, available_bytes=9 * GIB, user="me"))
    session.apply_host(HostReading(2, False, total_bytes=16 * GIB, available_bytes=10 * GIB))
    session.ended(2, 0)

    view = build_view(session, "host", 3)

    assert session.host is not None
    assert not session.host.alive
    assert next(row for row in view.rows if row.key == "device_used_bytes").figure.value == GIB
    assert sum(band.figure.value or 0 for band in view.bar.bands) == view.bar.total.value == 16 * GIB


def test_a_snapshot_goes_its_own_way() -> None:
    """Going back in time must not change what is at the end of it."""
    run = Run()
    run.frame(MIB, classification=classified(MIB, parameters=MIB))
    twin = run.session.snapshot()
    sequence = run.sequence

    twin.apply(Frame(sequence + 1, run.now_ns + 1, 0, 5, "forward", 0, (DeviceFrame("cuda:0", GIB, GIB),)), 0)

    frame = run.session.device_frame("cuda:0")
    series = run.session.series("cuda:0", "allocated_bytes")
    assert frame is not None
    assert frame.allocated_bytes == MIB
    assert series is not None
    assert len(series) == 1


def test_phases_over_time() -> None:
    """The strip under the chart."""
    run = Run()
    run.frame(MIB, phase="forward", phase_since_ns=0)
    run.frame(MIB, phase="backward", phase_since_ns=SECOND // 8)
    run.frame(MIB, phase="forward", phase_since_ns=SECOND // 4)

    window = run.session.phases.window(0, 2 * SECOND // 5, 4)

    assert window == ["forward", "backward", "forward", None]


def test_every_message_is_quick_however_long_the_run() -> None:
    """O(1): the ten-thousandth frame costs what the hundredth does, within noise."""
    import time

    run = Run()
    costs = []
    for size in range(10_000):
        begun = time.perf_counter()
        run.end_step(MIB + size, 2 * MIB)
        costs.append(time.perf_counter() - begun)

    assert sorted(costs[-500:])[250] < 5 * sorted(costs[:500])[250]
    assert run.session.reading("cuda:0") is None
    assert UUID


def test_the_peak_of_a_step_that_did_not_end_with_a_frame() -> None:
    """GIVEN an old history, of which only few frames were kept, THEN a later one says what a step between has held."""
    run = Run()
    run.adam(96 * MIB, state=192 * MIB, steps=1)
    told = {"last_step_peak_bytes": 552 * MIB, "last_step_peak_exact": False, "last_step_ns": SECOND // 20}
    run.frame(408 * MIB, step=3, step_since_ns=run.now_ns, last_step_peak_step=2, **told)
    assert run.session.steps.highest("cuda:0") is None  # it may have ended before anybody looked
    run.frame(408 * MIB, step=60, step_since_ns=run.now_ns, last_step_peak_step=17, **told)
    run.frame(408 * MIB, step=90, step_since_ns=run.now_ns, last_step_peak_step=17, **told)
    run.step = 91
    run.frame(408 * MIB, allocated_peak_bytes=658 * MIB, step_since_ns=run.now_ns, last_step_peak_step=17, **told)

    steady = run.session.steps.steady("cuda:0")
    assert steady is not None
    assert (steady.step, steady.bytes_held, steady.exact) == (17, 552 * MIB, False)
    view = build_view(run.session, "cuda:0", run.now_ns)
    assert "peak allocated 658.0 MiB predicted" in view.forecast[0]


def test_a_step_that_began_before_the_state_is_not_steady() -> None:
    """GIVEN the state came while a step between two frames ran, THEN its peak is no whole step's with state."""
    run = Run()
    run.frame(216 * MIB, step_since_ns=run.now_ns)
    begun = run.now_ns
    run.session.steps.optimizer_state_since(begun + 1)
    run.frame(408 * MIB, step=9, step_since_ns=begun, last_step_peak_step=2, last_step_peak_bytes=504 * MIB)

    assert run.session.steps.steady("cuda:0") is None
    highest = run.session.steps.highest("cuda:0")
    assert highest is not None
    assert highest.step == 2
