"""A backward pass, run through without any data: what it will have allocated at its highest, and at its end.

As torch's engine does it: of the functions that are ready that of the latest forward runs first, and leaves as soon as
they can. A function's gradients are made, then the ones it was given go, then what it has kept. A gradient that passes
unchanged is the same block; two for one tensor are added, in place where nothing else has the first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

from .graph import Graph, Node
from .kept import Kept, is_silent, kept_by
from .workspaces import MULTIPLY, Processor, beside

#: Functions that hand on the gradient that they are given, whole or a part of it.
_HANDS_ON = frozenset(
    f"{name}Backward{number}"
    for name in (
        *("View", "UnsafeView", "T", "Transpose", "Permute", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias"),
        *("Add", "Sub", "Cat", "Mean", "Sum"),
    )
    for number in range(3)
)
#: Where functions keep so much more than is there, they do not keep it: it is computed again, or kept elsewhere.
_COMPUTED_AGAIN = 1.3
#: Where they keep less than this of what is there, too little is known of them.
_KNOWN_SHARE = 0.3


#: A block that the pass makes is known by its number, one that it finds by what it is kept for.
Block = Union[int, tuple[str, int, int]]
WORKSPACE: Block = -1


class Act(NamedTuple):
    """A block is made, or goes where `bytes_held` is 0."""

    block: Block
    bytes_held: int = 0


@dataclass(frozen=True)
class Pass:
    """Bytes above what is allocated when the pass begins; `end_bytes` may be below 0.

    `settled_peak_bytes` is the peak of a later pass, whose thread has its workspace already; `adding_peak_bytes` of
    one whose gradients are added to those there, beside these; `leaf_bytes` of the tensors that get a gradient.
    `computed_again`: more is kept by the graph than is there, so the peak may be higher.
    `whole`: no function of Python's own is in it, which may run passes of their own. `acts` is all of it in order;
    `found` is what it finds kept, in the order in which the forward has made that; `gradients` are what it leaves,
    and `leaves` the bytes of what they are of, about in the order of the forward.
    """

    peak_bytes: int
    settled_peak_bytes: int
    adding_peak_bytes: int
    end_bytes: int
    leaf_bytes: int
    computed_again: bool
    whole: bool
    acts: tuple[Act, ...] = ()
    found: tuple[Act, ...] = ()
    gradients: frozenset[Block] = frozenset()
    leaves: tuple[int, ...] = ()


def run(graph: Graph, held_bytes: int, workspace_bytes: int, processor: Optional[Processor] = None) -> Optional[Pass]:
    """The pass, where `held_bytes` are allocated for activations when it begins; None where too little is known.

    `workspace_bytes` is what cuBLAS takes for each thread.
    """
    kept = kept_by(graph)
    found = list({each.key: each for node in kept for each in node}.values())
    total = sum(each.bytes_held for each in found)
    silent = [place for place, node in enumerate(graph.nodes) if is_silent(node)]
    if silent and held_bytes > total:  # what nobody else explains is theirs
        for place in silent:
            kept[place].append(Kept(("rest", place, 0), (held_bytes - total) // len(silent)))
        total = held_bytes
    if total < _KNOWN_SHARE * held_bytes:
        return None
    # More than there is can only be known wrongly.
    scale = min(1.0, held_bytes / total) if total else 1.0
    course = _Course(graph, kept, scale, workspace_bytes, processor)
    course.run()
    return Pass(
        course.peak_bytes,
        course.settled_peak_bytes,
        course.adding_peak_bytes,
        course.live_bytes,
        graph.leaf_bytes,
        total > _COMPUTED_AGAIN * max(1, held_bytes),
        not silent,
        tuple(course.acts),
        tuple(Act(*each) for each in sorted(found, key=lambda each: (graph.nodes[each.key[1]].sequence, each.key[2]))),
        frozenset(course.gradients),
        graph.leaves(),
    )


class _Block:
    __slots__ = ("bytes_held", "number", "users")

    def __init__(self, bytes_held: int, number: int) -> None:
        self.bytes_held, self.number, self.users = bytes_held, number, 0


class _Course:
    """One run through a graph."""

    def __init__(
        self, graph: Graph, kept: list[list[Kept]], scale: float, workspace_bytes: int, processor: Optional[Processor]
    ) -> None:
        self._graph, self._kept, self._processor = graph, kept, processor
        self._scale = scale
        self._keepers = Counter(each.key for node in kept for each in node)
        self._waits = Counter(edge[0] for node in graph.nodes for edge in node.edges if edge is not None)
        self._given: dict[tuple[int, int], _Block] = {}  # gradients by the output that they are of
        self.live_bytes = self.peak_bytes = self.settled_peak_bytes = self.adding_peak_bytes = 0
        self._stored_bytes = 0  # of gradients that have reached their tensors
        multiplies = any(node.op in MULTIPLY for node in graph.nodes)
        self._workspace_to_come = workspace_bytes if multiplies else 0
        self.acts: list[Act] = []
        self.gradients: set[Block] = set()
        self._count = 0

    def run(self) -> None:
        """To the end."""
        ready: list[tuple[int, int]] = []
        for place in self._graph.roots:
            if self._waits[place]:
                continue
            root = self._graph.nodes[place]
            self._put((place, 0), self._made(root.outputs[0].bytes_held if root.outputs else 0))
            heapq.heappush(ready, (self._rank(place), place))
        while ready:
            _, place = heapq.heappop(ready)
            for following in self._step(place, self._graph.nodes[place]):
                heapq.heappush(ready, (self._rank(following), following))

    def _rank(self, place: int) -> int:
        node = self._graph.nodes[place]
        return -(1 << 62) if node.is_leaf else -node.sequence

    def _step(self, place: int, node: Node) -> list[int]:
        """Runs one function; the nodes that are ready then."""
        given = [self._given.pop((place, number), None) for number in range(len(node.outputs))]
        if node.is_leaf:
            if given and given[0] is not None:
                self._store(node, given[0])
            return []
        if self._workspace_to_come and node.op in MULTIPLY:
            self.live_bytes += self._workspace_to_come
            self.acts.append(Act(WORKSPACE, self._workspace_to_come))
            self._workspace_to_come = 0
        results = [self._result(node, edge, given[0] if given else None) for edge in node.edges]
        extra = beside(self._graph, node, self._processor)
        self._notice(extra)
        if extra:
            self._gone(self._made(extra))
        for block in given:
            self._drop(block)
        for each in self._kept[place]:
            self._keepers[each.key] -= 1
            if not self._keepers[each.key]:
                self.live_bytes -= int(each.bytes_held * self._scale)
                self.acts.append(Act(each.key))
        return self._hand_on(node, results)

    def _hand_on(self, node: Node, results: list[Optional[_Block]]) -> list[int]:
        ready = []
        for edge, block in zip(node.edges, results):
            if edge is None:
                continue
            if block is not None:
                self._add(edge, block)
            self._waits[edge[0]] -= 1
            if not self._waits[edge[0]]:
                ready.append(edge[0])
        return ready

    def _result(self, node: Node, edge: Optional[tuple[int, int]], given: Optional[_Block]) -> Optional[_Block]:
        if edge is None:
            return None
        size = self._graph.nodes[edge[0]].outputs[edge[1]].bytes_held
        same = node.op in _HANDS_ON and given is not None and given.bytes_held >= size
        block = given if same and given is not None else self._made(size)
        block.users += 1
        return block

    def _add(self, edge: tuple[int, int], block: _Block) -> None:
        """To the gradient of an output, which may have one already; `block` is used up."""
        before = self._given.get(edge)
        if before is None:
            self._given[edge] = block
            return
        if before.users > 1:
            total = self._made(self._graph.nodes[edge[0]].outputs[edge[1]].bytes_held)
            total.users = 1
            self._given[edge] = total
            self._notice()
            self._drop(before)
        self._drop(block)

    def _store(self, leaf: Node, block: _Block) -> None:
        """As a leaf's gradient: the block itself, or one of its own where something else has it too or it is larger."""
        size = leaf.outputs[0].bytes_held
        if block.users > 1 or block.bytes_held > size:
            own = self._made(size)
            self._notice()
            self._drop(block)
            block = own
        self.gradients.add(block.number)
        self._stored_bytes += size

    def _put(self, output: tuple[int, int], block: _Block) -> None:
        block.users += 1
        self._given[output] = block

    def _made(self, size: int) -> _Block:
        self.live_bytes += size
        self._count += 1
        self.acts.append(Act(self._count, size))
        return _Block(size, self._count)

    def _drop(self, block: Optional[_Block]) -> None:
        if block is None:
            return
        block.users -= 1
        if not block.users:
            self._gone(block)

    def _gone(self, block: _Block) -> None:
        self.live_bytes -= block.bytes_held
        self.acts.append(Act(block.number))

    def _notice(self, extra: int = 0) -> None:
        self.peak_bytes = max(self.peak_bytes, self.live_bytes + extra)
        # A later pass has the workspace from its beginning.
        settled = self.live_bytes + extra + self._workspace_to_come
        self.settled_peak_bytes = max(self.settled_peak_bytes, settled)
        self.adding_peak_bytes = max(self.adding_peak_bytes, settled - self._stored_bytes)
