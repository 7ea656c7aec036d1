"""Random programs for an allocator: what is allocated and freed, in which order, told by a kind and a seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

#: What is done; the numbers after it are (bytes, stream, pool), (block), (block, stream), none, (pool), (pool), (pool).
#: Blocks are numbered in the order of their allocation; pool 0 is the process's own, those above are MemPools, those
#: below are pools of CUDA graphs. What is allocated on CAPTURED_STREAM while a graph is captured is of its pool.
ALLOCATE, FREE, USE, EMPTY, DROP, CAPTURE, CAPTURED = range(7)
#: The stream on which graphs are captured.
CAPTURED_STREAM = 1
STREAMS = 3
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_FEWEST, _MOST = 50, 2000
_EDGES = (1, 511, 512, 513, KIB, MIB - 512, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 19 * MIB, 20 * MIB, 64 * MIB)

Operation = tuple[int, ...]
Size = Callable[[], int]


class Trace(NamedTuple):
    """One program; `fraction` is what set_per_process_memory_fraction leaves it."""

    kind: str
    seed: int
    fraction: float
    operations: list[Operation]


def trace(number: int, *, expandable: bool = False) -> Trace:
    """The `number`-th of them all: the kinds by turns.

    With `expandable` segments every MemPool is kept to the end: torch 2.14.1 itself fails when one goes of which blocks
    are live (INTERNAL ASSERT cudaMalloc_count > 0, or a damaged heap).
    """
    kind = tuple(_KINDS)[number % len(_KINDS)]
    drawn = random.Random(f"{kind} {number}")
    events = int(_FEWEST * (_MOST / _FEWEST) ** drawn.random())
    fraction = drawn.uniform(0.01, 0.3) if kind == "capped" else 1.0
    operations = _KINDS[kind](drawn, events)
    return Trace(kind, number, fraction, [each for each in operations if not (expandable and each[0] == DROP)])


def _between(drawn: random.Random, least: int, most: int) -> Size:
    ratio = most / least
    return lambda: int(least * ratio ** drawn.random())


def _often(drawn: random.Random, size: Size) -> Size:
    """A few sizes again and again, and any other now and then."""
    usual = [size() for _ in range(12)]
    return lambda: drawn.choice(usual) if drawn.random() < 0.7 else size()


class _Random:
    """Allocates and frees in turns until it has done so many events."""

    def __init__(self, drawn: random.Random, events: int, size: Size, streams: int = 1) -> None:
        self.drawn, self.events, self.size, self.streams = drawn, events, size, streams
        self.live: list[int] = []
        self.made = self.done = 0
        self.most = drawn.choice((5, 20, 60, 200))

    def allocated(self, stream: int = -1, pool: int = 0) -> Operation:
        """A block more."""
        if stream < 0:
            stream = self.drawn.randrange(self.streams) if self.drawn.random() < 0.5 else 0
        self.live.append(self.made)
        self.made += 1
        self.done += 1
        return ALLOCATE, self.size(), stream, pool

    def freed(self) -> Operation:
        """One less, mostly one of the youngest."""
        place = self.drawn.randrange(len(self.live)) if self.drawn.random() < 0.5 else -1
        self.done += 1
        return FREE, self.live.pop(place)

    def step(self, pool: int = 0, stream: int = -1) -> Operation:
        """The one or the other; fills up and empties in turn."""
        full = self.most * (1 + self.done % 150 // 100)
        if self.live and self.drawn.random() < len(self.live) / full:
            return self.freed()
        return self.allocated(stream, pool)

    @property
    def more(self) -> bool:
        """Whether it goes on."""
        return self.done < self.events


def _plain(sizes: Callable[[random.Random], Size]) -> Callable[[random.Random, int], Iterator[Operation]]:
    def operations(drawn: random.Random, events: int) -> Iterator[Operation]:
        found = _Random(drawn, events, sizes(drawn))
        while found.more:
            yield (EMPTY,) if drawn.random() < 0.005 else found.step()

    return operations


def _streams(drawn: random.Random, events: int) -> Iterator[Operation]:
    """Blocks that other streams use as well."""
    found = _Random(drawn, events, _often(drawn, _between(drawn, 1, 200 * MIB)), STREAMS)
    while found.more:
        chance = drawn.random()
        if chance < 0.01:
            yield (EMPTY,)
        elif found.live and chance < 0.15:
            yield USE, drawn.choice(found.live), drawn.randrange(STREAMS)
        else:
            yield found.step()


def _pools(drawn: random.Random, events: int) -> Iterator[Operation]:
    """Two MemPools beside the process's own pool, each of which goes when nothing is allocated from it any more."""
    least, most = drawn.choice(((200, 8 * MIB), (200, GIB), (64 * MIB, 8 * GIB)))
    found = _Random(drawn, events, _often(drawn, _between(drawn, least, most)), 2)
    pool, known = 0, [0, 1, 2]
    while found.more:
        chance = drawn.random()
        if chance < 0.01:
            yield (EMPTY,)
        elif chance < 0.02 and len(known) > 1:
            gone = known.pop(drawn.randrange(1, len(known)))
            known.append(max(known[-1], gone) + 1)
            pool = 0
            yield DROP, gone
        elif chance < 0.15:
            pool = drawn.choice(known)
        else:
            yield found.step(pool)


def _captures(drawn: random.Random, events: int) -> Iterator[Operation]:
    """CUDA graphs, whose pools are two at most and are given back at the end."""
    least, most = drawn.choice(((200, 8 * MIB), (200, GIB), (64 * MIB, 8 * GIB)))
    found = _Random(drawn, events, _often(drawn, _between(drawn, least, most)), STREAMS)
    pool, used = 0, drawn.choice((0, 0.1))
    while found.more:
        chance = drawn.random()
        if chance < 0.01:
            yield (EMPTY,)
        elif chance < 0.03:
            ended, pool = pool, 0 if pool else drawn.choice((-1, -2))
            yield (CAPTURED, ended) if ended else (CAPTURE, pool)
        elif found.live and chance < used:
            yield USE, drawn.choice(found.live), drawn.randrange(STREAMS)
        else:
            yield found.step()
    if pool:
        yield CAPTURED, pool


def _training(drawn: random.Random, events: int) -> Iterator[Operation]:
    """Steps of a network: activations that the backward pass frees from the last to the first, gradients, updates."""
    layers = drawn.randrange(4, 24)
    width = _between(drawn, 4 * KIB, drawn.choice((2 * MIB, 64 * MIB)))
    shapes = [width() for _ in range(layers)]
    made = done = 0
    gradients: list[int] = []
    for shape in shapes:
        yield ALLOCATE, shape, 0, 0
    made = layers
    while done < events:
        batch = drawn.choice((1, 1, 1, drawn.uniform(0.5, 1.5)))
        kept = []
        for shape in shapes:
            yield ALLOCATE, int(shape * batch) + 1, 0, 0
            yield ALLOCATE, max(1, int(shape * batch) // 3), 0, 0
            yield FREE, made + 1
            kept.append(made)
            made += 2
        for number in gradients:
            yield FREE, number
        gradients = []
        for shape, number in zip(reversed(shapes), reversed(kept)):
            yield ALLOCATE, shape, 0, 0
            yield FREE, number
            gradients.append(made)
            made += 1
        done += layers * 6
        if drawn.random() < 0.05:
            yield (EMPTY,)


_KINDS: dict[str, Callable[[random.Random, int], Iterator[Operation]]] = {
    "tiny": _plain(lambda drawn: _between(drawn, 1, 64 * KIB)),
    "powers of two": _plain(lambda drawn: lambda: 1 << drawn.randrange(9, 29)),
    "edges": _plain(lambda drawn: lambda: drawn.choice(_EDGES)),
    "any size": _plain(lambda drawn: _often(drawn, _between(drawn, 1, GIB))),
    "training": _training,
    "near capacity": _plain(lambda drawn: _often(drawn, _between(drawn, 256 * MIB, 12 * GIB))),
    "capped": _plain(lambda drawn: _often(drawn, _between(drawn, 1, GIB))),
    "streams": _streams,
    "MemPools": _pools,
    "graphs": _captures,
}
KINDS = tuple(_KINDS)
