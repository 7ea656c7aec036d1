"""Records one whole training step with torch's own memory history, on the training's thread."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any, NamedTuple, Optional

from ..wire.frames import Event
from . import REHEARSAL
from .calls import Calls
from .errors import TROUBLE, is_own
from .history_recorder import HistoryRecorder
from .inventory import Inventory
from .looks import Looks
from .names import Names, Owners
from .phases import Phases
from .readings import Readings
from .recording import Boundary, Count, Recording
from .switch import HistorySwitch
from .untraced import compiles

#: Entries of the history that are kept: three for each block that is made and freed.
MAX_ENTRIES = 100_000
#: A program that memtui itself has started is recorded once unasked, after so many steps and where a step allocates no
#: more often than this: that step then takes some 0.1 s longer at most, and Python's collector may run within it.
AUTOMATIC_STEPS, AUTOMATIC_ALLOCATIONS = 5, 4_000
#: Its first forward is too, without call sites and only up to so many entries: they are read before its first backward.
FORWARD_ENTRIES = 12_000
#: Neither is where more blocks are live than these: each is read, made a row of and sent, which holds the program up.
UNASKED_BLOCKS = 20_000
#: Where the steps after it differ in size alone, so many more are recorded unasked; so many steps are watched for that,
#: by one reading of the counters each, and so many lie between two recorded ones. None where one took longer than this.
MORE_STEPS, WATCHED_STEPS, STEPS_BETWEEN, MOST_COST_NS = 2, 32, 3, 250_000_000
#: Steps differ in size where one asked for this part more or less than another.
_DIFFERENCE = 1 / 64
#: A step that takes this much longer than the last one is not waited for.
_PATIENCE, _LEAST_PATIENCE_NS = 20, 60_000_000_000
_NO_END = "the step did not end in many times the last one's time"


class Asked(NamedTuple):
    """What was asked for until a step began, on all devices together."""

    step: int
    allocations: int
    requested_bytes: int


class Variety:
    """After a step that was recorded unasked: whether other ones are alike but for their size, and worth recording.

    How large a step will be is not known when it begins; so the one after a step of another size is recorded.
    """

    def __init__(self) -> None:
        self._left, self._watched = MORE_STEPS, WATCHED_STEPS
        self._allocations: Optional[int] = None
        self._sizes: list[int] = []  # of the recorded steps
        self._recording = True
        self._since = 0

    @property
    def over(self) -> bool:
        """Whether nothing more is to be recorded."""
        return not self._left or not self._watched

    def due(self, allocations: int, requested_bytes: int) -> bool:
        """A step has ended that asked so often, for so much: whether the next one is to be recorded."""
        self._watched -= 1
        if self._recording:
            self._recording, self._since = False, 0
            self._allocations = allocations if self._allocations is None else self._allocations
            self._sizes.append(requested_bytes)
            return False
        self._since += 1
        if self._since < STEPS_BETWEEN or self.over or allocations != self._allocations:
            return False
        if any(abs(requested_bytes - size) <= size * _DIFFERENCE for size in self._sizes):
            return False
        self._left -= 1
        self._recording = True
        return True


class Recorder:
    """Records a step where one is wanted. `done` has what was recorded, for the agent's thread to collect.

    It shares torch's history with `history`, which a viewer asks for more of it.
    """

    def __init__(
        self, torch: Any, inventory: Inventory, readings: Readings, looks: Looks, events: deque[Event]
    ) -> None:
        self._torch, self._inventory, self._readings, self._looks = torch, inventory, readings, looks
        self._events = events
        self.wanted = False
        self.done: deque[Recording] = deque(maxlen=2)
        self.recording: Optional[Recording] = None
        self._switch = HistorySwitch(torch, readings)
        self.history = HistoryRecorder(torch, self._switch)
        self._calls: Optional[Calls] = None
        self._spoiled = ""  # why what is being recorded will not do
        self._latest_ns = 0
        tried_out = REHEARSAL in os.environ
        self._automatic = tried_out or os.environ.get("MEMTUI_DIRECT") == str(os.getpid())
        #: Steps before the one that is recorded unasked, and how many allocations one of them may have.
        self._unasked = (2, MAX_ENTRIES // 2) if tried_out else (AUTOMATIC_STEPS, AUTOMATIC_ALLOCATIONS)
        self._more = not tried_out
        self._most_blocks = MAX_ENTRIES if tried_out else UNASKED_BLOCKS
        self._variety: Optional[Variety] = None
        self._counted: Optional[Asked] = None
        #: Whether the first forward is still to come, and to be recorded; and what was recorded of it.
        self._before_first, self._in_first = self._automatic and not tried_out, False
        self.forward: Optional[Recording] = None

    # -- when ------------------------------------------------------------------------

    def ask(self, phases: Phases) -> None:
        """The next step is wanted; from the agent's thread."""
        if not self._switch.devices():
            self._refuse(phases, "no CUDA device is in use: only torch's CUDA allocator keeps a history")
        elif self.recording is None or self._in_first:
            self.wanted = True

    @property
    def asked(self) -> bool:
        """Whether a viewer wants something."""
        return self.wanted or self.history.active

    def waits(self, phases: Phases) -> bool:
        """Whether one of the next steps is to be recorded, so that each step's end has to be seen when it comes."""
        unasked = self._automatic or self._variety is not None
        return self.asked or (unasked and phases.trains and bool(self._switch.devices()))

    def due(self, phases: Phases) -> bool:
        """Whether the step that begins now is to be recorded; on the training's thread."""
        if self.history.active:
            self._counted = None
            return False
        if self.wanted or not self.waits(phases):
            self._counted = None
            return self.wanted
        before, self._counted = self._counted, Asked(phases.step, *self._switch.asked())
        if before is None or phases.step <= before.step:
            return False
        steps, allocations = phases.step - before.step, self._counted.allocations - before.allocations
        if self._variety is not None:
            return self._due_again(steps, allocations, self._counted.requested_bytes - before.requested_bytes)
        first, most = self._unasked
        if phases.step < first:
            return False
        self._automatic = False
        due = allocations <= most * steps and not self._crowded() and not self._switch.obstacle()
        if due and self._more:
            self._variety = Variety()
        return due

    def _due_again(self, steps: int, allocations: int, requested_bytes: int) -> bool:
        variety = self._variety
        if variety is None or steps != 1:
            self._variety = None
            return False
        due = variety.due(allocations, requested_bytes) and not self._crowded() and not self._switch.obstacle()
        if variety.over and not due:
            self._variety = None
        return due

    def _crowded(self) -> bool:
        """Whether more is live than is recorded unasked."""
        return self._switch.live_blocks() > self._most_blocks

    # -- on the training's thread ---------------------------------------------------------

    def start(self, phases: Phases) -> bool:
        """A step has ended and the next one is recorded; False, and an event with the reason, where it cannot be."""
        self.wanted = self._automatic = False
        begun = time.perf_counter_ns()
        try:
            reason = self._switch.obstacle() or self._begin(phases)
        except BaseException as error:
            if not isinstance(error, TROUBLE) or not is_own(error):
                self.abandon()
                raise
            reason = f"{type(error).__name__}: {error}"
        if reason or self.recording is None:
            self.abandon()
            self._refuse(phases, reason)
            return False
        self.recording.cost_ns += time.perf_counter_ns() - begun
        return True

    def _begin(self, phases: Phases) -> str:
        notices = []
        if compiles():
            notices.append("modules are not told apart where torch.compile is used")
        else:
            self._calls = Calls(self._inventory.roots.modules())
        refused = self._open(phases, self._owners())
        if self.recording is not None:
            self.recording.notices = notices
            if self._calls is not None:
                self.recording.submodules = self._calls.submodules
        return refused

    def _open(self, phases: Phases, walked: Optional[Owners] = None, *, bare: bool = False) -> str:
        """The history is switched on; `bare`: without call sites. The reason where nothing can be recorded."""
        devices = self._switch.devices()
        self._spoiled = ""
        wall_offset_ns = _wall_offset_ns()
        most = FORWARD_ENTRIES if bare else MAX_ENTRIES
        self._switch.turn_on(most, stacks=not bare)
        before = self._switch.reader.snapshot()
        if before is None:
            return "this torch's snapshots cannot be read"
        now = time.monotonic_ns()
        self._switch.watch(self._taken)
        last_ns = phases.last_step_ns or 0
        self._latest_ns = now + max(_LEAST_PATIENCE_NS, _PATIENCE * last_ns)
        self.recording = Recording(
            step=phases.step,
            wall_offset_ns=wall_offset_ns,
            max_entries=most,
            devices=devices,
            boundaries=[Boundary(now, phases.phase, self._counts(devices), walked)],
            before=before,
            workspaces=self._looks.workspaces(),
            buckets=frozenset(self._looks.buckets()),
            known={index: self._looks.known(f"cuda:{index}") for index in devices},
        )
        return ""

    def begin_forward(self, phases: Phases) -> None:
        """A forward begins; the first one of a program that memtui has started is recorded, up to its backward."""
        first, self._before_first = self._before_first, False
        if not first or self.recording is not None or self.history.active or phases.step or phases.trains:
            return
        try:
            self._in_first = not self._switch.obstacle() and not self._crowded() and not self._open(phases, bare=True)
        except BaseException as error:
            self.abandon()
            if not isinstance(error, TROUBLE) or not is_own(error):
                raise
        self._looks.own_history = self._in_first
        if not self._in_first:
            self.abandon()

    def end_forward(self, phases: Phases) -> None:
        """A backward pass begins: `forward` has what came before the first one, without the owners of its blocks."""
        self.history.backward_begins()
        recording = self.recording
        self._before_first = False
        if not self._in_first or recording is None:
            return
        self._in_first = False
        try:
            now = time.monotonic_ns()
            recording.boundaries.append(Boundary(now, phases.phase, self._counts(recording.devices)))
            if not self._spoiled and not self._crowded():
                begun = time.perf_counter_ns()
                recording.after = self._torch.cuda.memory._snapshot()
                recording.cost_ns += time.perf_counter_ns() - begun
                self.forward = recording
        except BaseException as error:
            if not isinstance(error, TROUBLE) or not is_own(error):
                raise
        finally:
            self.abandon()

    def boundary(self, phases: Phases, at_ns: int, *, noted: bool = False) -> None:
        """A boundary of the recorded step; `noted` where it is already past, so that only its time is known."""
        recording = self.recording
        if recording is None:
            return
        if at_ns > self._latest_ns:
            self._spoiled = self._spoiled or _NO_END
        if self._spoiled:
            self._give_up(phases)
            return
        if self._in_first:
            return
        begun = time.perf_counter_ns()
        boundary = Boundary(at_ns, phases.phase)
        recording.boundaries.append(boundary)
        if not noted:
            boundary.counts = self._counts(recording.devices)
            boundary.owners = self._owners()
        recording.cost_ns += time.perf_counter_ns() - begun

    def finish(self, phases: Phases, *, at_end: bool) -> None:
        """A step has ended, just now if `at_end`; if it was recorded, the history is read, once, and switched off."""
        if self._in_first:
            self.abandon()  # no backward came: it does not train like that
        elif self.recording is not None:
            self._finish(phases, self.recording)
        self.history.step_ended(phases, at_end=at_end)

    def _finish(self, phases: Phases, recording: Recording) -> None:
        begun, now = time.perf_counter_ns(), time.monotonic_ns()
        try:
            recording.boundaries.append(Boundary(now, phases.phase, self._counts(recording.devices), self._owners()))
            if not self._spoiled:
                recording.after = self._torch.cuda.memory._snapshot()
                recording.buckets |= frozenset(self._looks.buckets())  # DDP may have told of those it has made anew
        except TROUBLE as error:
            if not is_own(error):
                raise
            self._spoiled = f"{type(error).__name__}: {error}"
        finally:
            self.abandon()
        if self._spoiled:
            self._refuse(phases, self._spoiled)
            return
        recording.cost_ns += time.perf_counter_ns() - begun
        if recording.cost_ns > MOST_COST_NS:
            self._variety = None
        self.done.append(recording)

    def abandon(self) -> None:
        """Nothing is recorded any more, and everything is as it was."""
        if not self.history.recording:
            self._switch.turn_off()
        if self._calls is not None:
            self._calls.take_out()
        self._calls = self.recording = None
        self._in_first = self._looks.own_history = False

    def _give_up(self, phases: Phases) -> None:
        asked = not self._in_first
        self.abandon()
        if asked:
            self._refuse(phases, self._spoiled)

    def spoil(self, reason: str) -> None:
        """The history is switched off at once, from any thread; the training's next boundary does the rest."""
        if self.history.active:
            self.history.cancel(reason)
        elif self._switch.on:
            self._spoiled = reason
            self._switch.turn_off()

    def expire(self, now_ns: int) -> None:
        """From the agent's thread: where no boundary comes any more, the history does not stay on for ever."""
        self.history.expire(now_ns)
        if self.recording is not None and now_ns > self._latest_ns:
            self.spoil(_NO_END)

    def forget(self) -> None:
        """In a forked child: its allocator cannot be used, and is not asked for anything."""
        self._switch.forget()
        self.history.forget()
        self._variety = None
        self.abandon()

    def _taken(self) -> None:
        """The program switches a history on or off: ours goes, as if it had never been, and the program has its way."""
        try:
            self.spoil("the program began to record a memory history of its own")
        except Exception as error:  # noqa: BLE001 - the program's call is just under way
            self._spoiled = f"{type(error).__name__}: {error}"

    def _owners(self) -> Owners:
        with self._torch._C.DisableTorchFunctionSubclass(), self._inventory.reading() as readable:
            names = Names(self._torch, readable)
            names.roots(self._inventory.roots.modules())
            names.optimizers(self._inventory.optimizers())
            if self._inventory.tags:
                names.tags(self._inventory.tags.tagged())
            return names.owners()

    def _counts(self, devices: tuple[int, ...]) -> dict[int, Count]:
        counts = {}
        for index in devices:
            stats = self._torch._C._cuda_memoryStats(index)
            blocks, allocated = stats["allocation"]["all"], stats["allocated_bytes"]["all"]
            counts[index] = Count(blocks["allocated"] + blocks["freed"], allocated["current"], allocated["peak"])
        return counts

    def _refuse(self, phases: Phases, reason: str) -> None:
        now = time.monotonic_ns()
        self._variety = None
        self._events.append(Event("record_refused", now, phases.step, phases.phase, text=reason))


def _wall_offset_ns() -> int:
    """The wall clock, which torch's history has, less the monotonic one: the most certain of a few readings."""
    readings = []
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        readings.append((after - before, wall - (before + after) // 2))
    return min(readings)[1]
