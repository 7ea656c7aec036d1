"""Events, growth, fragmentation, place, and the line without the app."""

from __future__ import annotations

from memtui.analysis.build import build_view
from memtui.analysis.events import event_lines, event_text
from memtui.analysis.growth import growth_line
from memtui.analysis.headline import farewell, headline
from memtui.analysis.meaning import meaning_line
from memtui.analysis.policy import DEFAULT
from memtui.analysis.tensors import moment
from memtui.session.readings import HostReading, OtherProcess
from memtui.wire.frames import Event, Model, Tensors
from tests.support.sessions import GIB, MIB, SECOND, Run, blocks, classified


def test_events_in_words() -> None:
    """Each kind with its figures; one that this version does not know in the agent's own words, cleaned."""
    state = Event(
        "optimizer_state_appeared", 0, 1, "optimizer", None, {"state_bytes": 192 * MIB, "parameter_bytes": 96 * MIB}
    )
    assert event_text(state) == "optimizer state appeared: +192.0 MiB, 2 x parameters"
    peak = Event("new_peak", 0, 1, "backward", "cuda:0", {"allocated_peak_bytes": 504 * MIB})
    assert event_text(peak) == "new peak allocated 504.0 MiB, backward"
    saving = Event("new_peak", 0, 1, "checkpoint", "cuda:0", {"allocated_peak_bytes": 504 * MIB})
    assert event_text(saving) == "new peak allocated 504.0 MiB, checkpoint saving or loading"
    retry = Event("alloc_retry", 0, 1, "forward", "cuda:0", {"num_alloc_retries": 3})
    assert event_text(retry) == "allocation retried after the cache was given back (3 so far), forward"
    model = Model(0, ("GPT",), 1234, 1234, {}, {}, ())
    figures = {"pause_ns": 25_340_000, "objects": 300_111, "complete": 1}
    found = "found GPT with 1,234 parameters, no optimizer"
    searched = Event("discovery", 0, 1, "backward", None, figures)
    assert event_text(searched, model) == f"{found} · searched 300,111 objects in 25.3 ms"
    only = Event("discovery", 0, 1, "backward", None, {**figures, "objects": 0})
    assert event_text(only, model) == f"{found} · optimizers searched in 25.3 ms"
    partly = Event("discovery", 0, 1, "backward", None, {**figures, "complete": 0})
    assert event_text(partly, model) == f"{found} · searched 300,111 objects of too many in 25.3 ms"
    again = Event("discovery", 0, 1, "backward", None, {**figures, "new": 0})
    assert event_text(again, model) == "searched 300,111 objects in 25.3 ms, found nothing more"
    assert event_text(Event("discovery", 0, 1, "backward"), model) == found
    assert event_text(Event("agent_error", 0, 1, "", text="Oops:\x1b[2J gone")) == "Oops: gone"
    assert event_text(Event("something_new", 0, 1, "")) == "something new"
    built = Event("host_parameters", 0, 0, "", None, {"parameter_bytes": 26 * GIB, "limit_bytes": GIB})
    assert event_text(built) == "26.0 GiB of parameters built on the host, without initial values"
    called = Event("forward_input", 0, 0, "forward", None, {"tokens": 1024}, "8 x 128")
    assert event_text(called) == "the model is called with 8 x 128"
    assert event_text(Event("forward_input", 0, 0, "forward")) == "the model is called with inputs that are not counted"


def test_new_peaks_in_a_row_are_one_line() -> None:
    """A growing run has one a step: the newest, how many, and since when."""
    run = Run()
    for number in range(5):
        event = Event(
            "new_peak", number * SECOND, number, "backward", "cuda:0", {"allocated_peak_bytes": MIB << number}
        )
        run.session.apply(event, 0)
        if number == 1:
            run.session.apply(Event("alloc_retry", number * SECOND + 1, 1, "forward", "cuda:0"), 0)

    texts = [line.text for line in event_lines(run.session, "cuda:0")]

    assert len(texts) == 3
    assert texts[0].startswith("new peak allocated 16.0 MiB, backward (3 since ")
    assert texts[2].startswith("new peak allocated 2.0 MiB, backward (2 since ")
    assert len(event_lines(run.session, "cuda:0", limit=1)) == 1


def test_events_of_other_devices_are_not_shown() -> None:
    """Newest first; those without a device always."""
    run = Run()
    run.frame(MIB)
    for number, device in enumerate(("cuda:0", "cuda:1", None)):
        run.session.apply(Event("alloc_retry", number, 0, "forward", device, {"allocated_peak_bytes": number}), 0)

    lines = build_view(run.session, "cuda:0", run.now_ns).events

    assert [line.time_ns for line in lines] == [2, 0]


def looked_at(sizes: list[int]) -> Run:
    run = Run()
    run.frame(GIB)
    for size in sizes:
        look = classified(GIB, step=run.step, parameters=MIB, activations=size)
        run.end_step(GIB, GIB, classification=look)
    return run


def test_a_leak_grows() -> None:
    """Up at every look."""
    line = growth_line(looked_at([MIB * step for step in range(20)]).session, "cuda:0", None, None, DEFAULT)

    assert line.startswith("activations +11.0 MiB; looked at in steps 9 to 20")


def test_a_warm_up_does_not_grow() -> None:
    """Up and then flat (2934, 4413, 4433, 4537 MiB, then no more)."""
    sizes = [2934, 4413, 4433, *range(4440, 4448), *[4537] * 5]

    assert growth_line(looked_at(sizes).session, "cuda:0", None, None, DEFAULT).startswith("nothing grows")


def test_shapes_that_vary_do_not_grow() -> None:
    """Up and down."""
    sizes = [MIB * (size % 5) for size in range(20)]

    assert growth_line(looked_at(sizes).session, "cuda:0", None, None, DEFAULT).startswith("nothing grows")


def test_too_few_steps_say_nothing() -> None:
    """No judgement before there is something to judge."""
    assert growth_line(looked_at([1, 2, 3]).session, "cuda:0", None, None, DEFAULT) == ""


def test_fragmentation_that_is_not_counted() -> None:
    """GIVEN an allocator that counts no holes and tells of no blocks, THEN what is pinned is unknown, not nothing."""
    run = Run()
    run.frame(GIB, 2 * GIB)

    assert build_view(run.session, "cuda:0", run.now_ns).fragmentation == ("pinned – · allocated 50 % of reserved",)


def test_fragmentation_figures() -> None:
    """What is pinned, the largest free block, retries and OOMs; and what it means where it is much."""
    run = Run()
    run.frame(
        4 * GIB,
        8 * GIB,
        inactive_split_bytes=GIB,
        num_alloc_retries=2,
        num_ooms=0,
        blocks=blocks(inactive_split_bytes=GIB, num_pinned_segments=41, largest_free_block_bytes=600 * MIB),
    )

    lines = build_view(run.session, "cuda:0", run.now_ns).fragmentation

    assert lines[0] == (
        "pinned 1.0 GiB in 41 segments · largest free block 600.0 MiB · allocated 50 % of reserved · retries 2 · ooms 0"
    )
    assert "600.0 MiB needs the driver" in lines[1]


def test_the_line_without_the_app() -> None:
    """Everything that matters in one line, unknown things left out; the peak is of the last step that has one."""
    run = Run()
    run.session.apply_host(HostReading(0, True, user="me"))
    run.frame(96 * MIB)
    run.adam(96 * MIB, name="SGD")
    run.end_step(GIB, 3 * GIB, reserved=2 * GIB)
    run.driver(3 * GIB, 3 * GIB)
    run.frame(GIB, 2 * GIB, phase="forward", step_peak_bytes=GIB, step=1, last_step_ns=SECOND // 5)

    line = headline(build_view(run.session, "cuda:0", run.now_ns), 0.0)

    assert line.split(" · ")[1:] == [
        "step 2",
        "200 ms",
        "forward",
        "allocated 1.0 GiB",
        "reserved 2.0 GiB",
        "device 3.0 GiB of 24.0 GiB",
        "step peak 3.0 GiB (step 1)",
        "fits, 83 % to spare: predicted peak 4.0 GiB of 24.0",
    ]
    run.session.ended(run.now_ns, -9)
    assert farewell(build_view(run.session, "cuda:0", run.now_ns)) == (
        "killed by signal 9 · peak allocated 3.0 GiB in backward, step 1"
    )


def test_every_text_gives_a_step_the_same_number() -> None:
    """GIVEN the second step, which is higher than the first, looked at, recorded, listed and out of memory THEN all
    that is said of it, by the frames of the time and by those after it, is said of step 2.
    """
    run = Run()
    run.frame(96 * MIB)
    run.adam(96 * MIB, name="SGD")
    run.end_step(GIB, GIB)
    look = classified(2 * GIB, phase="backward", step=1, activations=GIB, parameters=GIB)
    run.frame(2 * GIB, phase="backward", step=1, classification=look)
    run.session.apply(Event("oom", run.now_ns, 1, "backward", "cuda:0", {"asked_bytes": GIB}), run.now_ns)
    under_way = build_view(run.session, "cuda:0", run.now_ns)
    assert under_way.place.startswith("step 2 ")
    assert "in backward, step 2" in under_way.verdict.text
    assert event_text(Event("recorded", 0, 1, "between", "cuda:0", {"peak_bytes": GIB})).startswith("step 2 ")
    assert moment(Tensors(0, 1, "backward", "cuda:0", 0, ())) == "as backward began, step 2"
    assert moment(Tensors(0, 1, "between", "cuda:0", 0, ())) == "before step 2's forward"

    run.end_step(2 * GIB, 2 * GIB)

    after = build_view(run.session, "cuda:0", run.now_ns)
    assert after.place.startswith("step 3 ")
    assert after.verdict.peak.endswith("step 2")
    assert "highest step so far (step 2)" in after.forecast[0]
    assert "in backward, step 2" in meaning_line(after)
    run.session.ended(run.now_ns, 0)
    assert build_view(run.session, "cuda:0", run.now_ns).place.startswith("2 steps")


def test_who_else_is_on_the_device() -> None:
    """By name, pid and bytes, the largest first; also memory that a dead process still holds."""
    run = Run()
    run.frame(GIB, 2 * GIB)
    others = [OtherProcess(7, GIB, "python"), OtherProcess(9, 2 * GIB, "(zombie)")]
    run.driver(8 * GIB, 3 * GIB, *others, utilisation_percent=97, power_milliwatts=250_400, temperature_celsius=71)

    line = build_view(run.session, "cuda:0", run.now_ns).hardware

    assert line == "busy 97 % · 250 W · 71 °C · also here: (zombie) 9 2.0 GiB, python 7 1.0 GiB"
