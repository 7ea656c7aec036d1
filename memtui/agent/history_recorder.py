"""Records the allocator's history of some steps, as torch itself keeps it, for a viewer that asked for it."""

from __future__ import annotations

import queue
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from ..wire.histories import HistoryNews
from .errors import TROUBLE, is_own
from .history_way import ENTRIES_A_BLOCK, Load, Way, entry_ns, way_for
from .phases import Phases
from .switch import HistorySwitch

#: Entries that are kept.
MAX_ENTRIES = 100_000
#: A step that takes this much longer than the last one is not waited for.
_PATIENCE, _LEAST_PATIENCE_NS = 20, 60_000_000_000
#: What is read later is as a backward pass begins, for which each tick waits so long; after this in any case.
_WAITED_S, _LATER_NS = 0.08, 3_000_000_000
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
    way: Way
    latest_ns: int
    notices: list[str]
    cost_ns: int


@dataclass
class _Kept:
    """A history to which nothing is added any more, and which is still to be read."""

    run: _Run
    segments: list[dict[str, Any]]
    figures: dict[str, int]
    latest_ns: int  # by then it is read, whatever the training does


@dataclass
class Taken:
    """What was recorded: torch's own snapshot, and how it came about."""

    snapshot: dict[str, Any]
    figures: dict[str, int]
    notices: tuple[str, ...]


class HistoryRecorder:
    """Waits for a step's end, records, and reads the history once. `news` and `taken` are for the agent's thread.

    What a step leaves is read in two parts. Its segments are, at its end; its events are kept until the next backward
    pass begins, and read on the agent's thread: to make Python's objects of them takes Python's lock for longer than
    all the rest, and the training's thread has given that up then.
    """

    def __init__(self, torch: Any, switch: HistorySwitch) -> None:
        self._torch, self._switch = torch, switch
        self.news: deque[HistoryNews] = deque(maxlen=64)
        self.taken: deque[Taken] = deque(maxlen=1)
        self._order: Optional[Order] = None
        self._run: Optional[_Run] = None
        self._kept: Optional[_Kept] = None
        self._seen: Optional[_Seen] = None
        #: True for each backward pass that has begun since; False where they are not to be waited for.
        self._passes: queue.SimpleQueue[bool] = queue.SimpleQueue()

    @property
    def active(self) -> bool:
        """Whether it waits for a step's end, records, or has still to read."""
        return self._order is not None or self.recording

    @property
    def recording(self) -> bool:
        """Whether torch's history is on for it."""
        return self._run is not None or self._kept is not None

    @property
    def untaken(self) -> bool:
        """Whether something was recorded that nobody has taken yet."""
        return self._kept is not None or bool(self.taken)

    # -- on the agent's thread ----------------------------------------------------------

    def ask(self, steps: int, *, stacks: bool) -> None:
        """The next steps are wanted; where that cannot be, `news` says why. To be asked while it is not active."""
        reason = "" if self._switch.on else self._switch.obstacle()
        if reason:
            self._tell("refused", reason)
            return
        self._seen = None
        self._order = Order(max(1, steps), stacks, entry_ns())
        self._tell("waiting")

    def cancel(self, reason: str) -> None:
        """Nothing is wanted any more, and the history is off at once; from any thread."""
        was_recording, was_active = self.recording, self.active
        self._order = self._run = self._kept = None
        if was_recording:
            self._passes.put(False)
            self._switch.turn_off()
        if was_active:
            self._tell("refused", reason)

    def expire(self, now_ns: int) -> None:
        """Where no step's end comes any more, the history does not stay on for ever."""
        run = self._run
        if run is not None and now_ns > run.latest_ns:
            self.cancel(_NO_END)

    def read(self, now_ns: int) -> None:
        """At each tick: reads what is kept where the training leaves Python's lock, for which it waits a little."""
        kept = self._kept
        if kept is None:
            return
        try:
            if now_ns < kept.latest_ns and not self._passes.get(timeout=_WAITED_S):
                return
            snapshot = self._switch.read() if self._kept is kept else None
        except queue.Empty:
            return
        except TROUBLE as error:
            self.cancel(f"{type(error).__name__}: {error}")
            return
        if snapshot is not None and self._kept is kept:  # else given up meanwhile
            self._end(kept.run, kept.figures, {**snapshot, "segments": kept.segments})

    def hurry(self) -> None:
        """From any thread: the agent's has something else to do now than to wait."""
        if self._kept is not None:
            self._passes.put(False)

    def forget(self) -> None:
        """In a forked child."""
        self._order = self._run = self._kept = None

    # -- on the training's thread ---------------------------------------------------------

    def backward_begins(self) -> None:
        """Until that is over the training seldom wants Python's lock."""
        if self._kept is not None:
            self._passes.put(True)

    def step_ended(self, phases: Phases, *, at_end: bool) -> None:
        """A step has ended, just now if `at_end`: begins to record, goes on, or reads what was recorded."""
        order, run = self._order, self._run
        if order is None and run is None:
            return  # what is kept is for the agent's thread
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
        self._begin(order, phases, self._seen, allocations, (now_ns - before.time_ns) // steps)

    def _begin(self, order: Order, phases: Phases, seen: _Seen, allocations: int, step_ns: int) -> None:
        begun = time.perf_counter_ns()
        reason = self._switch.obstacle()
        if reason:
            self.cancel(reason)
            return
        load = Load(allocations, self._switch.live_blocks(), step_ns, order.entry_ns)
        way, notice = way_for(load, stacks=order.stacks, later=self._switch.pauses and phases.trains)
        latest_ns = seen.time_ns + order.steps * max(_LEAST_PATIENCE_NS, _PATIENCE * step_ns)
        most = MAX_ENTRIES // ENTRIES_A_BLOCK - allocations
        self._run = run = _Run(seen, order.steps, most, way, latest_ns, [notice] if notice else [], 0)
        self._switch.turn_on(MAX_ENTRIES, stacks=way.stacks)
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
        begun, counts = time.perf_counter_ns(), self._switch.counts()
        allocations = counts.allocations - run.begun.allocations
        if done < run.steps and allocations < run.most_allocations:
            return
        if done < run.steps:
            run.notices.append(f"{done:,} of the {run.steps:,} steps: more would have more than {MAX_ENTRIES:,} events")
        figures = {
            "step": run.begun.step,
            "steps": done,
            "allocations": allocations,
            "steps_ns": now_ns - run.begun.time_ns,
            "allocated_bytes": counts.allocated_bytes,
            "reserved_bytes": counts.reserved_bytes,
        }
        segments = self._switch.pause(MAX_ENTRIES) if run.way.later else None
        snapshot = self._switch.read() if segments is None else None
        figures["cost_ns"] = run.cost_ns + time.perf_counter_ns() - begun
        if self._run is not run:  # given up meanwhile
            self._switch.turn_off()
        elif snapshot is not None:
            self._end(run, figures, snapshot)
        elif segments is not None:
            self._passes = queue.SimpleQueue()
            self._kept = _Kept(run, segments, figures, now_ns + _LATER_NS)
            self._run = None

    def _end(self, run: _Run, figures: dict[str, int], snapshot: dict[str, Any]) -> None:
        self._run = self._kept = None
        self._switch.turn_off()
        figures["events"] = sum(map(len, snapshot["device_traces"]))
        if any(len(trace) >= MAX_ENTRIES for trace in snapshot["device_traces"]):
            run.notices.append(f"a step had more than {MAX_ENTRIES:,} events: the oldest were dropped")
        if run.way.stacks:
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
