"""Long runs made of recorded ones: what a step leaves is drawn again, and which steps are read, and what leaks."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memtui.session.floors import Floor

#: What is held when a step's forward begins: bytes, blocks.
Held = tuple[int, int]

STEPS = 10_000
#: Recorded steps up to which a training warms up; experts that are used by chance take longer.
_WARM = {"warm-up": 160}
_WARM_OTHERS = 40
#: What these keep is given back all at once. It may be some times what a leak adds in 200 steps.
GIVE_BACK = ("cycles", "logs that are cleared")
_SPACING_NS = 500_000_000  # the agent reads no steps that are closer
_FASTEST_SECONDS, _SLOWEST_SECONDS = 0.025, 2.0
_LEAST_SHARE, _MOST_SHARE = 0.001, 0.01
_ROUND = 512  # the allocator's own granularity


def quiet_run(kind: str, recorded: Sequence[Held], steps: int, chance: random.Random) -> list[Held]:
    """A run of so many steps that leaks nothing: the recorded warm-up at some time, and stretches of what follows it.

    Of the curriculum every recorded step lasts for many.
    """
    if kind == "curriculum":
        length = chance.randrange(steps // 20, steps)
        places = (min(len(recorded) - 1, step * len(recorded) // length) for step in range(steps))
        return [recorded[place] for place in places]
    warm = _WARM.get(kind, _WARM_OTHERS)
    run = list(recorded[:10])
    if kind in GIVE_BACK:
        _extend_by_teeth(run, recorded, steps, chance)
        return run[:steps]
    if chance.random() < 0.5:  # what an evaluation leaves, or an expert's state, comes at any time
        first = 12 if kind == "warm-up" else 24
        _extend(run, recorded[10:first], chance.randrange(steps // 5), chance)
    run += recorded[10:warm]
    _extend(run, recorded[warm:], steps, chance)
    return run[:steps]


def _extend(run: list[Held], source: Sequence[Held], length: int, chance: random.Random) -> None:
    while len(run) < length:
        start = chance.randrange(len(source))
        run += source[start : start + chance.randrange(10, 100)]


def _extend_by_teeth(run: list[Held], source: Sequence[Held], length: int, chance: random.Random) -> None:
    """By stretches from one fall to another: what has been kept is never taken up again higher than it was."""
    falls = [place for place in range(10, len(source)) if source[place][1] < source[place - 1][1]]
    run += source[10 : falls[0]]
    while len(run) < length:
        start = chance.randrange(len(falls) - 1)
        run += source[falls[start] : falls[chance.randrange(start + 1, len(falls))]]


def increments(recorded: Sequence[Held]) -> list[Held]:
    """What each step of a recorded leak has added, after its warm-up."""
    settled = recorded[_WARM_OTHERS:]
    return [(after[0] - before[0], after[1] - before[1]) for before, after in zip(settled, settled[1:])]


@dataclass(frozen=True)
class Planted:
    """A run that leaks from one step on: bytes a step, and what share of the allocated bytes at its beginning."""

    run: list[Held]
    first_step: int
    bytes_per_step: float
    share: float


def plant(run: Sequence[Held], added: Sequence[Held], first_step: int, chance: random.Random) -> Planted:
    """`run` with recorded increments from `first_step` on, their bytes scaled to a drawn share of what is allocated."""
    share = math.exp(chance.uniform(math.log(_LEAST_SHARE), math.log(_MOST_SHARE)))
    mean = sum(size for size, _ in added) / len(added)
    wanted = share * sorted(size for size, _ in run[:first_step])[first_step // 2]
    leaking = list(run[:first_step])
    more: list[Held] = []
    while len(more) < len(run) - first_step:
        start = chance.randrange(len(added))
        more += added[start : start + chance.randrange(10, 100)]
    size = blocks = 0.0
    for held, (grown, made) in zip(run[first_step:], more):
        size, blocks = size + grown * wanted / mean, blocks + made
        leaking.append((held[0] + _ROUND * round(size / _ROUND), held[1] + int(blocks)))
    return Planted(leaking, first_step, wanted, share)


def step_seconds(chance: random.Random) -> float:
    """How long the steps of a run last."""
    return math.exp(chance.uniform(math.log(_FASTEST_SECONDS), math.log(_SLOWEST_SECONDS)))


def read(run: Sequence[Held], seconds: float, first_step: int, chance: random.Random) -> Iterator[Floor]:
    """The floors of the steps that are read, from a viewer's first on: now and then the agent's budget makes it wait.

    A step lasts up to a tenth longer or shorter than `seconds`.
    """
    now_ns = due_ns = 0
    step_ns = round(1e9 * seconds)
    for step in range(first_step, len(run)):
        now_ns += round(step_ns * chance.uniform(0.9, 1.1))
        if now_ns >= due_ns:
            due_ns = now_ns + _SPACING_NS + (chance.randrange(2 * _SPACING_NS) if chance.random() < 0.05 else 0)
            yield Floor(step, now_ns, *run[step])
