"""What happened, in one line each."""

from __future__ import annotations

import time
from typing import Callable, Optional

from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import Event, Model

from . import units
from .errors import SCORED, error_share, error_words
from .text import clean, phase_words, place_words
from .view import Answer, EventLine, Level

#: What an event of a verdict that turned is called, and its answers from good to bad, by the number it gives them.
TURNED = "verdict_turned"
ANSWERS: tuple[Answer, ...] = ("fits", "may not fit", "does not fit")

_LEVELS: dict[str, Level] = {"oom": "bad", "agent_error": "bad", "alloc_retry": "warning", "record_refused": "warning"}
_LINES_SHOWN = 200


def event_lines(session: Session, device: str, limit: int = _LINES_SHOWN) -> tuple[EventLine, ...]:
    """The newest events of `device` and of the process, newest first."""
    offset = session.hello.wall_offset_ns if session.hello is not None else 0
    chosen: list[EventLine] = []
    peaks: list[Event] = []  # new peaks one after the other, the newest first: a growing run has one a step
    for event in reversed(session.events):
        if event.device not in (None, device):
            continue
        if event.name == "new_peak":
            peaks.append(event)
            continue
        if peaks:
            chosen.append(_peaks_line(peaks, offset))
            peaks = []
        if len(chosen) >= limit:
            break
        level = _level(event)
        chosen.append(EventLine(_clock(event.time_ns + offset), level, event_text(event, session.model), event.time_ns))
    if peaks:
        chosen.append(_peaks_line(peaks, offset))
    return tuple(chosen[:limit])


def _level(event: Event) -> Level:
    if event.name == TURNED:
        levels: tuple[Level, ...] = ("good", "warning", "bad")
        return levels[min(max(event.figures.get("answer", 0), 0), 2)]
    return _LEVELS.get(event.name, "good")


def _peaks_line(peaks: list[Event], offset_ns: int) -> EventLine:
    newest, oldest = peaks[0], peaks[-1]
    text = event_text(newest)
    if len(peaks) > 1:
        text += f" ({len(peaks):,} since {_clock(oldest.time_ns + offset_ns)})"
    return EventLine(_clock(newest.time_ns + offset_ns), "good", text, newest.time_ns)


def event_text(event: Event, model: Optional[Model] = None) -> str:
    """One event in words; the agent's own where this version does not know it."""
    describe = _TEXTS.get(event.name)
    text = describe(event, model) if describe is not None else None
    return text or clean(event.text or event.name.replace("_", " "), 300)


def latest_oom(session: Session, device: str) -> Optional[Event]:
    """The newest out-of-memory event on `device`."""
    return latest_of("oom", session, device)


def latest_of(name: str, session: Session, device: str) -> Optional[Event]:
    """The newest event of this name on `device`."""
    return next((event for event in reversed(session.events_of(name)) if event.device in (None, device)), None)


def _clock(wall_ns: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(wall_ns / 1e9))


def _oom(event: Event, model: Optional[Model]) -> Optional[str]:
    requested = _first(event, "asked_bytes")
    if requested is None:
        return None
    parts = [f"out of memory {place_words(event.phase, event.step)}: asked for {units.size(requested)}"]
    free = _first(event, "device_free_bytes")
    allocated = _first(event, "allocated_bytes")
    if free is not None:
        parts.append(f"driver free {units.size(free)}")
    if allocated is not None:
        parts.append(f"live {units.size(allocated)}")
    return " · ".join(parts)


def _new_peak(event: Event, model: Optional[Model]) -> Optional[str]:
    peak = _first(event, "allocated_peak_bytes")
    return None if peak is None else f"new peak allocated {units.size(peak)}, {phase_words(event.phase)}"


def _state(event: Event, model: Optional[Model]) -> Optional[str]:
    grown = _first(event, "state_bytes")
    if grown is None:
        return None
    parameters = _first(event, "parameter_bytes")
    if parameters is None and model is not None and event.device is not None:
        parameters = sum(optimizer.trainable_bytes.get(event.device, 0) for optimizer in model.optimizers)
    factor = f", {units.times(grown, parameters)} parameters" if parameters else ""
    return f"optimizer state appeared: +{units.size(grown)}{factor}"


def _retry(event: Event, model: Optional[Model]) -> Optional[str]:
    count = _first(event, "num_alloc_retries")
    total = "" if count is None else f" ({count:,} so far)"
    return f"allocation retried after the cache was given back{total}, {phase_words(event.phase)}"


def _discovery(event: Event, model: Optional[Model]) -> Optional[str]:
    if model is None:
        return None
    objects, pause = _first(event, "objects"), _first(event, "pause_ns")
    if objects and pause is not None and _first(event, "new") == 0:
        return f"searched {objects:,} objects in {units.moment(pause // 1000)}, found nothing more"
    roots = clean(", ".join(model.roots) or "no model", 80)
    optimizers = clean(", ".join(optimizer.name for optimizer in model.optimizers) or "no optimizer", 80)
    text = f"found {roots} with {model.parameters:,} parameters, {optimizers}"
    if objects is None or pause is None:
        return text
    if not objects:
        return f"{text} · optimizers searched in {units.moment(pause // 1000)}"
    searched = f"{objects:,} objects" if _first(event, "complete") != 0 else f"{objects:,} objects of too many"
    return f"{text} · searched {searched} in {units.moment(pause // 1000)}"


def _recorded(event: Event, model: Optional[Model]) -> Optional[str]:
    peak, count, cost = (_first(event, name) for name in ("peak_bytes", "events", "cost_ns"))
    if peak is None:
        return None
    parts = [f"step {step_number(event.step):,} recorded: peak allocated {units.size(peak)}"]
    if count is not None:
        parts.append(f"{count:,} events")
    if cost is not None:
        parts.append(f"cost {units.moment(cost // 1000)}")
    return " · ".join(parts)


def _refused(event: Event, model: Optional[Model]) -> Optional[str]:
    return "no step recorded: " + clean(event.text or "the agent gave no reason", 300)


def _scored(event: Event, model: Optional[Model]) -> Optional[str]:
    predicted, actual, error = (
        *(_first(event, name) for name in ("predicted_bytes", "actual_bytes")),
        error_share(event),
    )
    if predicted is None or actual is None or error is None:
        return None
    what, _, when = clean(event.text, 100).partition(", ")
    exact = _first(event, "actual_exact") != 0
    parts = (
        f"forecast {units.size(predicted)}",
        f"actual {'' if exact else '≥ '}{units.size(actual)}",
        error_words(error, exact=exact),
    )
    score = f"{what}: {', '.join(part for part in parts if part)}"
    return f"{score}: {when}" if when else score


def _turned(event: Event, model: Optional[Model]) -> Optional[str]:
    before = _first(event, "before")
    if not event.text or before is None or not 0 <= before < len(ANSWERS):
        return None
    return f"{clean(event.text, 300)} (before: {ANSWERS[before]})"


def _built_on_host(event: Event, model: Optional[Model]) -> Optional[str]:
    built = _first(event, "parameter_bytes")
    return None if built is None else f"{units.size(built)} of parameters built on the host, without initial values"


def _input(event: Event, model: Optional[Model]) -> Optional[str]:
    return f"the model is called with {clean(event.text, 60) or 'inputs that are not counted'}"


_TEXTS: dict[str, Callable[[Event, Optional[Model]], Optional[str]]] = {
    "oom": _oom,
    "new_peak": _new_peak,
    "discovery": _discovery,
    "optimizer_state_appeared": _state,
    "alloc_retry": _retry,
    "recorded": _recorded,
    "host_parameters": _built_on_host,
    "forward_input": _input,
    "record_refused": _refused,
    SCORED: _scored,
    TURNED: _turned,
}


def _first(event: Event, *names: str) -> Optional[int]:
    return next((event.figures[name] for name in names if name in event.figures), None)
