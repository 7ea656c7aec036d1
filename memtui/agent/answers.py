"""What viewers can ask for that is noted at one boundary, and the messages that answer it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ..wire.frames import Segments, Tensors
from . import segments, tensors
from .tensors import Taken

REQUESTS = frozenset(("tensors", "segments"))


def messages(taken: Taken) -> Iterator[Union[Tensors, Segments]]:
    """A message a device of each kind that was asked for."""
    if "tensors" in taken.wanted:
        yield from tensors.messages(taken)
    if "segments" in taken.wanted:
        for memory in taken.memories:
            yield segments.message(taken, memory)
