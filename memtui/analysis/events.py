"""What happened, in one line each."""

from __future__ import annotations

import time
from typing import Callable, Optional

from memtui.session.session import Session
from memtui.wire.frames import Event, Model

from . import units
from .text import clean, phase_words
from .view import EventLine, Level

_LEVELS: dict[str, Level] = {"oom": "bad", "agent_error": "bad", "alloc_retry": "warning"}
_LINES_SHOWN = 200


def event_lines(session: Session, device: str, limit: int = _LINES_SHOWN) -> tuple[EventLine, ...]:
    """The newest events of `device` and of the process, newest first."""
    offset = session.hello.wall_offset_ns if session.hello is not None else 0
    chosen: list[EventLine] = []
    for event in reversed(session.events):
        if event.device not in (None, device):
            continue
        level = _LEVELS.get(event.name, "good")
        chosen.append(EventLine(_clock(event.time_ns + offset), level, event_text(event, session.model), event.time_ns))
        if len(chosen) == limit:
            break
    return tuple(chosen)


def event_text(event: Event, model: Optional[Model] = None) -> str:
    """One event in words; the agent's own where this version does not know it."""
    describe = _TEXTS.get(event.name)
    text = describe(event, model) if describe is not None else None
    return text or clean(event.text or event.name.replace("_", " "), 300)


def latest_oom(session: Session, device: str) -> Optional[Event]:
    """The newest out-of-memory event on `device`."""
    return next(
        (event for event in reversed(session.events) if event.name == "oom" and event.device in (None, device)), None
    )


def _clock(wall_ns: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(wall_ns / 1e9))


def _oom(event: Event, model: Optional[Model]) -> Optional[str]:
    requested = _first(event, "asked_bytes")
    if requested is None:
        return None
    where = f"{phase_words(event.phase, after_in=True)}, step {event.step:,}"
    parts = [f"out of memory {where}: asked for {units.size(requested)}"]
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
    factor = f", {grown / parameters:.1f} x parameters" if parameters else ""
    return f"optimizer state appeared: +{units.size(grown)}{factor}"


def _retry(event: Event, model: Optional[Model]) -> Optional[str]:
    count = _first(event, "num_alloc_retries")
    total = "" if count is None else f" ({count:,} so far)"
    return f"allocation retried after the cache was given back{total}, {phase_words(event.phase)}"


def _discovery(event: Event, model: Optional[Model]) -> Optional[str]:
    if model is None:
        return None
    roots = clean(", ".join(model.roots) or "no model", 80)
    optimizers = clean(", ".join(optimizer.name for optimizer in model.optimizers) or "no optimizer", 80)
    return f"found {roots} with {model.parameters:,} parameters, {optimizers}"


_TEXTS: dict[str, Callable[[Event, Optional[Model]], Optional[str]]] = {
    "oom": _oom,
    "new_peak": _new_peak,
    "discovery": _discovery,
    "optimizer_state_appeared": _state,
    "alloc_retry": _retry,
}


def _first(event: Event, *names: str) -> Optional[int]:
    return next((event.figures[name] for name in names if name in event.figures), None)
