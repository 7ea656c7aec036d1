"""Steps of a training, in groups with what torch calls of the agent in place and out of it; prints them as JSON.

    steps.py SECONDS-A-STEP SECONDS

The agent's thread goes on all the time, and when it was at work is told too; at last, what torch's calls of it took.
"""

from __future__ import annotations

import collections
import json
import random
import sys
import threading
import time
from typing import Any

import training

#: Steps with what torch calls and without are as near to each other as may be, for the machine's speed drifts. Those
#: shorter than this are watched or not depending on the ones before them: of these, groups of so many, without the
#: first ones. Of others so many of either kind, in a random order.
SHORT_SECONDS, SHORT_GROUP, SETTLING, GROUP = 0.01, 25, 2, 6
#: Longer steps than this all have ticks in them: without what torch calls, they are also without the agent's thread.
LONG_SECONDS = 0.05
_OWN_SECONDS = 8.0


class Switch:
    """Puts what torch calls at each step out of its way, and back."""

    def __init__(self, model: Any) -> None:
        self.sentry: Any = sys.modules["_memtui_agent_of_this_process"]
        self.agent = self.sentry.agent
        self._ticking = threading.Event()
        self._ticking.set()
        self._on_ns, self._on_since_ns = 0, time.perf_counter_ns()  # with the agent's thread, and since when more
        self.observer = self.agent.observer
        self._members = model.__dict__
        self._hooks = {True: self._members["_forward_pre_hooks"], False: collections.OrderedDict()}
        self._autograd: Any = sys.modules["torch.autograd"]
        self._backward = {True: self._autograd._engine_run_backward, False: self.sentry.passes.original}
        # A function in C that does nothing, whatever it is called with: dictionaries keep their keys.
        nothing = memoryview(b"").__exit__
        self._optimizer = [
            (hooks, handle.id, {True: hooks[handle.id], False: nothing})
            for hooks, handle in zip(self.sentry._optimizer_hooks, self.sentry.handles[2:])
        ]

    def turn(self, on: bool, *, thread: bool = False) -> None:
        """In place, or out of the way; the agent's `thread` too."""
        ticking = on or not thread
        self._on_ns, self._on_since_ns = self._on_time_ns(), time.perf_counter_ns()
        (self._ticking.set if ticking else self._ticking.clear)()
        self._members["_forward_pre_hooks"] = self._hooks[on]
        self._autograd._engine_run_backward = self._backward[on]
        for hooks, key, functions in self._optimizer:
            hooks[key] = functions[on]

    def time_calls(self) -> list[int]:
        """From now on the nanoseconds in these functions are added up in the list's one place."""
        spent = [0]

        def timed(function: Any) -> Any:
            def call(*arguments: Any) -> Any:
                begun = time.perf_counter_ns()
                result = function(*arguments)
                spent[0] += time.perf_counter_ns() - begun
                return result

            return call

        watched = type(self._hooks[True])
        watched.noted = timed(watched.noted)
        self.sentry.passes.started = timed(self.sentry.passes.started)
        for _, _, functions in self._optimizer:
            functions[True] = timed(functions[True])
        self.turn(True)
        return spent

    def _on_time_ns(self) -> int:
        more = time.perf_counter_ns() - self._on_since_ns
        return self._on_ns + (more if self._ticking.is_set() else 0)

    def _wait_until(self, on_time_ns: int) -> None:
        """In the agent's thread, whose clock goes on while it is held: the next step would have those ticks too."""
        while True:
            self._ticking.wait()
            missing_ns = on_time_ns - self._on_time_ns()
            if missing_ns <= 0:
                return
            time.sleep(missing_ns / 1e9)

    def note_ticks(self, *, held: bool) -> list[tuple[int, int]]:
        """When the agent's thread was at work, from now on; whether it is `held` in steps that are off."""
        ticks: list[tuple[int, int]] = []
        tick, server = self.agent._tick, self.agent._server
        flush = server.flush

        period_ns = sys.modules[type(self.agent).__module__].PERIOD_NS
        due_ns = 0

        def noted(*arguments: Any) -> None:
            nonlocal due_ns
            if held:
                self._wait_until(due_ns)
                due_ns = max(due_ns, self._on_time_ns() - period_ns) + period_ns
            ticks.append((time.perf_counter_ns(), 0))
            tick(*arguments)

        def flushed() -> None:
            flush()
            if ticks:
                ticks[-1] = (ticks[-1][0], time.perf_counter_ns())

        self.agent._tick, server.flush = noted, flushed
        return ticks


def measure(step: training.Step, wanted: float, seconds: float, switch: Switch) -> dict[str, Any]:
    """Steps: (begun, ended, processor time of the process, whether on, whether read at their boundaries, group)."""
    held = wanted > LONG_SECONDS
    ticks, chance, observer = switch.note_ticks(held=held), random.Random(1), switch.observer
    steps, groups = [], 0
    now, cpu, end = time.perf_counter_ns, time.process_time_ns, time.perf_counter() + seconds
    while time.perf_counter() < end:
        if wanted < SHORT_SECONDS:
            first = chance.random() < 0.5
            order = [first] * SHORT_GROUP + [not first] * SHORT_GROUP
        else:
            order = chance.sample([True, False] * GROUP, 2 * GROUP)
        for number, on in enumerate(order):
            switch.turn(on, thread=held)
            read = on and observer._sampling
            cpu_begun, begun = cpu(), now()
            step()
            ended, spent = now(), cpu() - cpu_begun
            if wanted >= SHORT_SECONDS or number % SHORT_GROUP >= SETTLING:
                steps.append((begun, ended, spent, on, read, groups))
        groups += 1
    switch.turn(True)
    return {"steps": steps, "ticks": [tick for tick in ticks if tick[1]], "paused": held}


def own_calls(step: training.Step, switch: Switch) -> list[int]:
    """Nanoseconds a step in the functions that torch calls, on the training's thread."""
    spent, found = switch.time_calls(), []
    end = time.perf_counter() + _OWN_SECONDS
    while time.perf_counter() < end:
        spent[0] = 0
        step()
        found.append(spent[0])
    return found[SETTLING:]


def main() -> None:
    """Warms up, and measures."""
    wanted, seconds = float(sys.argv[1]), float(sys.argv[2])
    model, step = training.make(training.layers_for(wanted))
    switch = Switch(model)
    end = time.perf_counter() + 3  # discovery, a recorded step, and the savings that the budgets begin with
    while time.perf_counter() < end:
        step()
    found = measure(step, wanted, seconds, switch)
    own = own_calls(step, switch)
    print(json.dumps({**found, "own": own, "parameters": sum(1 for _ in model.parameters())}))


if __name__ == "__main__":
    main()
