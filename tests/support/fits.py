"""What the fragmentation prompt says of a state of torch's allocator, beside what that allocator then did."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from memtui.agent.names import Selected
from memtui.agent.segments import message
from memtui.agent.tensors import Memory, Taken
from memtui.analysis.allocator.fits import Fit
from memtui.analysis.segments.space import Limits
from memtui.analysis.segments.summary import Space
from memtui.wire import codec


class Answered(NamedTuple):
    """One request in one state; `real` is in the prompt's words."""

    number: int
    kind: str
    told: Fit
    real: str
    capped: bool
    shared: bool  # with another process
    private: bool  # some of it is in private pools
    expandable: bool
    largest_bytes: int
    drawn: bool  # at random, not the largest that is foretold nor the next larger one

    @property
    def unsure(self) -> bool:
        """Whether the answer is that it hangs on something."""
        return self.told.how == "perhaps"

    @property
    def succeeds(self) -> bool:
        """Whether success and failure were foretold, or that it hangs on what is not told."""
        return self.unsure or (self.told.how == "no") == (self.real == "no")

    @property
    def equal(self) -> bool:
        """Also from where."""
        return self.unsure or self.told.how == self.real

    @property
    def largest_holds(self) -> bool:
        """Whether the largest that was foretold succeeded where it was asked for, and nothing larger did."""
        size = self.told.asked_bytes
        if size == self.largest_bytes:
            return self.real != "no"
        return size < self.largest_bytes or self.real == "no" or self.unsure


def answered(folder: pathlib.Path) -> Iterator[Answered]:
    """All that tests/bench/programs/fits.py has written."""
    with (folder / "states").open(encoding="utf-8") as written:
        for line in written:
            yield _answered(json.loads(line))


def space_of(state: dict[str, Any]) -> Space:
    """By the message that an agent would send of that state, there and back."""
    segments = state["snapshot"]["segments"]
    live: dict[int, int] = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            block["address"] = address
            if block["state"] == "active_allocated":
                live[address] = block["size"]
            address += block["size"]
    memory = Memory("cuda:0", sum(live.values()), live, segments)
    settings = state["snapshot"]["allocator_settings"]
    taken = Taken(0, 0, "between", [memory], Selected(), wanted=frozenset(("segments",)), settings=settings)
    sent = codec.decode(codec.encode(message(taken, memory))[4:])
    limits = Limits(
        capacity_bytes=state["free_bytes"] + state["reserved_bytes"],
        allowed_bytes=int(state["fraction"] * state["total_bytes"]) if state["fraction"] < 1 else None,
        total_bytes=state["total_bytes"],
    )
    space = Space(sent, limits)
    assert space.reserved_bytes == state["reserved_bytes"]
    return space


def _answered(state: dict[str, Any]) -> Answered:
    space, asked = space_of(state), state["asked"]
    largest = space.largest.bytes_at_all
    assert largest is not None
    return Answered(
        number=state["number"],
        kind=state["kind"],
        told=space.ask(asked["size"]),
        real=_really(asked),
        capped=state["fraction"] < 1,
        shared=state["others_bytes"] > 0,
        private=any(segment.private for segment in space.segments),
        expandable=bool(state["snapshot"]["allocator_settings"]["expandable_segments"]),
        largest_bytes=largest,
        drawn=state["drawn"],
    )


def _really(asked: dict[str, Any]) -> str:
    if not asked["succeeded"]:
        return "no"
    if asked["num_alloc_retries"] or asked["num_device_free"]:
        return "returned"
    return "driver" if asked["reserved_bytes"] else "cache"
