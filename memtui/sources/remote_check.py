"""Messages that only a far end that means no good would send: numbers that point nowhere.

What an agent of this user on this machine says is believed; another machine's words are looked at first, for whoever
draws them goes by their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memtui.wire.codec import CodecError
from memtui.wire.frames import FREE_PIECE, PENDING_PIECE, BackwardGraph, RecordedHeap, RecordedStep, Segments


def checked(message: Any) -> Any:
    """The message itself; raises CodecError."""
    if isinstance(message, RecordedStep):
        _step(message)
    elif isinstance(message, Segments):
        _segments(message)
    elif isinstance(message, BackwardGraph):
        _graph(message)
        for step in message.forward:
            _step(step)
    return message


def _step(step: RecordedStep) -> None:
    events = len(step.event_us)
    _require(all(0 <= mark.event <= events for mark in step.marks), "a phase that begins nowhere")
    limits = (len(step.categories), len(step.names), len(step.sites), len(step.modules))
    for block in step.blocks:
        _require(len(block) == 7, "a block that is none")
        born, died, size, *kinds = block
        _require(-1 <= born < events and -1 <= died < events and size >= 0, "a block of no event")
        _require(all(-1 <= kind < limit for kind, limit in zip(kinds, limits)), "a block of nobody's")
    if step.heap is not None:
        _heap(step.heap, len(step.blocks), events)


def _heap(heap: RecordedHeap, blocks: int, events: int) -> None:
    _shaped(heap.segments, 6)
    _shaped(heap.pending, 2)
    _shaped(heap.late, 2)
    for column in (heap.places, heap.asked_bytes, heap.streams):
        _require(len(column) in (0, blocks), "a heap of other blocks")
    _require(all(0 <= block < blocks and 0 <= event <= events for block, event in heap.late), "a block that is none")
    _require(all(0 <= event <= events for event in heap.emptied), "an event that is none")


def _segments(found: Segments) -> None:
    _shaped(found.segments, 7)
    _shaped(found.pieces, 4)
    counts = [segment[6] for segment in found.segments]
    _require(min(counts, default=0) >= 0 and sum(counts) == len(found.pieces), "segments without their pieces")
    kinds = {FREE_PIECE, PENDING_PIECE, *range(len(found.categories))}
    for size, kind, count, name in found.pieces:
        _require(size >= 0 and count >= 0 and kind in kinds and -1 <= name < len(found.names), "a piece of nobody's")


def _graph(graph: BackwardGraph) -> None:
    nodes, shapes = len(graph.nodes), len(graph.shapes)
    _require(0 <= graph.roots <= nodes and len(graph.saved) == len(graph.ops), "a graph without roots")
    for shape in graph.shapes:
        _require(len(shape) >= 2 and 0 <= shape[0] < len(graph.devices), "a shape of no device")
    for node in graph.nodes:
        _require(
            len(node) >= 3 and 0 <= node[0] < len(graph.ops) and 0 <= node[2] <= len(node) - 3, "a node of no kind"
        )
        outputs, edges = node[3 : 3 + node[2]], node[3 + node[2] :]
        _require(all(-1 <= shape < shapes for shape in outputs), "a node of no shape")
        _require(len(edges) % 2 == 0 and all(-1 <= other < nodes for other in edges[::2]), "an edge to nowhere")


def _shaped(rows: Sequence[tuple[int, ...]], length: int) -> None:
    _require(all(len(row) == length for row in rows), "rows of another length")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise CodecError(f"it has {what}")
