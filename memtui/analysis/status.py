"""Where the program is, whether it lives, and whether anybody hears from it."""

from __future__ import annotations

from typing import Literal, Optional

from memtui.session.readings import OtherProcess
from memtui.session.session import Session
from memtui.session.steps import step_number

from . import units
from .policy import Policy
from .text import clean
from .verdict import end_text
from .view import Level

#: What is part of a step for sure.
_IN_A_STEP = ("forward", "backward", "optimizer", "")

#: Other processes named in the quiet line.
_OTHERS_NAMED = 3

State = Literal["starting", "live", "paused", "silent", "lost", "ended"]


def state_of(session: Session, now_ns: int, policy: Policy) -> tuple[State, str]:
    """The state and the reason for it, in words."""
    if session.end is not None:
        return "ended", end_text(session.end)
    age = frame_age_ns(session, now_ns)
    if session.connection == "lost" and session.hello is not None:
        return "lost", clean(session.connection_text or "the agent does not answer; the process lives", 300)
    if age is None or session.connection == "refused":
        text = session.connection_text
        if session.host is not None or session.driver is not None:
            return "live", clean(text or "no PyTorch figures from this process", 300)
        return "starting", clean(text or "waiting for the program", 300)
    if age > policy.silent_after_ns:
        phase = session.frame.phase if session.frame is not None else ""
        return (
            "silent",
            f"no frame for {units.duration(age)}: stopped, or inside a long call that holds Python ({phase})",
        )
    return "live", ""


def frame_age_ns(session: Session, now_ns: int) -> Optional[int]:
    """How old the newest frame is; never negative, None before the first."""
    return None if session.frame is None else max(0, now_ns - session.frame.time_ns)


def place_of(session: Session) -> str:
    """ "step 1,204 · 20.4 s · backward": the step under way, how long the last one took, the phase.

    The first step is said to be one: its figures are of an allocator that still fills its cache, without what the
    optimizer will keep.
    """
    frame = session.frame
    if frame is None:
        return ""
    if frame.phase == "startup" and not frame.step:
        return frame.phase
    first = not frame.step and session.steps.state_since_ns is None
    # Of a program that ended between steps, the next one is none.
    over = session.end is not None and frame.phase not in _IN_A_STEP
    if over:
        parts = [f"{frame.step:,} step" + ("s" if frame.step != 1 else "")]
    else:
        parts = [f"step {step_number(frame.step):,}" + (" (warm-up)" if first else "")]
    if frame.last_step_ns is not None:
        parts.append(units.duration(frame.last_step_ns))
    return " · ".join(parts if over else [*parts, frame.phase or "phase unknown"])


def hardware_line(session: Session, device: str, others: tuple[OtherProcess, ...] = ()) -> str:
    """Utilisation, power, temperature, and who else is on the device; on the host the processor's share."""
    known = session.device(device)
    if known is not None and known.kind == "host":
        cpu = None if session.host is None else session.host.cpu_percent
        return f"CPU {units.UNKNOWN if cpu is None else f'{cpu:.0f} %'}"
    reading = session.reading(device)
    if reading is None:
        return ""
    busy = "–" if reading.utilisation_percent is None else f"{reading.utilisation_percent} %"
    power = "–" if reading.power_milliwatts is None else f"{reading.power_milliwatts / 1000:.0f}"
    limit = "" if reading.power_limit_milliwatts is None else f" of {reading.power_limit_milliwatts / 1000:.0f}"
    heat = "–" if reading.temperature_celsius is None else f"{reading.temperature_celsius} °C"
    return " · ".join([f"busy {busy}", f"{power}{limit} W", heat, *_company(others)])


def _company(others: tuple[OtherProcess, ...]) -> list[str]:
    """The largest other processes by name, pid and bytes; a zombie's memory too."""
    largest = sorted(others, key=lambda process: process.bytes_held or 0, reverse=True)
    named = [
        f"{clean(process.name, 20) or 'process'} {process.pid or ''} {units.size(process.bytes_held)}".replace(
            "  ", " "
        )
        for process in largest[:_OTHERS_NAMED]
    ]
    if len(largest) > _OTHERS_NAMED:
        named.append(f"{len(largest) - _OTHERS_NAMED} more")
    return [f"also here: {', '.join(named)}"] if named else []


def notices_of(session: Session, device: str, notes: tuple[str, ...]) -> tuple[str, ...]:
    """What the user should know about the figures themselves."""
    lines = []
    known = session.device(device)
    if known is not None and known.untested:
        lines.append(f"{known.kind} figures are untested: the project never ran on such hardware")
    if session.connection == "refused":
        lines.append(session.connection_text)
    lines += session.hello.notices if session.hello is not None else ()
    lines += notes
    lines += session.notices.values()
    if session.frame is not None and session.frame.lost_frames:
        lines.append(f"{session.frame.lost_frames:,} frames lost: this viewer was too slow to take them")
    return tuple(dict.fromkeys(clean(line, 300) for line in lines if line))


def level_of(state: State) -> Level:
    """How alarming a state is."""
    levels: dict[State, Level] = {"live": "good", "lost": "warning", "silent": "warning"}
    return levels.get(state, "unknown")
