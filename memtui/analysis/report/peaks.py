"""The peak of a representative step, the peaks of all phases, and which passes and shapes were exercised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from memtui.analysis import units
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.recorded_words import check_line, instant_words
from memtui.analysis.shapes.outlook import shape_lines
from memtui.analysis.text import clean, phase_words
from memtui.session.session import Session
from memtui.session.steps import StepPeak, step_number
from memtui.wire.frames import BackwardGraph

from .facts import Row, Section, bound, cell
from .seen import Counted
from .stages import came_late

EXACTLY = "memtui run --exact-peaks takes every step's exactly"
RECORD = "key d of memtui run records one"
_COLUMNS = (("allocated_peak_bytes", "peak"),)
#: What is done to a weight before the first operation: views of it, and copies in another dtype.
_OF_WEIGHTS = frozenset({"TBackward0", "TransposeBackward0", "PermuteBackward0", "ViewBackward0", "ToCopyBackward0"})
#: In the order of a step.
_PHASES = ("startup", "forward", "backward", "optimizer", "between", "compilation")
_BESIDES = {
    "evaluation": "its peak is in no figure here; run one, a forward under torch.no_grad()",
    "checkpoint": "one that takes less than 0.1 s can be missed; save and load one",
}


def peak_section(
    session: Session, device: str, timeline: Optional[StepTimeline], counted: Optional[Counted]
) -> Section:
    """A recorded step, the highest step, the counter of the whole run, and each phase."""
    rows = (
        _recorded(timeline, device),
        *_highest(session, device, counted),
        _counted(session, device, counted),
        *_by_phase(session, device),
    )
    return Section("step_peak", "Peak", rows, _COLUMNS)


def peak_line(session: Session, device: str, counted: Optional[Counted]) -> str:
    """The highest there was, and where; empty where nothing tells."""
    found = session.steps.highest(device)
    if counted is not None and (found is None or counted.bytes_held > found.bytes_held):
        return f"peak allocated: {units.size(counted.bytes_held)}, {_when(session, device, counted)}"
    if found is None:
        return ""
    place = f"{phase_words(found.phase, after_in=True)}, " if found.phase else ""
    return f"peak allocated: {'' if found.exact else '≥ '}{units.size(found.bytes_held)}, {place}step {found.step:,}"


def _recorded(timeline: Optional[StepTimeline], device: str) -> Row:
    if timeline is None:
        figure = cell("allocated_peak_bytes", None)
        text = "steps are recorded of a GPU only" if device == "host" else f"no step was recorded: {RECORD}"
        return Row("recorded_step", "recorded step", (figure,), text)
    lost = timeline.recorded.lost_events
    figure = cell("allocated_peak_bytes", timeline.totals[timeline.peak], bound(not lost))
    level, checked = check_line(timeline)
    text = instant_words(timeline, timeline.peak)
    if level != "unknown":
        text += f"; {checked.partition(' · ')[0]}"
    return Row("recorded_step", "recorded step", (figure,), text)


def _highest(session: Session, device: str, counted: Optional[Counted]) -> Iterator[Row]:
    """The highest step; and the highest of those that began with optimizer state, where that is another."""
    highest, steady = session.steps.highest(device), session.steps.steady(device)
    if highest is None:
        text = "no whole step was watched"
        yield Row("highest_step", "highest step", (cell("allocated_peak_bytes", None),), text)
        return
    row = _step("highest_step", "highest step", highest)
    above = counted is not None and counted.bytes_held > highest.bytes_held
    yield replace(row, text=f"{row.text}; not every step's is known") if above and highest.exact else row
    if steady is not None and steady != highest:
        yield _step("steady_step", "later steps", steady)


def _step(key: str, label: str, found: StepPeak) -> Row:
    where = f"{phase_words(found.phase, after_in=True)}, " if found.phase else ""
    text = f"{where}step {found.step:,}" + ("" if found.exact else f"; {EXACTLY}")
    return Row(key, label, (cell("allocated_peak_bytes", found.bytes_held, bound(found.exact)),), text)


def _counted(session: Session, device: str, counted: Optional[Counted]) -> Row:
    frame = session.device_frame(device)
    value = None if frame is None else frame.allocated_peak_bytes
    if device == "host":
        text = "the most that was read: the C library counts no peak"
        return Row("run", "whole run", (cell("allocated_peak_bytes", value, "lower_bound"),), text)
    if counted is None:
        return Row("run", "whole run", (cell("allocated_peak_bytes", value),), "" if value is not None else "not told")
    if counted.resets:
        times = "once" if counted.resets == 1 else f"{counted.resets:,} times"
        since = f"PyTorch's counter at its highest; the program has set it back {times}"
    else:
        since = f"PyTorch's counter since the start{', or a reset before' if came_late(session) else ''}"
    figure = cell("allocated_peak_bytes", counted.bytes_held, bound(not counted.resets))
    return Row("run", "whole run", (figure,), f"{since}; {_when(session, device, counted)}")


def _when(session: Session, device: str, counted: Counted) -> str:
    """When the counter came there: "in backward, step 4", "between the beginnings of steps 4 and 7"."""
    found = session.steps.highest(device)
    if found is not None and found.bytes_held == counted.bytes_held and found.phase:
        return f"{phase_words(found.phase, after_in=True)}, step {found.step:,}"
    if counted.first is None or counted.last is None:
        return "before it was first read"
    peaks = session.phase_peaks(device)
    phase = next((phase for phase, peak in peaks.items() if peak.bytes_held == counted.bytes_held), "")
    where = f"{phase_words(phase, after_in=True)}, " if phase else ""
    first, last = step_number(counted.first), step_number(counted.last)
    return f"{where}step {first:,}" if first == last else f"{where}within steps {first:,} to {last:,}"


def _by_phase(session: Session, device: str) -> Iterator[Row]:
    peaks = session.phase_peaks(device)
    for phase in _PHASES:
        peak = peaks.get(phase)
        if peak is None or (phase == "startup" and came_late(session)):
            continue
        figure = cell("allocated_peak_bytes", peak.bytes_held, bound(peak.exact))
        step = step_number(peak.step)
        text = "" if phase == "startup" else f"before step {step:,}" if phase == "between" else f"step {step:,}"
        yield Row(phase, f"  {phase_words(phase, after_in=True)}", (figure,), text)


def passes_section(session: Session, device: str) -> Section:
    """Evaluation and checkpoints, and the sizes of batches."""
    rows = [_besides(session, device, phase) for phase in _BESIDES]
    return Section("exercised", "Exercised or not", (*rows, *_shapes(session, device)), _COLUMNS)


def _besides(session: Session, device: str, phase: str) -> Row:
    peak = session.phase_peaks(device).get(phase)
    if peak is None:
        text = f"not seen: {_BESIDES[phase]}"
        return Row(phase, phase, (cell("allocated_peak_bytes", None),), text)
    figure = cell("allocated_peak_bytes", peak.bytes_held, bound(peak.exact))
    return Row(phase, phase, (figure,), f"seen, highest in step {step_number(peak.step):,}")


# Shapes


def _shapes(session: Session, device: str) -> Iterator[Row]:
    yield _sizes(session, device)
    made = first_made(session, device)
    if made:
        yield Row("first_made", "  in step 1", (), made)
    for number, line in enumerate(shape_lines(session.shapes(device)), start=1):
        yield Row(f"other_batches_{number}", "other batches", (), line)


def first_made(session: Session, device: str) -> str:
    """What the first operation of the first forward made, which has the batch in front: "Addmm made 2,048 x 4,096".

    By the first backward pass's graph; empty where that was not told, or began on another device.
    """
    graph = session.graph
    try:
        return "" if graph is None or came_late(session) else _first_made(graph, device)
    except (IndexError, ValueError):  # a log's, that does not fit together
        return ""


def _first_made(graph: BackwardGraph, device: str) -> str:
    forward = [node for node in graph.nodes if node[1] >= 0 and graph.ops[node[0]] not in _OF_WEIGHTS]
    first = min(forward, key=lambda node: node[1], default=None)
    if first is None or first[2] < 1 or first[3] < 0:
        return ""
    place, _, *sizes = graph.shapes[first[3]]
    if not sizes or graph.devices[place] not in (device, "cpu" if device == "host" else device):
        return ""
    name = clean(graph.ops[first[0]].partition("Backward")[0], 40)
    return f"its first operation, {name}, made {' x '.join(f'{size:,}' for size in sizes)}"


def _sizes(session: Session, device: str) -> Row:
    """The sizes of batches that were seen, as backward began."""
    seen = _inputs_by_step(session, device)
    if not seen:
        others = [each.device for each in session.devices if each.device != device]
        elsewhere = [other for other in others if _inputs_by_step(session, other)]
        why = f"none on this device, but on {elsewhere[0]}" if elsewhere else "not told apart here"
        return Row("input", "batches", (), f"{units.UNKNOWN} {why}")
    sizes = sorted(set(seen.values()))
    steps = "1 step" if len(seen) == 1 else f"{len(seen):,} steps"
    text = f"inputs of {units.size(sizes[0])}"
    if len(sizes) > 1:
        text += f" to {units.size(sizes[-1])}, {len(sizes):,} sizes"
    text += f" in {steps} looked at; "
    text += "no other size was seen: run the largest" if len(sizes) == 1 else "run the largest that will come"
    least, most = cell("least_inputs_bytes", sizes[0]), cell("most_inputs_bytes", sizes[-1])
    return Row("input", "batches", (least, most, cell("sizes", len(sizes), unit="count")), text)


def _inputs_by_step(session: Session, device: str) -> dict[int, int]:
    """Bytes of input as a step's backward began, by how many steps were completed: of those that tell."""
    seen: dict[int, int] = {}
    # What was there when the agent came is not known to be input.
    first = 1 if came_late(session) else 0
    for look, _ in session.looks(device):
        if look.phase == "backward" and look.step >= first and look.categories.get("inputs", 0) > 0:
            seen.setdefault(look.step, look.categories["inputs"])
    for recorded in session.recorded(device):
        timeline = StepTimeline(recorded)
        begins = [mark.event for mark in recorded.marks if mark.phase == "backward"]
        if begins:
            held = timeline.composition(min(begins[0], timeline.last))[timeline.categories.index("inputs")]
            if held > 0:
                seen.setdefault(recorded.step, held)
    return seen
