"""What is in a process from the import of torch until it uses a device or trains: hooks, no thread, no socket.

Most processes that import torch do neither (data loaders, compiler workers): they do not even load the agent.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Optional

from . import EXACT_PEAKS, REHEARSAL_HOST, backward
from .callbacks import weakly
from .moments import are_only_threads, at_quiet_moment
from .roots import Roots
from .tags import Tags

#: How long a moment to change hooks in is waited for.
_QUIET_SECONDS = 60.0
#: How long a program that asks for an agent again waits for the last one to leave; that takes some milliseconds.
_LEAVING_SECONDS, _PAUSE_SECONDS = 2.0, 0.001
#: Two copies of the package may be loaded (from the path, and an installed one): they share this one sentry.
_KEY = "_memtui_agent_of_this_process"


class Sentry:
    """Waits for the process to use a device or to train, and then loads the agent, which takes its hooks over.

    Knows the root modules that were built until then: the agent could only find them again by a search.
    """

    def __init__(self, torch: Any, *, from_start: bool) -> None:
        self.torch = torch
        self.from_start = from_start  # whether no thread can have made a backward pass that another one would not see
        self.agent: Optional[Any] = None
        self.exact: Optional[Any] = None  # ExactPeaks, where they were asked for
        self.roots = Roots()
        self.tags = Tags()  # what the program has named
        #: Ends of backward passes, in nanoseconds; then all that the agent notes. Bounded, should nobody take them in.
        self.noted: deque[Any] = deque(maxlen=1 << 15)
        self.passes: Any = None
        self.remove_backward: Any = None
        self.handles: list[Any] = []
        self._queued: list[tuple[Any, Any]] = []  # what is to be called once a device is initialised, and by which
        self._optimizer_hooks: tuple[Any, Any] = ({}, {})
        #: Takes out what was loaded for this, once it has left.
        self.forget: Optional[Callable[[], None]] = None
        self._lock = threading.Lock()
        self._failed = False
        self.host: Optional[Any] = None  # HostParameters, in a program that is only tried out
        if REHEARSAL_HOST in os.environ:
            from .host_parameters import host_parameters

            self.host = host_parameters(torch)

    @property
    def stopped(self) -> bool:
        """Whether nothing is watched any more: another one may be put in its place."""
        return self._failed or (self.agent is not None and not self.agent.watches)

    @property
    def leaves(self) -> bool:
        """Whether its agent's thread is still there to take everything out."""
        return self.agent is not None and bool(self.agent.running)

    def install(self) -> None:
        """Puts the hooks in place. Called once, on the thread that imports torch."""
        self._hook()
        self._meet_devices()

    def install_late(self) -> bool:
        """The same in a program that trains already, from another thread, with the agent; False where it cannot be."""
        from .agent import Agent

        agent = Agent(self.torch, self.exact)
        agent.late = agent.observer.readings.late = True
        agent.observer.graph.wanted = False  # its first pass is over
        with self._lock:  # a hook that is called in between goes on without
            if not at_quiet_moment(self._hook, _QUIET_SECONDS):
                return False
            agent.install(self)
            self.agent = agent
        self._meet_devices()
        return True

    def leave(self) -> None:
        """Takes out everything that was put in place; from the agent's thread, when its socket is gone.

        Where there is no moment for that, the training's own thread does it when it next begins a backward pass.
        """
        self._failed = True
        agent = self.agent
        self._leave_queues()
        at_quiet_moment(self._unhook if agent is None else agent.observer.take_out, _QUIET_SECONDS)
        if current() is self:
            del sys.modules[_KEY]
        if self.forget is not None:
            self.forget()

    def _leave_queues(self) -> None:
        for backend, call in self._queued:
            lock, calls = getattr(backend, "_initialization_lock", None), backend._queued_calls
            if lock is None or not lock.acquire(blocking=False):
                continue  # torch may just be going through them: it calls ours too, which does nothing any more
            try:
                # Others only append meanwhile.
                for place in [place for place, each in enumerate(calls) if each is call]:
                    del calls[place]
            finally:
                lock.release()
        self._queued.clear()

    def _unhook(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.remove_backward()
        self.roots.clear()

    def _hook(self) -> None:
        from torch.nn.modules import module as modules
        from torch.optim import optimizer as optimizers

        self.passes, self.remove_backward = backward.watch(self.torch, self._backward_started, self.noted)
        self.handles = [
            modules.register_module_parameter_registration_hook(self._parameter),
            modules.register_module_module_registration_hook(self._child),
            optimizers.register_optimizer_step_pre_hook(self._optimizer_started),
            optimizers.register_optimizer_step_post_hook(self._optimizer_ended),
        ]
        self._optimizer_hooks = (
            getattr(optimizers, "_global_optimizer_pre_hooks", {}),
            getattr(optimizers, "_global_optimizer_post_hooks", {}),
        )

    def _meet_devices(self) -> None:
        for name in ("cuda", "xpu"):
            backend = getattr(self.torch, name, None)
            if backend is None:
                continue
            if backend.is_initialized():
                self._initialized(name)
            elif hasattr(backend, "_queued_calls"):
                # What torch itself calls once the device is initialised; no traceback is taken for ours.
                call: Any = (weakly(self._initialized, name), [])
                backend._queued_calls.append(call)
                self._queued.append((backend, call))

    def take_exactly(self) -> None:
        """From now on each step's peak is taken, and the program's own readings are kept as they were."""
        if self.exact is not None or self._failed:
            return
        from .exact import ExactPeaks

        exact = ExactPeaks(self.torch, self.noted)
        exact.install()
        self.exact = exact
        if self.agent is not None:
            self.agent.observer.take_exactly(exact)

    def rouse(self) -> Optional[Any]:
        """The agent, loaded now if it was not; None where that failed, or another thread is just doing it."""
        if self.agent is None and not self._failed and self._lock.acquire(blocking=False):
            try:
                from .agent import Agent

                agent = Agent(self.torch, self.exact)
                agent.install(self)
                self.agent = agent
            except Exception as error:  # noqa: BLE001 - the program must not meet an error of its monitor
                self._failed = True
                if self.exact is not None:
                    self.exact.end()
                if os.environ.get("MEMTUI_DEBUG"):
                    sys.stderr.write(f"memtui: the agent could not be loaded: {error!r}\n")
            finally:
                self._lock.release()
        return self.agent

    def take_over(self, started: Any, ended: Any, backward_started: Any) -> None:
        """The agent's own functions in the place of these, so that no call goes through two.

        Values of the hooks' dictionaries are exchanged and their keys are not: torch may be iterating over them.
        """
        self.passes.started = backward_started
        for hooks, handle, function in zip(self._optimizer_hooks, self.handles[2:], (started, ended)):
            if handle.id in hooks:
                hooks[handle.id] = function

    def start(self) -> None:
        """Loads and starts the agent; from any thread, at any time."""
        agent = self.rouse()
        if agent is not None:
            agent.start()

    def step(self) -> None:
        """The program says that a step has ended; from its training thread."""
        if self.agent is not None:
            self.agent.step()

    def tag(self, what: Any, name: str, category: str) -> None:
        """The program names tensors."""
        if self._failed:
            return
        try:
            self.tags.add(what, name, category)
        except Exception:  # noqa: BLE001 - the program's own containers may fail when looked through
            return

    def stop(self) -> None:
        """Unloads the agent; without one, nothing is loaded any more either."""
        self._failed = True
        if self.agent is not None:
            self.agent.stop()
        elif self.exact is not None:
            self.exact.end()

    # -- what torch calls, until the agent does -----------------------------------

    def _initialized(self, name: str) -> None:
        agent = self.rouse()
        if agent is not None:
            agent.initialized(name)

    def _parameter(self, module: Any, name: str, parameter: Any) -> None:
        if self.host is not None:
            self.host.registered(module, parameter)
        if self.agent is not None:
            self.agent.observer.parameter(module)
        elif not self._failed:
            self._guarded(self.roots.parameter, module)

    def _child(self, parent: Any, name: str, child: Any) -> None:
        if self.agent is not None:
            self.agent.observer.child(parent, child)
        elif not self._failed:
            self._guarded(self.roots.child, parent, child)

    def _guarded(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except (AttributeError, TypeError, KeyError, RuntimeError):  # a module like no other
            self._failed = True

    def _backward_started(self) -> bool:
        agent = self.rouse()
        return bool(agent.observer.backward_started()) if agent is not None else False

    def _optimizer_started(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        agent = self.rouse()
        if agent is not None:
            agent.observer.optimizer_started(optimizer, args, kwargs)

    def _optimizer_ended(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.agent is not None:
            self.agent.observer.optimizer_ended(optimizer, args, kwargs)


def current() -> Any:
    """The sentry of this process, or None."""
    return sys.modules.get(_KEY)


def install(*, imported: bool = False) -> Any:
    """Begins to watch, dormant; returns the sentry. torch must be imported. Calling it again changes nothing.

    `imported` where torch has been only just now.
    """
    existing = current()
    if existing is not None:
        if not existing.stopped:
            return existing
        # Its hooks and its socket go first: what it puts back then would be the new one's.
        existing.stop()
        end = time.monotonic() + _LEAVING_SECONDS
        while existing.leaves and current() is existing and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
    sentry = Sentry(sys.modules["torch"], from_start=imported or are_only_threads())
    sys.modules[_KEY] = sentry  # type: ignore[assignment]
    sentry.install()
    if os.environ.get(EXACT_PEAKS) == "1":
        sentry.take_exactly()
    # The program that was started itself, not one of its helpers: watched from here on, also where it only infers.
    if os.environ.get("MEMTUI_DIRECT") == str(os.getpid()):
        sentry.start()
    return sentry


def install_late(forget: Callable[[], None]) -> Any:
    """As `install`, in a program that trains already, and from a thread of its own; the agent starts at once.

    `forget` is called when it has been unloaded. None where hooks could not be put in place.
    """
    sentry = Sentry(sys.modules["torch"], from_start=are_only_threads(threading.main_thread().ident))
    sentry.forget = forget
    if not sentry.install_late():
        return None
    sys.modules[_KEY] = sentry  # type: ignore[assignment]
    sentry.start()
    return sentry
