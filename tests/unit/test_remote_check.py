"""Numbers that point nowhere are refused before anybody goes by them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.sources.remote_check import checked
from memtui.wire.codec import CodecError
from memtui.wire.frames import FREE_PIECE, BackwardGraph, Mark, RecordedHeap, RecordedStep, Segments

_HEAP = RecordedHeap(0, ((0, 8, 0, 0, 0, 0),), (), (0, 4), (100, 0), (), ((1, 2),), (1,))
_STEP = RecordedStep(
    *("cuda:0", 3, 50, 1, 1, 512, None, (0, 5, 9), (Mark(0, "forward"), Mark(3, "between"))),
    *(((-1, 2, 512, 0, -1, 0, -1), (0, -1, 1024, -1, 0, -1, 0)), ("activations",), ("weight",), ("f.py:1 f",), ("",)),
    heap=_HEAP,
)
_SEGMENTS = Segments(
    *(5, 1, "forward", "cuda:0", 512, 0, ((0, 8, 0, 0, 0, 0, 2),), ((1, 0, 1, -1), (7, FREE_PIECE, 0, -1))),
    categories=("parameters",),
)
_GRAPH = BackwardGraph(
    *(5, 1, 1, ("AddBackward0", "AccumulateGrad"), ("", ""), ("cuda:0",), ((0, 4, 8),)),
    nodes=((0, 7, 1, 0, 1, 0, -1, -1), (1, -1, 1, 0)),
    forward=(_STEP,),
)


@pytest.mark.parametrize(
    "message", [_STEP, _SEGMENTS, _GRAPH, replace(_STEP, heap=None), replace(_STEP, blocks=(), heap=None)]
)
def test_what_is_as_it_should_be_passes(message: object) -> None:
    assert checked(message) is message


@pytest.mark.parametrize(
    "message",
    [
        replace(_STEP, blocks=((0, 1, 2),), heap=None),
        replace(_STEP, blocks=((3, -1, 1, -1, -1, -1, -1),), heap=None),
        replace(_STEP, blocks=((0, -2, 1, -1, -1, -1, -1),), heap=None),
        replace(_STEP, blocks=((0, -1, 1, 1, -1, -1, -1),), heap=None),
        replace(_STEP, blocks=((0, -1, 1, -1, -1, -1, 9),), heap=None),
        replace(_STEP, marks=(Mark(4, "forward"),)),
        replace(_STEP, heap=replace(_HEAP, places=(0,))),
        replace(_STEP, heap=replace(_HEAP, segments=((0, 8),))),
        replace(_STEP, heap=replace(_HEAP, late=((2, 0),))),
        replace(_STEP, heap=replace(_HEAP, emptied=(-1,))),
        replace(_SEGMENTS, segments=((0, 8, 0, 0, 0, 0, 3),)),
        replace(_SEGMENTS, pieces=((1, 0, 1, -1), (7, 1, 0, -1))),
        replace(_SEGMENTS, pieces=((1, 0, 1, 0), (7, -1, 0, -1))),
        replace(_GRAPH, roots=3),
        replace(_GRAPH, saved=()),
        replace(_GRAPH, shapes=((1, 4),)),
        replace(_GRAPH, nodes=((2, 7, 0),)),
        replace(_GRAPH, nodes=((0, 7, 9, 0),)),
        replace(_GRAPH, nodes=((0, 7, 1, 1),)),
        replace(_GRAPH, nodes=((0, 7, 0, 5, 0),)),
        replace(_GRAPH, forward=(replace(_STEP, marks=(Mark(-1, "forward"),)),)),
    ],
)
def test_what_points_nowhere_is_refused(message: object) -> None:
    with pytest.raises(CodecError):
        checked(message)
