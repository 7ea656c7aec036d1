"""What a recorded step says, in sentences."""

from __future__ import annotations

from typing import Optional

from memtui.session.session import Session
from memtui.session.steps import step_number

from . import units
from .bar import band
from .recorded import StepTimeline
from .text import clean, phase_words
from .view import Level

#: A category with less of the peak than this is not named in the answer.
_NAMED_FROM = 0.02
_NAMED_MOST = 4


def peak_line(timeline: StepTimeline, named: int = _NAMED_MOST) -> str:
    """The answer: "peak 57.3 GiB in backward, 12.3 ms into step 41: 72 % activations, 21 % optimizer state".

    At most `named` categories are named, the largest.
    """
    peak, total = timeline.peak, timeline.totals[timeline.peak]
    line = f"peak {units.size(total)} {instant_words(timeline, peak)}"
    shares = [
        (held, name)
        for name, held in sorted(zip(timeline.categories, timeline.composition(peak)), key=lambda each: -each[1])
        if total > 0 and held >= _NAMED_FROM * total
    ]
    made_of = ", ".join(f"{units.percent(held, total)} {band(name, 0).label}" for held, name in shares[:named])
    return f"{line}: {made_of}" if made_of else line


def instant_words(timeline: StepTimeline, instant: int) -> str:
    """Where an instant is: "in backward, 12.3 ms into step 41"."""
    step = f"step {step_number(timeline.recorded.step):,}"
    if not instant:
        return f"at the beginning of {step}"
    into = f"{units.moment(timeline.time_us(instant))} into {step}"
    phase = timeline.phase(instant)
    return f"{phase_words(phase, after_in=True)}, {into}" if phase else into


def check_line(timeline: StepTimeline) -> tuple[Level, str]:
    """Whether the allocator counted the same peak, how much was seen, and what it cost the training."""
    recorded = timeline.recorded
    level, checked = _checked(timeline)
    seen = f"{timeline.last:,} events in {units.moment(recorded.duration_ns // 1000)}"
    parts = [seen, f"cost {units.moment(recorded.cost_ns // 1000)}"]
    # What cannot be compared is no news: it may be cut off.
    return level, " · ".join([*parts, checked] if level == "unknown" else [checked, *parts])


def _checked(timeline: StepTimeline) -> tuple[Level, str]:
    recorded = timeline.recorded
    counted, found = recorded.counted_peak_bytes, timeline.totals[timeline.peak]
    if recorded.lost_events:
        return "warning", f"{recorded.lost_events:,} older events were lost: the peak may have been among them"
    if counted is None:
        return "unknown", "the allocator's own peak did not rise in this step: not compared"
    if counted == found:
        return "good", "exactly the allocator's own peak"
    more = units.size(abs(counted - found))
    return "warning", f"the allocator counted {units.size(counted)}, {more} {'more' if counted > found else 'less'}"


def notice_lines(timeline: StepTimeline) -> tuple[str, ...]:
    """What the agent had to say of its recording."""
    return tuple(clean(notice, 300) for notice in timeline.recorded.notices)


def arrived_line(timeline: StepTimeline) -> str:
    """What is said when a step has been recorded."""
    recorded = timeline.recorded
    peak = units.size(timeline.totals[timeline.peak])
    phase = timeline.phase(timeline.peak)
    where = f" {phase_words(phase, after_in=True)}" if phase else ""
    cost = units.moment(recorded.cost_ns // 1000)
    return f"step {step_number(recorded.step):,} is recorded: peak {peak}{where}; it cost {cost}"


def cannot_record(session: Session, *, replay: bool) -> Optional[str]:
    """Why no step can be recorded now; None where there is nothing against it."""
    if replay:
        return "this is a recording: there is no process that could record a step"
    if session.end is not None:
        return "the program has ended: there is no step left to record"
    if session.hello is None or session.connection in ("lost", "refused"):
        reason = session.connection_text or "no agent answers"
        return "no step can be recorded: " + clean(reason, 200)
    if all(device.kind in ("host", "mps") for device in session.devices):
        return "no step can be recorded: only devices with PyTorch's caching allocator keep a history"
    return None
