"""The peak of a representative step, the peaks of all phases, and which passes and shapes were exercised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from memtui.analysis import units
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.recorded_words import check_line, instant_words
from memtui.analysis.shapes.outlook import shape_lines
from memtui.analysis.text import clean, phase_words
from memtui.session.session import Session
from memtui.session.steps import StepPeak, step_number

from .facts import Row, Section, bound, cell

EXACTLY = "memtui run --exact-peaks takes every step's exactly"
RECORD = "key d of memtui run records one"
_COLUMNS = (("allocated_peak_bytes", "peak"),)
#: In the order of a step.
_PHASES = ("startup", "forward", "backward", "optimizer", "between", "compilation")
_BESIDES = {
    "evaluation": "run one, a forward under torch.no_grad(), under memtui run",
    "checkpoint": "save and load one under memtui run",
}


def peak_section(session: Session, device: str, timeline: Optional[StepTimeline]) -> Section:
    """A recorded step, the highest step, the counter of the whole run, and each phase."""
    rows = (
        _recorded(timeline),
        _highest(session, device),
        _counted(session, device),
        *_by_phase(session, device),
    )
    return Section("step_peak", "Peak of a step", rows, _COLUMNS)


def _recorded(timeline: Optional[StepTimeline]) -> Row:
    if timeline is None:
        figure = cell("allocated_peak_bytes", None)
        return Row("recorded_step", "recorded step", (figure,), f"no step was recorded: {RECORD}")
    lost = timeline.recorded.lost_events
    figure = cell("allocated_peak_bytes", timeline.totals[timeline.peak], bound(not lost))
    level, checked = check_line(timeline)
    text = instant_words(timeline, timeline.peak)
    if level != "unknown":
        text += f"; {checked.partition(' · ')[0]}"
    return Row("recorded_step", "recorded step", (figure,), text)


def highest_step(session: Session, device: str) -> Optional[StepPeak]:
    """The highest of the steps that began with optimizer state in memory, else the highest of all."""
    return session.steps.steady(device) or session.steps.highest(device)


def _highest(session: Session, device: str) -> Row:
    found = highest_step(session, device)
    if found is None:
        text = "no whole step was watched"
        return Row("highest_step", "highest step", (cell("allocated_peak_bytes", None),), text)
    steady = "" if session.steps.steady(device) is None else ", with the optimizer's state"
    where = f"{phase_words(found.phase, after_in=True)}, " if found.phase else ""
    text = f"{where}step {found.step:,}{steady}" + ("" if found.exact else f"; {EXACTLY}")
    return Row(
        "highest_step", "highest step", (cell("allocated_peak_bytes", found.bytes_held, bound(found.exact)),), text
    )


def _counted(session: Session, device: str) -> Row:
    frame = session.device_frame(device)
    value = None if frame is None else frame.allocated_peak_bytes
    if device == "host":
        text = "the most that was read: the C library counts no peak"
        return Row("run", "whole run", (cell("allocated_peak_bytes", value, "lower_bound"),), text)
    text = "PyTorch's counter, since the start or the program's last reset"
    return Row("run", "whole run", (cell("allocated_peak_bytes", value),), text if value is not None else "not told")


def _by_phase(session: Session, device: str) -> Iterator[Row]:
    peaks = session.phase_peaks(device)
    for phase in _PHASES:
        peak = peaks.get(phase)
        if peak is not None:
            figure = cell("allocated_peak_bytes", peak.bytes_held, bound(peak.exact))
            yield Row(phase, f"  in {phase}", (figure,), f"step {step_number(peak.step):,}")


def passes_section(session: Session, device: str) -> Section:
    """Evaluation and checkpoints, and the sizes of batches."""
    rows = [_besides(session, device, phase) for phase in _BESIDES]
    return Section("exercised", "Exercised or not", (*rows, *_shapes(session, device)), _COLUMNS)


def _besides(session: Session, device: str, phase: str) -> Row:
    peak = session.phase_peaks(device).get(phase)
    if peak is None:
        text = f"not seen, its peak is in no figure here: {_BESIDES[phase]}"
        return Row(phase, phase, (cell("allocated_peak_bytes", None),), text)
    figure = cell("allocated_peak_bytes", peak.bytes_held, bound(peak.exact))
    return Row(phase, phase, (figure,), f"seen, highest in step {step_number(peak.step):,}")


# Shapes


def _shapes(session: Session, device: str) -> Iterator[Row]:
    yield _sizes(session, device)
    for number, line in enumerate(shape_lines(session.shapes(device)), start=1):
        yield Row(f"other_batches_{number}", "other batches", (), line)


def _sizes(session: Session, device: str) -> Row:
    """The sizes of batches that were seen, as backward began."""
    seen = _inputs_by_step(session, device)
    if not seen:
        text = f"{units.UNKNOWN} not seen: {RECORD}, and key 5 lists the input's shape"
        return Row("input", "batch shapes", (), text)
    sizes = sorted(set(seen.values()))
    steps = "1 step" if len(seen) == 1 else f"{len(seen):,} steps"
    text = f"inputs of {units.size(sizes[0])}"
    if len(sizes) > 1:
        text += f" to {units.size(sizes[-1])}, {len(sizes):,} sizes"
    text += f" in {steps} looked at{_named_inputs(session, device)}"
    if len(sizes) == 1:
        text += "; no other was seen: run the largest batch that will come"
    least, most = cell("least_inputs_bytes", sizes[0]), cell("most_inputs_bytes", sizes[-1])
    return Row("input", "batch shapes", (least, most, cell("sizes", len(sizes), unit="count")), text)


def _inputs_by_step(session: Session, device: str) -> dict[int, int]:
    """Bytes of input as a step's backward began, by how many steps were completed: of those that tell."""
    seen: dict[int, int] = {}
    for look, _ in session.looks(device):
        if look.phase == "backward" and look.categories.get("inputs", 0) > 0:
            seen.setdefault(look.step, look.categories["inputs"])
    for recorded in session.recorded(device):
        timeline = StepTimeline(recorded)
        begins = [mark.event for mark in recorded.marks if mark.phase == "backward"]
        if begins:
            held = timeline.composition(min(begins[0], timeline.last))[timeline.categories.index("inputs")]
            if held > 0:
                seen.setdefault(recorded.step, held)
    return seen


def _named_inputs(session: Session, device: str) -> str:
    """Shape and dtype, where live tensors were listed."""
    listed = session.tensors(device)
    shapes = [] if listed is None else [each for each in listed.tensors if each.category == "inputs" and each.shape]
    if not shapes:
        return ""
    texts = (f"{' x '.join(map(str, each.shape))} {clean(each.dtype, 20)}" for each in shapes[:3])
    return f" ({', '.join(texts)} when tensors were listed)"
