"""Records the allocator's history of some steps, as torch itself keeps it, for a viewer that asked for it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from ..wire.histories import HistoryNews
from .errors import TROUBLE, is_own
from .phases import Phases
from .switch import HistorySwitch

#: Entries that are kept: three for each block that is made and freed.
MAX_ENTRIES = 100_000
_ENTRIES_A_BLOCK = 3
#: Of a step's time recording it may take so much; without stacks where they would take more.
SHARE = 0.15
#: What one entry costs, recorded and read, in the time that Python takes to make one like it: with stacks of 60 calls,
#: and without. Measured with torch 2.14: 4.3 and 2.4.
_WITH_STACKS, _BARE = 5.0, 2.5
_TRIED_ENTRIES = 200
#: A step that takes this much longer than the last one is not waited for.
_PATIENCE, _LEAST_PATIENCE_NS = 20, 60_000_000_000
_NO_END = "a step did not end in many times the last one's time"


class Order(NamedTuple):
    """What a viewer wants: so many steps, and stacks whatever they cost."""

    steps: int
    stacks: bool
    entry_ns: float  # what Python takes here to make an entry


class _Seen(NamedTuple):
    """A step's end."""

    step: int
    time_ns: int
    allocations: int


@dataclass
class _Run:
    """Steps that are being recorded."""

    begun: _Seen
    steps: int
    most_allocations: int  # of these, after which no further step is recorded
    stacks: bool
    latest_ns: int
    notices: list[str]
    cost_ns: int


@dataclass
class Taken:
    """What was recorded: torch's own snapshot, and how it came about."""

    snapshot: dict[str, Any]
    figures: dict[str, int]
    notices: tuple[str, ...]


class HistoryRecorder:
    """Waits for a step's end, records, and reads the history once. `news` and `taken` are for the agent's thread."""

    def __init__(self, torch: Any, switch: HistorySwitch) -> None:
        self._torch, self._switch = torch, switch
        self.news: deque[HistoryNews] = deque(maxlen=64)
        self.taken: deque[Taken] = deque(maxlen=1)
        self._order: Optional[Order] = None
        self._run: Optional[_Run] = None
        self._seen: Optional[_Seen] = None

    @property
    def active(self) -> bool:
        """Whether it waits for a step's end or records."""
        return self._order is not None or self._run is not None

    @property
    def recording(self) -> bool:
        """Whether torch's history is on for it."""
        return self._run is not None

    # -- on the agent's thread ----------------------------------------------------------

    def ask(self, steps: int, *, stacks: bool) -> None:
        """The next steps are wanted; where that cannot be, `news` says why. To be asked while it is not active."""
        reason = "" if self._switch.on else self._switch.obstacle()
        if reason:
            self._tell("refused", reason)
            return
        self._seen = None
        self._order = Order(max(1, steps), stacks, _entry_ns())
        self._tell("waiting")

    def cancel(self, reason: str) -> None:
        """Nothing is wanted any more, and the history is off at once; from any thread."""
        was_recording, was_active = self.recording, self.active
        self._order = self._run = None
        if was_recording:
            self._switch.turn_off()
        if was_active:
            self._tell("refused", reason)

    def expire(self, now_ns: int) -> None:
        """Where no step's end comes any more, the history does not stay on for ever."""
        run = self._run
        if run is not None and now_ns > run.latest_ns:
            self.cancel(_NO_END)

    def forget(self) -> None:
        """In a forked child."""
        self._order = self._run = None

    # -- on the training's thread ---------------------------------------------------------

    def step_ended(self, phases: Phases, *, at_end: bool) -> None:
        """A step has ended, just now if `at_end`: begins to record, goes on, or reads what was recorded."""
        order, run = self._order, self._run
        if order is None and run is None:
            return
        try:
            if run is not None:
                self._go_on(run, phases)
            elif order is not None and at_end:
                self._consider(order, phases)
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            self.cancel(reason)
            if not isinstance(error, TROUBLE) or not is_own(error):
                raise

    def _consider(self, order: Order, phases: Phases) -> None:
        """One step is watched first: it says how many allocations a step has, and how long it takes."""
        now_ns = time.monotonic_ns()
        before, self._seen = self._seen, _Seen(phases.step, now_ns, self._switch.asked()[0])
        if before is None or self._seen.step <= before.step or self._switch.on:
            return
        steps = self._seen.step - before.step
        allocations = (self._seen.allocations - before.allocations) // steps
        self._begin(order, self._seen, allocations, (now_ns - before.time_ns) // steps)

    def _begin(self, order: Order, seen: _Seen, allocations: int, step_ns: int) -> None:
        begun = time.perf_counter_ns()
        reason = self._switch.obstacle()
        if reason:
            self.cancel(reason)
            return
        stacks, notices = True, []
        share = allocations * _ENTRIES_A_BLOCK * order.entry_ns / max(1, step_ns)
        if share * _WITH_STACKS > SHARE and not order.stacks:
            stacks = False
            notices.append(
                f"call stacks were left out: a step of {allocations:,} allocations in {step_ns / 1e6:,.1f} ms would "
                f"take about {share * _WITH_STACKS:.0%} longer with them, about {share * _BARE:.0%} without"
            )
        latest_ns = seen.time_ns + order.steps * max(_LEAST_PATIENCE_NS, _PATIENCE * step_ns)
        most = MAX_ENTRIES // _ENTRIES_A_BLOCK - allocations
        self._run = run = _Run(seen, order.steps, most, stacks, latest_ns, notices, 0)
        self._switch.turn_on(MAX_ENTRIES, stacks=stacks)
        if self._order is not order:  # given up meanwhile
            self._run = None
            self._switch.turn_off()
            return
        self._switch.watch(self._taken_away)
        self._order = None
        self._tell("recording")
        run.cost_ns = time.perf_counter_ns() - begun

    def _go_on(self, run: _Run, phases: Phases) -> None:
        now_ns, done = time.monotonic_ns(), phases.step - run.begun.step
        if done <= 0:
            return
        allocations = self._switch.asked()[0] - run.begun.allocations
        if done < run.steps and allocations < run.most_allocations:
            return
        if done < run.steps:
            run.notices.append(f"{done:,} of the {run.steps:,} steps: more would have more than {MAX_ENTRIES:,} events")
        begun = time.perf_counter_ns()
        figures = {
            "step": run.begun.step,
            "steps": done,
            "allocations": allocations,
            "steps_ns": now_ns - run.begun.time_ns,
        }
        for name in ("allocated_bytes", "reserved_bytes"):
            read = (self._torch._C._cuda_memoryStats(index) for index in self._switch.devices())
            figures[name] = sum(int(stats[name]["all"]["current"]) for stats in read)
        snapshot = self._switch.read()
        if self._run is not run:
            return  # given up meanwhile
        self._run = None
        self._switch.turn_off()
        figures["events"] = sum(map(len, snapshot["device_traces"]))
        figures["cost_ns"] = run.cost_ns + time.perf_counter_ns() - begun
        if any(len(trace) >= MAX_ENTRIES for trace in snapshot["device_traces"]):
            run.notices.append(f"a step had more than {MAX_ENTRIES:,} events: the oldest were dropped")
        if run.stacks:
            run.notices.append("stacks are Python's, of allocations: those of frees and of C++ were not recorded")
        self.taken.append(Taken(snapshot, figures, tuple(run.notices)))

    def _taken_away(self) -> None:
        """The program switches a history on or off: ours goes, as if it had never been, and the program has its way."""
        try:
            self.cancel("the program began to record a memory history of its own")
        except Exception as error:  # noqa: BLE001 - the program's call is just under way
            self._tell("refused", f"{type(error).__name__}: {error}")

    def _tell(self, state: str, text: str = "") -> None:
        self.news.append(HistoryNews(state, text))


def _entry_ns() -> float:
    """How long Python takes on this machine to make what torch makes of an entry, on average."""
    begun = time.thread_time_ns()
    for number in range(_TRIED_ENTRIES):
        _entry(number)
    return (time.thread_time_ns() - begun) / _TRIED_ENTRIES


def _entry(number: int) -> dict[str, Any]:
    place = {"action": "alloc", "addr": number << 20, "size": 512, "stream": 0, "time_us": number << 30}
    return {**place, "compile_context": "N/A", "user_metadata": "", "frames": [number], "pool_id": (0, number)}
