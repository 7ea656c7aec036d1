"""The peak that is still to come: persistent state that will appear, and the highest step or other pass seen.

A first, honest forecast. It knows nothing of longer batches, nor of checkpoints and validation that were never seen;
the lines say what it rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional

from memtui.session.firststep import FirstStep
from memtui.session.session import Session
from memtui.session.steps import StepPeak, step_number
from memtui.wire.frames import Optimizer

from . import units
from .errors import Interval, Stage, error_words, interval_of
from .firststep import backward_to_come, before_optimizer, kept_bytes, settled_bytes, slack_bytes
from .ladder import Ladder
from .optimizers import missing_state_bytes, temporary_bytes
from .phasepeaks import highest_besides
from .text import clean, phase_words
from .view import Kind


@dataclass(frozen=True)
class Forecast:
    """The predicted peak of live tensors, and what the device needs for it. Bytes; None is unknown.

    `device_bytes` adds to it everything on the device that is not this allocator's: context and libraries, other
    processes, what the driver keeps; on the host only what this process has beside it. `headroom_bytes` is what that
    leaves of the device, or of the memory that the process can have; where a cap that the process has set itself leaves
    less, it is what that leaves, and `allowed_bytes` is the cap.
    """

    allocated_bytes: Optional[int] = None
    kind: Kind = "unknown"
    device_bytes: Optional[int] = None
    headroom_bytes: Optional[int] = None
    basis: str = ""
    place: str = ""  # "in the first optimizer step": where it is, as far as that is known before it is reached
    first_step_bytes: Optional[int] = None  # the first step's own peak, predicted before its optimizer ran
    first_step_actual: Optional[StepPeak] = None
    #: Optimizer classes whose state cannot be told before it is there, and why where that is known.
    unpredictable: dict[str, str] = field(default_factory=dict)
    stage: Optional[Stage] = None  # of what is predicted; None of a lower bound
    interval: Optional[Interval] = None
    allowed_bytes: Optional[int] = None
    kept_bytes: Optional[int] = (
        None  # the peak if gradients stay from one pass to the next, where that is not known yet
    )

    @property
    def by_interval_bytes(self) -> int:
        """How much more than predicted may be needed, by the interval alone."""
        return 0 if self.interval is None else round(self.interval.above * (self.allocated_bytes or 0))

    @property
    def above_bytes(self) -> int:
        """The same, also for gradients that may stay."""
        return max(self.by_interval_bytes, (self.kept_bytes or 0) - (self.allocated_bytes or 0))

    @property
    def below_bytes(self) -> int:
        """How much less."""
        return 0 if self.interval is None else round(self.interval.below * (self.allocated_bytes or 0))


@dataclass(frozen=True)
class _State:
    """Optimizer state that is still to appear on one device."""

    missing_bytes: int
    temporaries_bytes: int
    unpredictable: dict[str, str]
    names: tuple[str, ...]
    at_most: bool  # values decide how much it is


def build_forecast(session: Session, device: str, ladder: Ladder) -> Forecast:
    """The forecast for `device`."""
    told = session.told_forecasts.get(device)
    if told is not None:
        return Forecast(told.allocated_bytes, "predicted", told.device_bytes, told.headroom_bytes, told.source)
    state = _still_to_come(session, device)
    predicted = _predicted(session, device, state)
    first, actual = _first_step(session, device)
    device_bytes = headroom = None
    # Everything on the device that is not the allocator's stays as it is; free blocks of the allocator are no part of
    # the need, for before torch gives up it releases every whole free segment and tries again. So a reserved figure
    # near the total says nothing by itself. What it cannot release are holes pinned in segments: they are judged in
    # the verdict, not added here, since at the peak they are partly in use.
    outside, reach = beside_allocator_bytes(ladder), ladder.reach_bytes
    if predicted.allocated_bytes is not None and outside is not None and reach is not None:
        device_bytes = predicted.allocated_bytes + outside
        headroom = reach - device_bytes
    allowed = None
    if predicted.allocated_bytes is not None and ladder.allowed_bytes is not None:
        left = ladder.allowed_bytes - predicted.allocated_bytes
        if headroom is None or left < headroom:
            headroom, allowed = left, ladder.allowed_bytes
    room = allowed if allowed is not None or outside is None or reach is None else reach - outside
    place = predicted.place
    if first is not None and actual is None and room is not None and first > room:
        place = "in the first optimizer step"
    return Forecast(
        predicted.allocated_bytes,
        predicted.kind,
        device_bytes,
        headroom,
        predicted.basis,
        place,
        first,
        actual,
        state.unpredictable,
        predicted.stage if predicted.kind == "predicted" else None,
        interval_of(session, device, predicted.stage) if predicted.kind == "predicted" else None,
        allowed,
        predicted.kept_bytes,
    )


def beside_allocator_bytes(ladder: Ladder) -> Optional[int]:
    """What is needed beside the allocator's tensors: by all on a device, on a host by this process alone."""
    if ladder.is_host:
        process, allocated = ladder.process_bytes, ladder.allocated_bytes
        return None if process is None or allocated is None else process - allocated
    if ladder.total_bytes is None or ladder.free_bytes is None:
        return None
    return ladder.total_bytes - ladder.free_bytes - (ladder.reserved_bytes or 0)


def forecast_lines(forecast: Forecast, ladder: Ladder, *, over: bool = False) -> tuple[str, ...]:
    """The forecast in words, each line one fact; once the program is `over`, as what was said of it."""
    lines = []
    if forecast.allocated_bytes is None:
        lines.append(forecast.basis)
    else:
        lines.append(_peak_line(forecast, over=over))
        if forecast.kept_bytes is not None and forecast.kept_bytes > forecast.allocated_bytes and not over:
            up_to = units.size(forecast.kept_bytes)
            lines.append(f"up to {up_to} if gradients stay from one pass to the next: accumulated, or zeroed in place")
        if forecast.allowed_bytes is not None:
            lines.append(
                f"{'it could' if over else 'this process may'} have {units.size(forecast.allowed_bytes)} "
                "(set_per_process_memory_fraction)"
            )
        if forecast.device_bytes is not None:
            lines.append(_device_line(forecast, ladder, over=over))
    actual = forecast.first_step_actual
    if forecast.first_step_bytes is not None:
        line = f"first step {units.size(forecast.first_step_bytes)} predicted before its optimizer ran"
        if actual is not None:
            bound = "" if actual.exact else "≥ "
            error = (forecast.first_step_bytes - actual.bytes_held) / max(1, actual.bytes_held)
            missed = error_words(error, exact=actual.exact)
            line += f", {bound}{units.size(actual.bytes_held)} actual" + (f" ({missed})" if missed else "")
        lines.append(line)
    for name, reason in forecast.unpredictable.items():
        why = clean(reason, 200) or "its size cannot be told from its class"
        lines.append(f"no prediction for the state of {clean(name, 60)}: {why}")
    return tuple(lines)


def _peak_line(forecast: Forecast, *, over: bool) -> str:
    size, interval = units.size(forecast.allocated_bytes), forecast.interval
    bound = "≥ " if forecast.kind == "lower_bound" else ""
    sure = "" if interval is None else f" {interval.text}"
    source = "" if interval is None else f" · {interval.source}"
    return f"peak allocated {bound}{size}{sure} {'was ' if over else ''}predicted: {forecast.basis}{source}"


def _device_line(forecast: Forecast, ladder: Ladder, *, over: bool) -> str:
    outside = (forecast.device_bytes or 0) - (forecast.allocated_bytes or 0)
    bound = "≥ " if forecast.kind == "lower_bound" else ""
    needs = f"{'needed' if over else 'needs'} {bound}{units.size(forecast.device_bytes)}"
    if ladder.is_host:
        of = f"of the {units.size(ladder.reach_bytes)} it {'could' if over else 'can'} have"
        return f"with {units.size(outside)} outside the allocator this process {needs} {of}"
    used = 0 if ladder.total_bytes is None else ladder.total_bytes - (ladder.free_bytes or 0)
    # Torch gives whole free segments back where it needs room: until then more is used than will be needed.
    cached = ", its cache given back" if used > (forecast.device_bytes or 0) and not over else ""
    total = units.size(ladder.total_bytes)
    return f"with {units.size(outside)} outside the allocator the device {needs} of {total}{cached}"


@dataclass(frozen=True)
class _Prediction:
    allocated_bytes: Optional[int]
    kind: Kind
    basis: str
    place: str = ""
    stage: Optional[Stage] = None
    kept_bytes: Optional[int] = None


def _still_to_come(session: Session, device: str) -> _State:
    optimizers: tuple[Optimizer, ...] = () if session.model is None else session.model.optimizers
    missing = temporaries = 0
    unpredictable: dict[str, str] = {}
    names: list[str] = []
    at_most = False
    for optimizer in optimizers:
        size = missing_state_bytes(session, optimizer, device)
        trial = session.trial(optimizer, device)
        if size is None:
            unpredictable[optimizer.name] = "" if trial is None else trial.reason
        elif size:
            missing += size
            names.append(optimizer.name)
            at_most = at_most or (trial is not None and trial.decided)
        temporaries = max(temporaries, temporary_bytes(session, optimizer, device))
    return _State(missing, temporaries, unpredictable, tuple(names), at_most)


def _predicted(session: Session, device: str, state: _State) -> _Prediction:
    """The higher of what steps will need, and of an evaluation or a checkpoint as high as it was seen."""
    steps = _of_steps(session, device, state)
    if steps.allocated_bytes is None:
        return steps
    seen = highest_besides(session, device, _measured_state(session, device) or 0)
    if seen is None or seen.bytes_held + state.missing_bytes <= steps.allocated_bytes:
        return steps
    kind: Kind = "predicted" if seen.exact and not state.unpredictable else "lower_bound"
    basis = f"{phase_words(seen.phase)}, step {step_number(seen.step):,}{_to_come(state)}"
    return _Prediction(seen.bytes_held + state.missing_bytes, kind, basis, stage="whole steps")


def _of_steps(session: Session, device: str, state: _State) -> _Prediction:
    frame = session.device_frame(device)
    if frame is None or frame.allocated_bytes is None:
        return _Prediction(None, "unknown", "the allocator's figures are not known")
    under_way = max(frame.allocated_bytes, frame.step_peak_bytes or 0)
    steady, highest = session.steps.steady(device), session.steps.highest(device)
    if steady is not None:
        under_way = max(under_way, _unseen(session, device, frame.allocated_peak_bytes))
        return _from_steps(steady, under_way, frame.allocated_peak_bytes, state)
    if session.steps.state_since_ns is None and highest is not None:
        # Whole steps without any state: an optimizer that keeps none, or one that has not stepped yet.
        return _from_steps(highest, under_way, frame.allocated_peak_bytes, state)
    under_way = max(under_way, 0 if highest is None else highest.bytes_held)
    first = session.first_step(device)
    if first is not None and first.allocated_bytes is not None and first.peak_bytes is not None:
        stage: Stage = "first backward" if first.backward_ended else "first forward"
        return replace(_from_first_step(session, device, first, under_way, state), stage=stage)
    if session.frame is not None and session.frame.phase == "startup":
        return _Prediction(None, "unknown", "nothing to go by before the first step")
    return _Prediction(under_way, "lower_bound", "what was seen so far; no whole step yet")


def _unseen(session: Session, device: str, counted: Optional[int]) -> int:
    """The highest since the start where it is above every step's and start-up's peak that is known; else 0."""
    highest, startup = session.steps.highest(device), session.phase_peaks(device).get("startup")
    known = max(0 if highest is None else highest.bytes_held, 0 if startup is None else startup.bytes_held)
    return counted if counted is not None and counted > known else 0


def _from_steps(highest: StepPeak, under_way: int, counted: Optional[int], state: _State) -> _Prediction:
    peak, exact = max(highest.bytes_held, under_way), highest.exact
    basis = f"highest step so far ({_where(highest)})" if peak == highest.bytes_held else "the step under way"
    if not exact and counted is not None and counted >= peak:
        # torch counts the highest itself, and exactly, but not when it was: no step can have been higher.
        peak, exact, basis = counted, True, "highest since the start"
    kind: Kind = "predicted" if (exact or peak > highest.bytes_held) and not state.unpredictable else "lower_bound"
    return _Prediction(peak + state.missing_bytes, kind, basis + _to_come(state), stage="whole steps")


def _from_first_step(session: Session, device: str, first: FirstStep, seen: int, state: _State) -> _Prediction:
    assert first.allocated_bytes is not None
    assert first.peak_bytes is not None
    if session.model is None or not session.model.optimizers:
        return _Prediction(max(first.peak_bytes, seen), "lower_bound", "the first step so far; no optimizer seen")
    measured = max(0, (_measured_state(session, device) or 0) - first.state_bytes)
    persistent = measured + state.missing_bytes
    # From the second step on, the same forward and backward stand on top of the state …
    on_top, kept = settled_bytes(session, device, first) + persistent, kept_bytes(session, device, first)
    # … and the optimizer's own step needs its temporaries on top of gradients and state.
    at_optimizer = first.allocated_bytes + persistent + state.temporaries_bytes
    whole = True
    if not first.backward_ended:
        coming = backward_to_come(session, device, first)
        if coming is not None:
            on_top = coming.later_peak_bytes + persistent
            at_optimizer = coming.end_bytes + persistent + state.temporaries_bytes
            whole, kept = not coming.computed_again, coming.kept_peak_bytes
    if state.missing_bytes:  # else it is measured, and its blocks as they are
        slack = slack_bytes(session, device, first)
        on_top, at_optimizer = on_top + slack, at_optimizer + slack
        kept = None if kept is None else kept + slack_bytes(session, device, first, gradients_stay=True)
    # Before the end of the first backward more may be to come.
    told = first.backward_ended or first.largest_activation_bytes is not None
    kind: Kind = "predicted" if told and whole and not state.unpredictable else "lower_bound"
    known = f" + {units.size(measured)} measured optimizer state" if measured else ""
    seen_so_far = "first forward and backward" if first.backward_ended else "first forward, backward to come"
    basis = f"{seen_so_far}{known}{_to_come(state)}"
    place = "in an optimizer step" if at_optimizer > on_top else "in the steps after the first"
    peak, kept = max(on_top, at_optimizer, seen), None if kept is None else kept + persistent
    return _Prediction(peak, kind, basis, place if state.missing_bytes else "", kept_bytes=kept)


def _to_come(state: _State) -> str:
    if not state.missing_bytes:
        return ""
    most = "at most " if state.at_most else ""
    return f" + {most}{units.size(state.missing_bytes)} state of {clean(', '.join(state.names), 60)} still to appear"


def _first_step(session: Session, device: str) -> tuple[Optional[int], Optional[StepPeak]]:
    """The first step's own peak as it was predicted at the start of its optimizer, and what it was."""
    told = before_optimizer(session, device)
    if told is None:
        return None, None
    return told.first_bytes, None if session.steps.first is None else session.steps.first.peak(device)


def _measured_state(session: Session, device: str) -> Optional[int]:
    if session.model is None:
        return None
    held = [optimizer.state_bytes for optimizer in session.model.optimizers if optimizer.state_bytes is not None]
    return sum(state.get(device, 0) for state in held) if held else None


def _where(peak: StepPeak) -> str:
    bound = "" if peak.exact else ", at least"
    return f"step {peak.step:,}{bound}"
