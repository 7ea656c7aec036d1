"""What is in a process from the import of torch until it uses a device or trains: hooks, no thread, no socket.

Most processes that import torch do neither (data loaders, compiler workers): they do not even load the agent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import Any, Optional

from . import backward
from .roots import Roots

#: Two copies of the package may be loaded (from the path, and an installed one): they share this one sentry.
_KEY = "_memtui_agent_of_this_process"


class Sentry:
    """Waits for the process to use a device or to train, and then loads the agent, which takes its hooks over.

    Knows the root modules that were built until then: the agent could only find them again by a search.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.agent: Optional[Any] = None
        self.roots = Roots()
        self.ends: deque[int] = deque()
        self.passes: Any = None
        self.remove_backward: Any = None
        self.handles: list[Any] = []
        self._optimizer_hooks: tuple[Any, Any] = ({}, {})
        self._lock = threading.Lock()
        self._failed = False

    def install(self) -> None:
        """Puts the hooks in place. Called once, on the thread that imports torch."""
        from torch.nn.modules import module as modules
        from torch.optim import optimizer as optimizers

        self.passes, self.remove_backward = backward.watch(self.torch, self._backward_started, self.ends)
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
        for name in ("cuda", "xpu"):
            backend = getattr(self.torch, name, None)
            if backend is None:
                continue
            if backend.is_initialized():
                self._initialized(name)
            elif hasattr(backend, "_queued_calls"):
                # What torch itself calls once the device is initialised; no traceback is taken for ours.
                backend._queued_calls.append((lambda name=name: self._initialized(name), []))

    def rouse(self) -> Optional[Any]:
        """The agent, loaded now if it was not; None where that failed, or another thread is just doing it."""
        if self.agent is None and not self._failed and self._lock.acquire(blocking=False):
            try:
                from .agent import Agent

                agent = Agent(self.torch)
                agent.install(self)
                self.agent = agent
            except Exception as error:  # noqa: BLE001 - the program must not meet an error of its monitor
                self._failed = True
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

    def stop(self) -> None:
        """Unloads the agent; without one, nothing is loaded any more either."""
        self._failed = True
        if self.agent is not None:
            self.agent.stop()

    # -- what torch calls, until the agent does -----------------------------------

    def _initialized(self, name: str) -> None:
        agent = self.rouse()
        if agent is not None:
            agent.initialized(name)

    def _parameter(self, module: Any, name: str, parameter: Any) -> None:
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


def install() -> Any:
    """Begins to watch, dormant; returns the sentry. torch must be imported. Calling it again changes nothing."""
    existing = current()
    if existing is not None:
        return existing
    sentry = Sentry(sys.modules["torch"])
    sys.modules[_KEY] = sentry  # type: ignore[assignment]
    sentry.install()
    # The program that was started itself, not one of its helpers: watched from here on, also where it only infers.
    if os.environ.get("MEMTUI_DIRECT") == str(os.getpid()):
        sentry.start()
    return sentry
