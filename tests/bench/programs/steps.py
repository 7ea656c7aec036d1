"""Steps of a training with the agent switched on and off in turn; prints what they took as JSON.

steps.py SECONDS-A-STEP PAIRS SECONDS-A-BLOCK
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from typing import Any

import training

#: Steps at the beginning of a block that are not counted.
_SETTLING = 3


class Switch:
    """Takes the agent out of this process and puts it back, as it was."""

    def __init__(self, model: Any) -> None:
        self.sentry: Any = sys.modules["_memtui_agent_of_this_process"]
        self.agent = self.sentry.agent
        self.observer = self.agent.observer
        self.looks = 0
        self._model = model
        self._resumed, self._parked = threading.Event(), threading.Event()
        self._is_on = True
        walk = self.observer.looks._walk

        def counted() -> Any:
            self.looks += 1
            return walk()

        self.observer.looks._walk = counted

    def frames(self) -> int:
        """How many frames the agent has sent."""
        return int(self.agent._sequence)

    def turn(self, on: bool) -> None:
        """Returns once the agent is back, or once its thread sleeps and nothing of it is in torch's way."""
        if on == self._is_on:
            return
        self._is_on = on
        observer, inventory = self.observer, self.observer.inventory
        if not on:
            observer._dead = True
            observer._take_out()
            self._resumed.clear()
            self._parked.clear()
            self.agent._tick = self._park
            self._parked.wait()
            return
        revision = inventory.roots.revision
        observer._dead = False
        self.sentry.install()
        observer.install(self.sentry)
        inventory.roots.merge([self._model])
        inventory.roots.revision = revision  # nothing has changed that would have to be described again
        observer.looks.pause()
        now = time.monotonic_ns()
        for budget in (observer.looks._budget, observer.readings._budget):
            budget._at_ns = now  # nothing is saved up meanwhile
        del self.agent._tick
        self._resumed.set()

    def _park(self, *_: Any) -> None:
        self._parked.set()
        self._resumed.wait()


def block(step: training.Step, seconds: float, switch: Switch, on: bool) -> dict[str, Any]:
    """One block of steps: seconds of wall and processor time a step, and what the agent did."""
    switch.turn(on)
    for _ in range(_SETTLING):
        step()
    frames, looks, steps = switch.frames(), switch.looks, 0
    cpu, begun = time.process_time(), time.perf_counter()
    end = begun + seconds
    while time.perf_counter() < end:
        step()
        steps += 1
    return {
        "on": on,
        "wall": (time.perf_counter() - begun) / steps,
        "cpu": (time.process_time() - cpu) / steps,
        "frames": switch.frames() - frames,
        "looks": switch.looks - looks,
    }


def own_calls(step: training.Step, seconds: float, switch: Switch) -> list[int]:
    """Nanoseconds a step in the functions that torch calls, on the training's thread."""
    switch.turn(False)
    spent = [0]

    def timed(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            begun = time.perf_counter_ns()
            result = function(*arguments)
            spent[0] += time.perf_counter_ns() - begun
            return result

        return call

    for name in ("_forward", "_backward_started", "_optimizer_started", "_optimizer_ended"):
        setattr(switch.observer, name, timed(getattr(switch.observer, name)))
    switch.turn(True)
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        spent[0] = 0
        step()
        found.append(spent[0])
    return found[_SETTLING:]


def main() -> None:
    """Runs pairs of blocks in a random order."""
    wanted, pairs, seconds = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    layers = training.layers_for(wanted)
    model, step = training.make(layers)
    switch, chance = Switch(model), random.Random(layers)
    block(step, 1.5 * seconds, switch, True)  # discovery, and the savings that the budgets begin with
    measured = []
    for _ in range(pairs):
        order = [True, False]
        chance.shuffle(order)
        measured.append([block(step, seconds, switch, on) for on in order])
    own = own_calls(step, 8.0, switch)
    tensors = sum(1 for _ in model.parameters())
    print(json.dumps({"layers": layers, "parameters": tensors, "pairs": measured, "own": own}))


if __name__ == "__main__":
    main()
