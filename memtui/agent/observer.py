"""What happens on the training's own thread: boundaries are noted, and within a budget counters and blocks are read."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Optional

from ..wire.frames import Event
from .census import Census
from .errors import is_own
from .graph import FirstGraph
from .inventory import Inventory
from .looks import Look, Looks
from .moments import nobody_loops
from .naps import NAP, Nap
from .notes import Notes
from .phases import Phases
from .readings import SPACING_NS, Readings
from .recorder import Recorder
from .rehearsal import Rehearsal
from .roots import WatchedHooks
from .sample import Sample
from .untraced import NOT_TRACED, Untraced, tracing_test
from .workers import Workers, is_foreign

if TYPE_CHECKING:
    from .dormant import Sentry
    from .exact import ExactPeaks, Taken

_now, _ident = time.monotonic_ns, _thread.get_ident
_gone = type(None)  # called like a weak reference


class Observer:
    """Watches one process. `wake` starts the agent's thread; samples, events and models are left for it to collect."""

    def __init__(self, torch: Any, wake: Any, exact: Optional[ExactPeaks] = None) -> None:
        self.torch = torch
        self._exact = exact
        self.rehearsal = Rehearsal()
        self.samples: deque[Sample] = deque(maxlen=4_096 if self.rehearsal.wanted else 256)
        self.events: deque[Event] = deque(maxlen=256)
        self.error: Optional[str] = None
        self.inventory = Inventory(torch, self.events)
        self.graph = FirstGraph(wanted=not self.rehearsal.wanted)  # there, what comes will be measured
        self.nap = Nap()
        self._wake = wake
        self._dead = self._unloading = False
        self._noted: deque[Any] = deque()  # what has happened and is not taken in yet
        self._handles: list[Any] = []
        self._remove_backward: Any = None
        self._untraced = Untraced(torch, self.fail, _RUN_BY_TORCH)
        self._set_eval_frame = self._untraced.set_eval_frame
        self._compiling = tracing_test(torch)
        self._with_gradients = torch.is_grad_enabled
        self._begin()

    def _begin(self) -> None:
        now = time.monotonic_ns()
        self.lock = lock = threading.Lock()  # held while devices and blocks are read, by either thread
        self.phases = Phases(now)
        self.readings = Readings(self.torch, lock, now, self._exact)
        self.notes = Notes(self._noted, self.phases, self.inventory.steps, self.readings, self.nap)
        self.looks = Looks(self.torch, self.inventory, self.readings, lock, now)
        self.recorder = Recorder(self.torch, self.inventory, self.readings, self.looks, self.events)
        self.census = Census(self.torch, self.inventory, self.readings, self.looks, now)
        self._thread: Optional[int] = None
        self._workers, self._sampling = Workers(self.inventory.steps, self._noted), True
        self._quiet = 0  # the thread whose boundaries are only noted; 0 where they are taken in at once
        self._aside_ns = 0  # no evaluation is read before, unless its step is
        self._settling = threading.Lock()  # held while notes are taken in, by either thread
        self._stepper: Any = _gone  # refers to the optimizer that stepped last
        self.awake = False  # set once the agent's thread runs

    # -- putting in place and taking away ---------------------------------

    def install(self, sentry: Sentry) -> None:
        """Takes over from the sentry: what it knows, and what it has put in place."""
        self.inventory.roots, self._noted = sentry.roots, sentry.noted
        self.inventory.tags = sentry.tags
        self.rehearsal.begin(sentry.host, self.events)
        self.notes.waiting = self._noted
        self._workers = Workers(self.inventory.steps, self._noted)
        self._handles, self._remove_backward = sentry.handles, sentry.remove_backward
        WatchedHooks.noted, WatchedHooks.with_gradients = self._forward, self._with_gradients
        self.nap = self.notes.nap = self.inventory.nap = WatchedHooks.nap = sentry.passes.nap
        self.inventory.from_start = sentry.from_start
        sentry.take_over(self.optimizer_started, self.optimizer_ended, self.backward_started)

    def unload(self) -> None:
        """Stops watching: at once nothing is noted any more, and the training's thread takes the hooks out."""
        self._dead = self._unloading = True
        self._attend()
        try:
            try:
                self.recorder.spoil("the agent goes")
            finally:
                if self._exact is not None:
                    self._exact.end()
        except Exception as error:  # both ask torch, which may be what has failed
            if not is_own(error):
                raise
            self.error = self.error or f"{type(error).__name__}: {error}"

    def take_exactly(self, exact: ExactPeaks) -> None:
        """From now on peaks are taken at each step's end; from any thread."""
        self.readings.take_from(exact)
        self._exact = exact

    def forked(self) -> None:
        """In a forked child: what belongs to the parent's thread and time is forgotten; the hooks stay."""
        self.samples.clear()
        self.events.clear()
        self._noted.clear()
        self.inventory.forget()
        self.recorder.forget()
        if self._exact is not None:
            self._exact.settled = self._exact.resets
        self.nap.rouse()
        self.nap.taken()
        self._begin()

    @property
    def dead(self) -> bool:
        """Whether nothing is watched any more: unloaded, or after an error of the agent's own."""
        return self._dead

    def take_out(self) -> None:
        """Takes the hooks out, unless that was done: from a thread that has made sure that nobody loops over them."""
        if self._unloading:
            self._take_out()

    def _leave_training(self) -> None:
        # Not from a hook of an optimizer: torch is looping over these very dictionaries, in which others may follow.
        if nobody_loops():
            self._take_out()

    def _take_out(self) -> None:
        self._unloading = False
        self.recorder.abandon()
        if WatchedHooks.noted == self._forward:  # and not another agent's by now
            WatchedHooks.noted = None
        for handle in self._handles:
            handle.remove()
        self._remove_backward()
        self.inventory.roots.clear()

    # -- what torch calls ---------------------------------------------------

    def parameter(self, module: Any) -> None:
        """A parameter is being registered on `module`."""
        if not self._dead:
            with self._untraced:
                self.inventory.roots.parameter(module)

    def child(self, parent: Any, child: Any) -> None:
        """`child` is being registered as a submodule of `parent`."""
        if not self._dead:
            with self._untraced:
                self.inventory.roots.child(parent, child)

    # What follows runs at every step, when the training has just emptied the processor's caches: each further Python
    # function then costs some 4 µs. So on most steps a boundary is only noted, here, and taken in later with others;
    # and what is short and usual is written out.

    def _forward(self, hooks: WatchedHooks) -> None:
        if self._compiling():
            return
        kind = "forward_start" if self._with_gradients() else "evaluation_start"
        if self.nap.asleep:
            self.nap.rouse()
        now, thread = _now(), _ident()
        if hooks.thread != thread and kind == "forward_start":
            self.inventory.roots.called(hooks, thread)
        if self._quiet == thread and (kind == "forward_start" or now < self._aside_ns):
            self._noted.append((kind, now, 0))
            again = None
        elif not self._dead and self._mine():
            again = self.phases.phase == "forward"
            self._boundary(kind, now)
        else:
            return
        if self.rehearsal.inputs is not None and kind == "forward_start":
            self.rehearsal.inputs.note(sys._getframe(2), self.phases.step, again=again)

    def backward_started(self) -> bool:
        """A backward pass begins; whether its end is wanted."""
        if self.inventory.reader:
            self.inventory.share()
        if self._quiet == _ident():
            self._noted.append(("backward_start", _now(), 0))
            return True
        if self._dead:
            if self._unloading:
                with self._untraced:
                    self._leave_training()
            return False
        if not self._mine():
            self.inventory.share()
            return False
        self._boundary("backward_start", _now())
        return True

    def optimizer_started(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """An optimizer's step begins."""
        if self._compiling():
            return
        if self.nap.asleep:
            return
        if self._quiet == _ident() and (self._stepper() is optimizer or self._known(optimizer)):
            self._noted.append(("optimizer_start", _now(), id(optimizer)))
        elif not self._dead and self._mine(steps=True):
            self._boundary("optimizer_start", _now(), optimizer)

    def _known(self, optimizer: Any) -> bool:
        reference = self.inventory.references.get(id(optimizer), _gone)
        if reference() is not optimizer:
            return False
        self._stepper = reference
        return True

    def optimizer_ended(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """An optimizer's step has ended, without an exception."""
        if self._compiling():
            return
        if self._quiet == _ident():
            if self._exact is None or self.phases.explicit:
                now, key, nap = _now(), id(optimizer), self.nap
                if nap.asleep and key == nap.key:
                    nap.ends.append(now)
                    nap.asleep = now < nap.until_ns
                    return
                self._noted.append(("optimizer_end", now, key))
                nap.asleep = now < nap.until_ns and key == nap.key
                if nap.asleep:
                    self._noted.append(NAP)
            else:
                self._noted.append(("optimizer_end", _now(), id(optimizer), self._take()))
        elif not self._mine():
            if not self._dead:
                self._workers.stepped(optimizer)
        elif not self._dead:
            self.nap.asleep = False
            self._boundary("optimizer_end", _now(), optimizer)

    # -- boundaries ----------------------------------------------------------

    def _boundary(self, kind: str, now: int, optimizer: Any = None) -> None:
        """A boundary that may be read: counters and blocks, as the budget allows. Raises nothing of the agent's own."""
        # As Untraced does, without its functions.
        callback = self._set_eval_frame(None) if "torch._dynamo" in sys.modules else NOT_TRACED
        try:
            if kind == "optimizer_start":
                self.inventory.meet(optimizer)
            key = id(optimizer) if optimizer is not None else 0
            if self._settling.acquire(blocking=False):
                try:
                    self._read(kind, now, key)
                finally:
                    self._settling.release()
            else:  # the agent's thread is just taking in notes: this one is for its next time
                self._noted.append((kind, now, key, self._take()))
                self.looks.missed()
        except Exception as error:  # no error of the agent's reaches the program
            if not is_own(error):
                raise
            self.fail(error)
        finally:
            if callback is not NOT_TRACED:
                self._set_eval_frame(callback)

    def _read(self, kind: str, now: int, key: int) -> None:
        inventory, phases = self.inventory, self.phases
        backward = self._settle()
        if kind == "backward_start":
            self.recorder.end_forward(phases)
            self.graph.read(phases.step, now, self.looks.workspaces)
            inventory.roots.at_backward(forward_seen=phases.forward_seen)
        if self.notes.at_start and not self._sampling:
            # Evaluation is rare, and what it allocates comes at once: it is read from its beginning.
            aside = kind == "evaluation_start" and phases.trains and now >= self._aside_ns
            # A step that a backward pass ended is known to have ended only now.
            self._plan(at_end=phases.begun_by == "backward_end", aside=aside)
        if kind == "evaluation_start":
            self._aside_ns = now + SPACING_NS
        taken = None if self._exact is None else self._take_at(kind, "backward" if backward else phases.phase)
        finished = self.notes.take_in(kind, now, key, taken)
        if finished is None:
            return
        if self.recorder.recording is not None and not finished:
            self.recorder.boundary(phases, now)
        if not self.awake:
            self._wake()
        if phases.trains and not inventory.met:
            inventory.discover(phases, now)
        looks: dict[str, Look] = {}
        ended = "backward" if backward else phases.ended
        if self._sampling and kind == "step":
            self.readings.end_step(self.phases.step)
        elif self._sampling:
            looks = self._sample(phases.begun_by, now, ended, finished)
        if self.census.asked:
            self.census.at_boundary(kind if kind == "step" else phases.begun_by, phases, now, ended, looks)
        if finished:
            self._plan(at_end=True)
        elif kind == "forward_start":
            self.recorder.begin_forward(phases)

    def _take(self) -> Optional[Taken]:
        """The peaks since they were last taken, where that was asked for. Raises nothing of the agent's own."""
        if self._exact is None:
            return None
        try:
            return self._exact.take()
        except Exception as error:
            if not is_own(error):
                raise
            self.fail(error)
            return None

    def _take_at(self, kind: str, phase: str) -> Optional[Taken]:
        """What is taken at a boundary, which ends `phase`, where a step may end with it or has ended just before."""
        phases = self.phases
        ends = (
            kind == "step"
            or self.notes.unclosed
            or (kind == "optimizer_end" and not (phases.depth or phases.explicit))
            or (kind == "forward_start" and not phases.trains)
        )
        taken = self._take() if ends else None
        if taken and self._sampling:
            self.readings.sample_taken(taken, phase)
        return taken

    def _settle(self) -> bool:
        """Takes in what was only noted; on the training's thread, which may have ended a step that is read.

        True where a backward pass has ended since the latest other boundary: what happened since happened in backward,
        for the most part.
        """
        notes = self.notes
        if not self._sampling:
            notes.take_in_all()  # nothing is read or recorded at their ends
        while notes.waiting:
            note = notes.waiting[0]
            finished = notes.take_in_oldest()
            if finished is not None and self.recorder.recording is not None:
                self.recorder.boundary(self.phases, note if type(note) is int else note[1], noted=True)
            if finished and self._sampling:
                self.readings.end_step(self.phases.step)
                self._plan(at_end=not notes.waiting)
        return notes.in_backward

    @property
    def thread(self) -> Optional[int]:
        """The thread that trains; the main one until another has."""
        return self._thread or threading.main_thread().ident

    def place(self, now: int) -> tuple[str, int]:
        """The phase and since when, from the agent's thread, which first takes in what was noted on steps not read."""
        phases, notes = self.phases, self._noted
        if (notes or self.nap.asleep) and not self._sampling and self._settling.acquire(blocking=False):
            try:
                late = self.nap.asleep  # the step that was to end the nap lasts longer than those before it
                if late:
                    self.nap.rouse()
                if not self._sampling:
                    self.notes.take_in_all()
                if late:
                    phases.lose_sight()
            finally:
                self._settling.release()
        if now >= self.readings.due_ns or self.recorder.asked or self.census.urgent(now):
            self._attend()  # the next step's end decides
        # On a step that is read only ends of backward are noted: its thread takes them in at its next boundary.
        ends = [note for note in list(notes) if type(note) is int]
        if ends and phases.phase == "backward" and len(ends) >= phases.depth:
            return phases.after_backward, ends[-1]
        return phases.phase, phases.since_ns

    def rest(self, period_ns: int) -> None:
        """After a tick, from the agent's thread: whether the next period may begin with a nap."""
        if self._quiet and self._exact is None:
            self.nap.allow(self.phases, self.notes, period_ns)
        elif self.nap.asleep:
            self.nap.rouse()

    def _attend(self) -> None:
        self._quiet = 0
        self.nap.rouse()

    def fail(self, error: Exception) -> None:
        """Goes quiet after an error of the agent's own."""
        self.error = f"{type(error).__name__}: {error}"
        self.unload()
        self._wake()

    def step(self) -> None:
        """The program says that a step has ended."""
        if self._quiet == _ident():
            self._noted.append(("step", _now(), 0, self._take()))
        elif not self._dead:
            self._boundary("step", _now())

    def record(self) -> None:
        """A viewer wants the next step to be recorded; from the agent's thread."""
        self.recorder.ask(self.phases)
        self._attend()

    def _plan(self, *, at_end: bool, aside: bool = False) -> None:
        """Decides how closely the next step is looked at; `at_end` where the last one has ended just now.

        It is read in any case where it begins with an evaluation that is to be (`aside`).
        """
        recorder = self.recorder
        recorder.finish(self.phases, at_end=at_end)
        now = time.monotonic_ns()
        guest = self.census.budget if self.census.urgent(now) else self.rehearsal.payer(now)
        if at_end:
            self.rehearsal.ended(self.phases.step)
        was_sampling, self._sampling = self._sampling, self.readings.due(now) or guest is not None or aside
        if at_end and recorder.due(self.phases) and recorder.start(self.phases):
            # Every boundary is read at once. The blocks are in the history: looking at them would leave entries there.
            self._sampling, self._quiet = True, 0
            self.looks.pause()
        elif self._sampling:
            self._quiet = 0
            self.looks.plan(self.phases, now, guest)
        if self._sampling:
            if not was_sampling:
                self.readings.catch_up(self.phases, at_end=at_end)
            return
        if was_sampling:
            self.looks.pause()
        self._quiet = self._thread or 0 if self.awake else 0
        if self.readings.taken and self.notes.ended_by not in ("optimizer_end", "step"):
            self._quiet = 0  # the end of a backward pass is noted without Python: the next boundary takes its peak
        if self._dead or recorder.waits(self.phases):  # by now: unloading goes before being quiet
            self._quiet = 0

    def _sample(self, kind: str, now: int, ended: str, finished: bool) -> dict[str, Look]:
        phases = self.phases
        self.readings.refresh(now, at_once=not self.readings.settled)
        working = ended not in ("startup", "between")
        readings = self.readings.at_boundary(ended, working=working, finished=finished, step=phases.step)
        # Backward leaves gradients, and little else that outlives it: what is new at the next forward is its input.
        born_in = "between" if kind in ("forward_start", "evaluation_start") and ended == "backward" else ended
        looks = self.looks.at_boundary(kind, phases, now, born_in, finished=finished)
        if looks and finished:
            if self.inventory.lacks(looks.values()):
                self.inventory.search(phases, now)
            self.inventory.describe(phases, now)
        self.samples.append(
            Sample(
                time_ns=now,
                boundary=kind,
                step=phases.step,
                phase=phases.phase,
                phase_since_ns=phases.since_ns,
                step_since_ns=phases.step_since_ns,
                last_step_ns=phases.last_step_ns,
                readings=readings,
                looks=looks,
            )
        )
        return looks

    def _mine(self, *, steps: bool = False) -> bool:
        current = _ident()
        if current in self._workers:
            return False
        if current != self._thread:
            # The first that trains is followed while it lives, unless it optimizes nothing and another thread does.
            if self._thread is not None and any(t.ident == self._thread for t in threading.enumerate()):
                if not steps or self.phases.optimizes or is_foreign(current):
                    return False
                self._quiet = 0
                self.inventory.follow(current, trained=self.phases.trains)
                self.phases.follow_another()
            self._thread = current
        return True


#: What torch calls on the program's thread, and what that calls before anything of it is kept from being traced.
_RUN_BY_TORCH = (
    WatchedHooks.__bool__,
    Observer._forward,
    Observer.optimizer_started,
    Observer.optimizer_ended,
    Observer.parameter,
    Observer.child,
    Observer._mine,
    Observer.backward_started,
    Observer._boundary,
    Observer._take,
)
