"""One rank as a row of the overview: how full it is, will it fit, and where it is."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Optional

from memtui.analysis.bar import build_bar
from memtui.analysis.forecast import build_forecast
from memtui.analysis.fragmentation import find_holes
from memtui.analysis.ladder import Ladder, build_ladder
from memtui.analysis.policy import DEFAULT as SINGLE
from memtui.analysis.status import frame_age_ns, state_of
from memtui.analysis.text import clean
from memtui.analysis.verdict import fit
from memtui.analysis.view import Bar, Figure, Kind, Level
from memtui.session.members import Member
from memtui.session.session import Session
from memtui.session.steps import step_number

from .holding import Holding, holding_of
from .words import ranks

#: A rank that the system has stopped is "stopped"; the others as of a process by itself.
RankState = Literal["starting", "live", "paused", "silent", "lost", "ended", "stopped"]
_RECENT_STEPS = 16
#: A process whose state the system says is T says so before its frames are missed.
_LATE_NS = 500_000_000


@dataclass(frozen=True)
class RankRow:
    """Bytes and times of one rank at one instant; None is unknown."""

    rank: int
    local_rank: Optional[int]
    world_size: Optional[int]
    life: int
    pid: int
    host: str  # as the user named it, where that is another machine; else as it calls itself
    device: str  # as torch names it in that process
    uuid: str
    device_name: str
    state: RankState
    state_text: str
    level: Level  # whether the predicted peak fits
    used: Figure  # of the device, whoever has it
    total: Figure
    bar: Bar
    peak: Figure  # allocated, the highest step's
    predicted: Figure  # of the device
    headroom: Figure
    step: Optional[int]  # the number of the one under way
    completed: Optional[int]
    phase: str
    step_ns: Optional[int]  # the median of the newest steps
    forward_ns: Optional[int]  # the median of the newest forwards: nobody waits for others in there, under DDP
    since_ns: Optional[int]  # since the step under way began
    age_ns: Optional[int]  # of the newest frame
    holding: Holding
    name: str = ""  # as its member's: "rank 3", "box/4242"

    @property
    def percent(self) -> Optional[float]:
        """How full its device is."""
        if self.used.value is None or not self.total.value:
            return None
        return 100 * self.used.value / self.total.value

    @property
    def own_name(self) -> str:
        """ "process 4242" of one that is no rank, "" of a rank."""
        return "" if self.name.startswith("rank ") else self.name

    @property
    def over(self) -> bool:
        """Whether its process is gone."""
        return self.state == "ended"


def build_row(member: Member, now_ns: int, looks: int) -> RankRow:
    """The row of a member whose rank is known."""
    session = member.session
    assert member.rank is not None
    name = session.default_device()
    ladder = build_ladder(session, name, now_ns, SINGLE)
    forecast = build_forecast(session, name, ladder)
    judged = fit(ladder, forecast, find_holes(session, name), SINGLE)
    known, reading, frame, hello = session.device(name), session.reading(name), session.frame, session.hello
    state, text = _state(session, now_ns)
    began = None if frame is None else frame.step_since_ns or frame.phase_since_ns
    of_device = reading.name if reading is not None else "" if known is None else known.name
    return RankRow(
        rank=member.rank,
        local_rank=member.local_rank,
        world_size=member.world_size,
        life=member.life,
        pid=member.pid,
        name=clean(member.name, 80),
        host=clean(member.host, 80) or ("" if hello is None else clean(hello.hostname, 80)),
        device=clean(name, 40),
        uuid="" if known is None else clean(known.uuid or "", 80),
        device_name=clean(of_device, 80),
        state=state,
        state_text=text,
        level="unknown" if forecast.allocated_bytes is None else judged.level,
        used=_used(ladder),
        total=_figure(ladder.total_bytes),
        bar=build_bar(session, name, ladder, SINGLE),
        peak=peak_of(session, name),
        predicted=_figure(forecast.device_bytes, forecast.kind),
        headroom=_figure(forecast.headroom_bytes, "predicted"),
        step=None if frame is None else step_number(frame.step),
        completed=None if frame is None else frame.step,
        phase="" if frame is None else clean(frame.phase, 20),
        step_ns=_step_ns(session),
        forward_ns=session.phases.median_ns("forward", _RECENT_STEPS),
        since_ns=None if began is None else max(0, now_ns - began),
        age_ns=frame_age_ns(session, now_ns),
        holding=holding_of(session, name, ladder, looks),
    )


def who(rows: Iterable[RankRow]) -> str:
    """ "rank 5", "ranks 1 to 7"; "process 4242" of one that is no rank, and is beside nobody."""
    kept = list(rows)
    return kept[0].own_name if len(kept) == 1 and kept[0].own_name else ranks(row.rank for row in kept)


def identity(row: RankRow) -> str:
    """Who it is: "rank 5 of 8 · local rank 5 · gpu-box · pid 4247 · cuda:5 NVIDIA A100-SXM4-80GB GPU-5f2c1d9e-…"."""
    world = "" if row.world_size is None else f" of {row.world_size}"
    life = f", life {row.life}" if row.life > 1 else ""
    local = "" if row.local_rank is None else f"local rank {row.local_rank}"
    device = " ".join(part for part in (row.device, row.device_name, row.uuid) if part)
    who = row.own_name or f"rank {row.rank}{world}{life}"
    parts = (who, local, row.host, f"pid {row.pid}", device, row.state_text)
    return " · ".join(part for part in parts if part)


def peak_of(session: Session, device: str) -> Figure:
    """The most that was allocated: the highest step's, else the allocator's own counter."""
    frame, step = session.device_frame(device), session.steps.highest(device)
    counted = None if frame is None else frame.allocated_peak_bytes
    if step is not None and (counted is None or step.bytes_held >= counted):
        return Figure(step.bytes_held, "measured" if step.exact else "lower_bound")
    if counted is not None:
        return Figure(counted)
    held = None if frame is None else frame.allocated_bytes
    return Figure(held, "unknown" if held is None else "lower_bound")


def _used(ladder: Ladder) -> Figure:
    """Of the device; without the driver's word at least what this process has of it."""
    if ladder.used_bytes is not None:
        return Figure(ladder.used_bytes)
    own = ladder.reserved_bytes if ladder.process_bytes is None else ladder.process_bytes
    return _figure(own, "lower_bound")


def _state(session: Session, now_ns: int) -> tuple[RankState, str]:
    state, text = state_of(session, now_ns, SINGLE)
    age = frame_age_ns(session, now_ns)
    if session.end is None and session.host is not None and session.host.stopped and (age or _LATE_NS) >= _LATE_NS:
        return "stopped", f"the process is stopped (T): kill -CONT {session.pid} lets it go on"
    return state, text


def _step_ns(session: Session) -> Optional[int]:
    newest = islice(reversed(session.steps.recent), _RECENT_STEPS)
    times = [step.duration_ns for step in newest if step.duration_ns is not None]
    if times:
        return int(statistics.median(times))
    return None if session.frame is None else session.frame.last_step_ns


def _figure(value: Optional[int], kind: Kind = "measured") -> Figure:
    return Figure(value, "unknown" if value is None else kind)
