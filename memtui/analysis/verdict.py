"""The answer of the top line: will it fit, and what is wrong."""

from __future__ import annotations

from typing import NamedTuple, Optional

from memtui.session.session import End, Session
from memtui.wire.frames import Event

from . import units
from .caught import caught_words
from .events import event_text, latest_of, latest_oom
from .forecast import Forecast
from .fragmentation import Holes
from .ladder import Ladder
from .leak import Leak, full_text, rate_text
from .policy import Policy
from .steady import confirmed_growth_bytes
from .text import clean, phase_words
from .view import Answer, Level, Verdict

#: Between how much is left and what that is of: what grows does not fit for long.
TO_SPARE = " to spare: "
#: Of a process whose agent said nothing of its end.
WITHOUT_A_WORD = "it went without a word, as killed processes do"
#: Of one whose agent nobody could hear.
UNHEARD = "it went while the link to its machine was down; how is not known"


class Fit(NamedTuple):
    """Whether the predicted peak fits, and that in words."""

    level: Level
    answer: Answer
    text: str


def build_verdict(
    session: Session,
    device: str,
    ladder: Ladder,
    forecast: Forecast,
    holes: Holes,
    leak: Optional[Leak],
    now_ns: int,
    policy: Policy,
) -> Verdict:
    """The verdict on `device`: how it ended, what went wrong, or whether the predicted peak fits."""
    level, text = _judge(session, device, ladder, forecast, holes, leak, now_ns, policy)
    return Verdict(level, text, peak_text(session, device))


def _judge(
    session: Session,
    device: str,
    ladder: Ladder,
    forecast: Forecast,
    holes: Holes,
    leak: Optional[Leak],
    now_ns: int,
    policy: Policy,
) -> tuple[Level, str]:
    oom = latest_oom(session, device)
    if session.end is not None:
        if oom is not None and not _succeeded(session.end):
            return "bad", _oom_text(session, device, oom).replace("out of memory", "OUT OF MEMORY", 1)
        return _ended(session.end)
    if oom is not None and now_ns - oom.time_ns < policy.recent_ns:
        # It lives on: the program caught the error.
        return "bad", _oom_text(session, device, oom) + "; the program goes on"
    if session.device_frame(device) is None:
        return _without_agent(ladder)
    level, _, text = fit(ladder, forecast, holes, policy)
    growing = _growing(session, device, forecast, leak, policy)
    if growing and level != "bad":
        level, text = "warning", f"{growing} · {text.partition(TO_SPARE)[2] or text}"
    past = "" if level == "bad" else _past(session, device, level, now_ns, policy)
    return ("warning", f"{text} · {past}") if past else (level, text)


def _oom_text(session: Session, device: str, oom: Event) -> str:
    """With the process's own cap, where it has one: the driver may have had enough."""
    frame, text = session.device_frame(device), event_text(oom, session.model)
    if frame is None or frame.allowed_bytes is None:
        return text
    return f"{text} · {units.size(frame.allowed_bytes)} allowed"


def _past(session: Session, device: str, level: Level, now_ns: int, policy: Policy) -> str:
    """What went wrong of late though it fits, in words."""
    caught = caught_words(session, device, policy)
    if caught or level != "good":
        return caught
    latest = latest_of("alloc_retry", session, device)
    if latest is None or now_ns - latest.time_ns >= policy.recent_ns:
        return ""
    retries = sum(
        event.name == latest.name and event.device in (None, device) and now_ns - event.time_ns < policy.recent_ns
        for event in session.events
    )
    # What is live fits: it is the cache that was in the way, and was given back for it.
    count = f"{retries} allocation retries" if retries > 1 else "an allocation retry"
    return f"{count} in the last minute: the cache fills the device now and then"


def _growing(session: Session, device: str, forecast: Forecast, leak: Optional[Leak], policy: Policy) -> str:
    """What fills the device soon, in words."""
    if leak is not None and leak.fills_soon(policy):
        return f"{rate_text(leak)}{full_text(leak)}"
    grown, headroom = confirmed_growth_bytes(session, device), forecast.headroom_bytes
    if not grown or headroom is None or headroom >= policy.growth_steps * grown:
        return ""
    return f"grows {units.size(grown)} a step: full in about {max(0, headroom) // grown:,} steps"


def fit(ladder: Ladder, forecast: Forecast, holes: Holes, policy: Policy) -> Fit:
    """Whether the predicted peak fits into the device, into what the process can have of it, or under its own cap."""
    bound = "≥ " if forecast.kind == "lower_bound" else ""
    if forecast.allocated_bytes is None:
        return Fit("unknown", "", f"will it fit? {forecast.basis}")
    # Of a device on which it is not known what else there is, a cap can only tell what does not fit.
    headroom, told = forecast.headroom_bytes, forecast.device_bytes is not None
    if forecast.allowed_bytes is not None and headroom is not None and (told or headroom < 0):
        peak = f"predicted peak allocated {bound}{of(forecast.allocated_bytes, forecast.allowed_bytes)}"
        peak += " this process may have (set_per_process_memory_fraction)"
        return _margin(headroom, forecast.allowed_bytes, peak, forecast, holes, policy)
    if ladder.total_bytes is None:
        peak = units.size(forecast.allocated_bytes)
        return Fit("unknown", "", f"predicted peak allocated {bound}{peak}; the capacity is not known")
    if forecast.device_bytes is not None and forecast.headroom_bytes is not None:
        reach = forecast.device_bytes + forecast.headroom_bytes
        peak = f"predicted peak {bound}{of(forecast.device_bytes, reach)}"
        if ladder.is_host:
            peak += " it can have"
        return _margin(forecast.headroom_bytes, reach, peak, forecast, holes, policy)
    peak = f"predicted peak allocated {bound}{of(forecast.allocated_bytes, ladder.total_bytes)}"
    if forecast.allocated_bytes > ladder.total_bytes:
        return Fit("bad", "does not fit", f"does not fit: {peak}")
    return Fit("unknown", "", f"{peak}; what else is on the device is not known")


def _margin(headroom: int, total: int, peak: str, forecast: Forecast, holes: Holes, policy: Policy) -> Fit:
    spare = f"{100 * headroom / total:.0f} %"
    if headroom < 0 or headroom < forecast.above_bytes:
        return _short(headroom, f"{spare}{TO_SPARE}{peak}", peak, forecast)
    if headroom < holes.pinned_bytes and holes.pinned_bytes > policy.holes_share * total:
        # The holes may be of no use to the request that makes the peak: then as much again is needed from the driver.
        return Fit("warning", "fits", f"fits only with {units.size(holes.pinned_bytes)} of pinned holes in use: {peak}")
    if headroom < policy.tight_share * total:
        return Fit("warning", "fits", f"tight, {spare}{TO_SPARE}{peak}")
    if forecast.kind == "lower_bound":
        return Fit("unknown", "", f"fits so far, {spare}{TO_SPARE}{peak}, {forecast.basis}")
    return Fit("good", "fits", f"fits, {spare}{TO_SPARE}{peak}")


def _short(headroom: int, to_spare: str, peak: str, forecast: Forecast) -> Fit:
    """It does not fit, or may not: the capacity is within the forecast's interval, or gradients that stay exceed it."""
    if headroom < 0:
        place = f" {forecast.place}" if forecast.place else ""
        to_spare = f"short by {units.size(-headroom)}{place}: {peak}"
    if headroom < 0 and headroom < -forecast.below_bytes:
        return Fit("bad", "does not fit", f"does not fit, {to_spare}")
    interval = forecast.interval
    doubt = "gradients may stay" if interval is None or headroom > forecast.by_interval_bytes else interval.text
    return Fit("warning", "may not fit", f"may not fit, {to_spare}, {doubt}")


def _without_agent(ladder: Ladder) -> tuple[Level, str]:
    if ladder.process_bytes is None:
        return "unknown", "no figures of this process yet"
    return "unknown", "no PyTorch figures from this process, so no forecast"


def _ended(end: End) -> tuple[Level, str]:
    if is_unheard(end):
        return "unknown", end_text(end)
    if _succeeded(end):
        return "good", "finished"
    return "bad", end_text(end)


def end_text(end: End) -> str:
    """How the process ended: its exception, its status, or that this is not known."""
    cause = clean(": ".join(part for part in (end.exception or "", end.text) if part), 300)
    if is_unheard(end):
        return f"ended: {UNHEARD}"
    if end.exit_status is None and end.silent:
        return f"ended: {WITHOUT_A_WORD}"
    if end.exit_status is None:
        return f"ended: {cause}" if cause else "ended; its exit status is not known"
    signalled = end.exit_status < 0
    status = f"killed by signal {-end.exit_status}" if signalled else f"exited with status {end.exit_status}"
    return f"{status}: {cause}" if cause else status


def is_unheard(end: End) -> bool:
    """Whether all that is known is that it is gone."""
    return end.unheard and end.exit_status is None and not end.exception


def _succeeded(end: End) -> bool:
    unfailed = end.exception is None and not end.text and not end.silent
    return end.exit_status == 0 or (end.exit_status is None and unfailed)


def peak_text(session: Session, device: str) -> str:
    """The highest allocated so far, of what and since when: a step's where it is known, else of the whole run."""
    frame = session.device_frame(device)
    if frame is None:
        return ""
    step = session.steps.highest(device)
    run = frame.allocated_peak_bytes
    if step is not None and (run is None or step.bytes_held >= run):
        place = f" {phase_words(step.phase, after_in=True)}" if step.phase else ""
        return f"peak allocated {'' if step.exact else '≥ '}{units.size(step.bytes_held)}{place}, step {step.step:,}"
    if run is not None:
        return f"peak allocated {units.size(run)} since the start"  # torch's own counter, or since its last reset
    seen: Optional[int] = frame.step_peak_bytes if frame.step_peak_bytes is not None else frame.allocated_bytes
    return f"peak allocated ≥ {units.size(seen)}" if seen is not None else ""


def of(part: int, whole: int) -> str:
    """ "66.4 GiB of 80.0": both in the whole's unit, written once."""
    unit = units.unit_of(whole)
    if part and units.unit_of(part) != unit:
        return f"{units.size(part)} of {units.size(whole)}"
    return f"{units.number(part, unit)} {unit} of {units.number(whole, unit)}"
