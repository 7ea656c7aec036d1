"""A rank's samples as a row of the overview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from memtui.analysis import units
from memtui.analysis.bar import bar_of
from memtui.analysis.ladder import Ladder
from memtui.analysis.policy import DEFAULT as SINGLE
from memtui.analysis.text import clean
from memtui.analysis.view import Bar, Figure, Kind, Level
from memtui.ranks.holding import Holding
from memtui.ranks.row import RankRow, RankState
from memtui.session.steps import step_number
from memtui.wire.frames import PHASES

from .collect import AGENTS, DeviceLook, Key, Look, Place, RankLook

#: Frames that are older than this when the target is scraped are missed, whatever is said of its state.
OLD_S = 30.0
_ENDS = {
    "ok": "finished",
    "interrupted": "interrupted",
    "exception": "ended by an exception",
    "oom": "ended: out of memory",
    "killed": "killed",
    "silent": "ended without a word: how is not known",
}
_LARGEST = 1 << 62
_NOTHING = Bar("device", Figure(None, "unknown"), ())


class Named(NamedTuple):
    """Which rank a series is of, in its run, and in which of its lives."""

    key: Key
    rank: int
    life: int = 1

    @property
    def own_name(self) -> str:
        """ "process 4242" of one that is no rank, as the live overview calls it; "" of a rank."""
        return "" if whole(self.key.rank) is not None else f"process {clean(self.key.pid, 12)}"


def row_of(named: Named, look: Look, rank: RankLook) -> RankRow:
    """The row of a rank that the server has samples of."""
    key = named.key
    info = look.info.get(key, {})
    device, held = rank.main()
    figures = held.figures
    target = look.targets.get(Place(key.job, key.instance))
    scraped_s = look.time_s if target is None else target.scraped_s
    driver = look.devices.get((key.job, key.instance, held.uuid), {}) if held.uuid else {}
    ladder = ladder_of(held, driver, host=device == "host")
    steps, headroom = _count(figures, "steps_total"), _bytes(figures, "headroom_bytes")
    predicted, capacity = _bytes(figures, "predicted_peak_device_bytes"), _bytes(figures, "capacity_bytes")
    age_ns, since_ns = _since(figures, "frame", scraped_s), _since(figures, "step_since", scraped_s)
    state, text = _state(rank, age_ns)
    total = ladder.total_bytes
    return RankRow(
        rank=named.rank,
        local_rank=whole(info.get("local_rank", "")),
        world_size=whole(info.get("world_size", "")),
        life=named.life,
        pid=whole(key.pid) or 0,
        name=named.own_name,
        host=host_of(key, info),
        device=clean(device, 40),
        uuid=clean(held.uuid, 80),
        device_name=clean(info.get("device_name", ""), 80),
        state=state,
        state_text=text,
        level=_level(headroom, capacity),
        used=_used(ladder),
        total=_figure(capacity if total is None else total),
        bar=bar_of(ladder, held.categories, _bytes(figures, "inactive_split_bytes")),
        peak=peak_of(figures),
        predicted=_figure(predicted, "predicted"),
        headroom=_figure(headroom, "predicted"),
        step=None if steps is None else step_number(steps),
        completed=steps,
        phase=rank.phase if rank.phase in PHASES else "",
        step_ns=_ns(figures.get("last_step_seconds")),
        forward_ns=_ns(figures.get("forward_seconds")),
        since_ns=since_ns,
        age_ns=age_ns,
        holding=_holding(held, ladder),
    )


def gone_row(named: Named, look: Look) -> RankRow:
    """The row of a rank whose host is not scraped any more: who it was is known, and whether it had ended."""
    key, info = named.key, look.info.get(named.key, {})
    unknown, outcome = Figure(None, "unknown"), look.outcome(key)
    device = clean(info.get("device", ""), 40)
    return RankRow(
        rank=named.rank,
        local_rank=whole(info.get("local_rank", "")),
        world_size=whole(info.get("world_size", "")),
        life=named.life,
        pid=whole(key.pid) or 0,
        name=named.own_name,
        host=host_of(key, info),
        device=device,
        uuid=clean(info.get("device_uuid", ""), 80),
        device_name=clean(info.get("device_name", ""), 80),
        state="ended" if outcome else "lost",
        state_text=end_text(outcome) if outcome else f"{clean(key.instance, 80)} is not scraped any more",
        level="unknown",
        used=unknown,
        total=unknown,
        bar=_NOTHING,
        peak=unknown,
        predicted=unknown,
        headroom=unknown,
        step=None,
        completed=None,
        phase="",
        step_ns=None,
        forward_ns=None,
        since_ns=None,
        age_ns=None,
        holding=Holding(),
    )


def ladder_of(held: DeviceLook, driver: Mapping[str, float], *, host: bool) -> Ladder:
    """The rungs that are known; those of the device are of the same scrape."""
    figures = held.figures
    reserved, allocated = _bytes(figures, "reserved_bytes"), _bytes(figures, "allocated_bytes")
    process = _bytes(figures, "process_device_bytes")
    total, free = _bytes(driver, "total_bytes"), _bytes(driver, "free_bytes")
    used, others = _bytes(driver, "used_bytes"), others_of(driver, process)
    unattributed = None
    if total is not None and free is not None:
        own = process if process is not None else reserved or 0
        unattributed = total - free - own - (others or 0)
        if process is None and unattributed < 0:
            unattributed = None  # the driver was read before the allocator took more
    return Ladder(
        total_bytes=total,
        used_bytes=used,
        free_bytes=free,
        unattributed_bytes=unattributed,
        other_process_bytes=others,
        process_bytes=process,
        non_torch_bytes=None if process is None or reserved is None else process - reserved,
        reserved_bytes=reserved,
        allocated_bytes=allocated,
        allowed_bytes=_bytes(figures, "allowed_bytes"),
        is_host=host,
        source="Prometheus",
    )


def others_of(driver: Mapping[str, float], process_bytes: Optional[int]) -> Optional[int]:
    """What other processes hold of a device: those without an agent, and those with one."""
    strangers = _bytes(driver, "other_bytes")
    if strangers is None:
        return None
    return strangers + max(0, (_bytes(driver, AGENTS) or 0) - (process_bytes or 0))


def peak_of(figures: Mapping[str, float]) -> Figure:
    """The most that was allocated: by torch's own counter, which a program may reset, and in the last minute."""
    counted = _bytes(figures, "allocated_peak_bytes")
    newest = _bytes(figures, "allocated_window_peak_bytes")
    known = [value for value in (counted, newest) if value is not None]
    if known:
        return Figure(max(known))
    return _figure(_bytes(figures, "allocated_bytes"), "lower_bound")


def host_of(key: Key, info: Mapping[str, str]) -> str:
    """The machine: as it calls itself, else the target's name without its port."""
    return clean(info.get("host") or key.instance.rpartition(":")[0] or key.instance, 80)


def end_text(outcome: str) -> str:
    """How a process ended."""
    return _ENDS.get(outcome, "ended; how is not known")


def whole(text: str) -> Optional[int]:
    """A number that a label holds; None where it holds none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _state(rank: RankLook, age_ns: Optional[int]) -> tuple[RankState, str]:
    if rank.outcome or rank.state == "ended":
        return "ended", end_text(rank.outcome)
    if rank.state == "stopped":
        return "stopped", "the process is stopped (T)"
    if rank.state == "silent" or (age_ns is not None and age_ns > OLD_S * 1e9):
        return "silent", f"no frame for {units.duration(age_ns)}"
    return "live", ""


def _level(headroom: Optional[int], capacity: Optional[int]) -> Level:
    if headroom is None or not capacity:
        return "unknown"
    if headroom < 0:
        return "bad"
    return "warning" if headroom < SINGLE.tight_share * capacity else "good"


def _used(ladder: Ladder) -> Figure:
    if ladder.used_bytes is not None:
        return Figure(ladder.used_bytes)
    own = ladder.reserved_bytes if ladder.process_bytes is None else ladder.process_bytes
    return _figure(own, "measured" if ladder.is_host else "lower_bound")


def _holding(held: DeviceLook, ladder: Ladder) -> Holding:
    cache = None
    if ladder.reserved_bytes is not None and ladder.allocated_bytes is not None:
        cache = ladder.reserved_bytes - ladder.allocated_bytes
    most = held.most
    if most is None:
        return Holding({}, cache, ladder.non_torch_bytes)
    return Holding(most, cache, ladder.non_torch_bytes, None, most.get("parameters"), looks=1)


def _bytes(figures: Mapping[str, float], name: str) -> Optional[int]:
    """A figure as a whole number; None where there is none, or one that cannot be."""
    value = figures.get(name)
    return None if value is None or not -_LARGEST < value < _LARGEST else int(value)


def _count(figures: Mapping[str, float], name: str) -> Optional[int]:
    value = _bytes(figures, name)
    return None if value is None or value < 0 else value


def _ns(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None or not 0 <= seconds < 1e9 else int(seconds * 1e9)


def _since(figures: Mapping[str, float], name: str, scraped_s: float) -> Optional[int]:
    began = figures.get(f"{name}_timestamp_seconds")
    return None if began is None else _ns(max(0.0, scraped_s - began))


def _figure(value: Optional[int], kind: Kind = "measured") -> Figure:
    return Figure(value, "unknown" if value is None else kind)
