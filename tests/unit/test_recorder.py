"""A recorded step from a made-up history: pairs, categories, names, sites and what does not fit."""

from __future__ import annotations

from typing import Any, Optional

from memtui.agent.recorded import peak_bytes, recorded_steps, without_sites
from memtui.agent.recording import Boundary, Count, Recording, Submodules
from memtui.wire.frames import CATEGORIES, Mark, RecordedStep

MIB = 1 << 20
START = 1 << 40
WALL_NS = 1_700_000_000_000_000_000
TORCH = "/site-packages/torch"


def nothing() -> None:
    return None


class History:
    """A step of one device, written down event by event; each takes a microsecond."""

    def __init__(self, *before: int) -> None:
        self.live: dict[int, int] = {}
        self.free: dict[int, int] = {}
        self.events = self.peak = 0
        self.now_us = 1000
        self.entries: list[dict[str, Any]] = [{"action": "snapshot", "addr": 0, "size": 0, "time_us": self.wall()}]
        self.next = START
        for size in before:
            self.live[self.place(size)] = size
        self.before = self.snapshot()
        self.boundaries: list[Boundary] = []
        self.boundary("between")

    def wall(self) -> int:
        return WALL_NS // 1000 + self.now_us

    def place(self, size: int) -> int:
        address, self.next = self.next, self.next + size
        return address

    def snapshot(self) -> dict[str, Any]:
        # Each block in an expandable segment of its own: what is asked for is what it gets, rounded.
        segments = [
            {
                "device": 0,
                "address": address,
                "segment_type": "large",
                "is_expandable": True,
                "blocks": [{"size": size, "state": "active_allocated"}],
            }
            for address, size in self.live.items()
        ]
        return {"segments": segments, "device_traces": [list(self.entries)]}

    def alloc(self, size: int, *frames: tuple[str, int, str]) -> int:
        address = self.place(size)
        self.live[address] = size
        self.entry("alloc", address, size, frames)
        self.peak = max(self.peak, sum(self.live.values()))
        return address

    def drop(self, address: int) -> None:
        size = self.live.pop(address)
        self.entry("free_requested", address, size, ())
        self.entries.append({"action": "free_completed", "addr": address, "size": size, "time_us": self.wall()})

    def entry(self, action: str, address: int, size: int, frames: Any) -> None:
        self.now_us += 1
        self.events += 1
        found = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
        self.entries.append({"action": action, "addr": address, "size": size, "time_us": self.wall(), "frames": found})

    def boundary(self, phase: str, owners: Any = None, *, noted: bool = False, peak: Optional[int] = None) -> None:
        boundary = Boundary(self.now_us * 1000 + 500, phase)
        if not noted:
            allocated = sum(self.live.values())
            self.peak = max(self.peak, allocated)
            boundary.counts = {0: Count(100 + self.events, allocated, self.peak if peak is None else peak)}
            boundary.owners = owners or {}
        self.boundaries.append(boundary)

    def recorded(self, **options: Any) -> RecordedStep:
        values: dict[str, Any] = {
            "step": 7,
            "wall_offset_ns": WALL_NS,
            "max_entries": 1000,
            "devices": (0,),
            "boundaries": self.boundaries,
            "before": self.before,
            "after": self.snapshot(),
            **options,
        }
        (step,) = recorded_steps(Recording(**values), TORCH, nothing)
        return step


def categories(step: RecordedStep) -> dict[int, str]:
    """By size: the tests give each block its own."""
    return {block[2]: CATEGORIES[block[3]] for block in step.blocks}


def test_a_step_from_end_to_end() -> None:
    history = History(5 * MIB, 3 * MIB, 1024)
    weight, old, lost = history.live
    history.boundaries[0].owners = {weight + 512: ("parameters", "weight"), old: ("gradients", "weight (gradient)")}
    history.drop(old)
    batch = history.alloc(2 * MIB)
    history.boundary("forward")
    kept, brief = history.alloc(6 * MIB), history.alloc(4 * MIB)
    history.drop(brief)
    history.boundary("backward")
    gradient, working = history.alloc(7 * MIB), history.alloc(8 * MIB)
    history.drop(working)
    history.drop(kept)
    history.boundary("between", noted=True)
    norm = history.alloc(512)
    history.drop(norm)
    history.boundary("optimizer", {gradient: ("gradients", "weight (gradient)"), weight: ("parameters", "weight")})
    state, workspace = history.alloc(9 * MIB), history.alloc(10 * MIB)
    history.boundary("between", {state: ("optimizer_state", "weight exp_avg")})
    step = history.recorded(workspaces=frozenset({10 * MIB}), known={0: {lost: (1024, "inputs")}})

    assert (step.step, step.device, step.before_bytes, step.notices) == (7, "cuda:0", 8 * MIB + 1024, ())
    assert categories(step) == {
        5 * MIB: "parameters",
        3 * MIB: "gradients",
        1024: "inputs",
        2 * MIB: "inputs",
        6 * MIB: "activations",
        4 * MIB: "temporaries",
        7 * MIB: "gradients",
        8 * MIB: "temporaries",
        512: "temporaries",
        9 * MIB: "optimizer_state",
        10 * MIB: "workspaces",
    }
    lives = {block[2]: block[:2] for block in step.blocks}
    assert lives[5 * MIB] == (-1, -1)
    assert lives[3 * MIB] == (-1, 0)
    assert lives[4 * MIB] == (3, 4)
    assert lives[2 * MIB] == (1, -1)
    marks = [(0, "between"), (2, "forward"), (5, "backward"), (9, "between"), (11, "optimizer")]
    assert [(mark.event, mark.phase) for mark in step.marks] == marks
    assert step.event_us == tuple(range(len(step.event_us)))
    names = {block[2]: step.names[block[4]] for block in step.blocks if block[4] >= 0}
    assert names[9 * MIB] == "weight exp_avg"
    assert names[7 * MIB] == names[3 * MIB] == "weight (gradient)"
    assert peak_bytes(step) == step.counted_peak_bytes == history.peak
    assert batch in history.live
    assert workspace in history.live


def test_several_batches_a_step() -> None:
    """What comes between a backward and the next forward is that one's input, before the optimizer a temporary."""
    history = History()
    for number in (1, 2):
        history.boundary("forward")
        kept = history.alloc(number * 10 * MIB)
        history.boundary("backward")
        history.drop(kept)
        history.boundary("between", noted=True)
        history.alloc(number * MIB)
    history.boundary("optimizer")
    history.alloc(512)
    history.boundary("between")
    assert categories(history.recorded()) == {
        10 * MIB: "activations",
        1 * MIB: "inputs",
        20 * MIB: "activations",
        2 * MIB: "temporaries",
        512: "temporaries",
    }


def test_events_that_were_lost_are_said_and_the_rest_adds_up() -> None:
    history = History(MIB)
    (first,) = history.live
    early = history.alloc(2 * MIB)
    history.boundary("forward")
    history.alloc(3 * MIB)
    history.drop(first)
    history.boundary("backward")
    history.drop(early)
    history.alloc(4 * MIB)
    history.boundary("between")
    del history.entries[:3]  # the beginning's snapshot and two events
    step = history.recorded(max_entries=len(history.entries))
    assert step.lost_events == 2
    assert step.before_bytes == 6 * MIB
    assert sorted(block[:3] for block in step.blocks) == [
        (-1, -1, 3 * MIB),
        (-1, 0, MIB),
        (-1, 1, 2 * MIB),
        (2, -1, 4 * MIB),
    ]
    assert [(mark.event, mark.phase) for mark in step.marks] == [(0, "forward"), (1, "backward")]
    assert any("more events than are kept" in notice for notice in step.notices)


def test_a_program_that_sets_the_counters_back() -> None:
    """Boundaries are placed by their time then, and no peak is called the step's."""
    history = History(MIB)
    history.boundary("forward")
    history.alloc(2 * MIB)
    history.boundary("backward", peak=0)
    history.alloc(3 * MIB)
    history.boundary("between")
    history.boundaries[2].counts[0] = Count(1, 3 * MIB, 0)
    step = history.recorded()
    assert [(mark.event, mark.phase) for mark in step.marks] == [(0, "forward"), (1, "backward")]
    assert step.counted_peak_bytes is None
    assert peak_bytes(step) == 6 * MIB


def test_what_does_not_fit_is_said() -> None:
    history = History(MIB)
    history.alloc(2 * MIB)
    history.boundary("between")
    history.entries.append({"action": "free_requested", "addr": 5, "size": 1, "time_us": history.wall()})
    history.boundaries[-1].counts[0] = Count(101, 4 * MIB, 4 * MIB)
    step = history.recorded()
    assert any("1 events do not fit" in notice for notice in step.notices)
    assert any(f"up to {MIB} bytes" in notice for notice in step.notices)


def test_sites_are_the_programs_own_lines() -> None:
    history = History()
    own, torchs = ("/home/me/train.py", 12, "forward"), (f"{TORCH}/nn/linear.py", 134, "forward")
    history.alloc(512, torchs, own, torchs, ("/home/me/train.py", 30, "<module>"))
    history.alloc(1024, torchs, torchs)
    history.alloc(2048)
    history.boundary("between")
    step = history.recorded()
    sites = [step.sites[block[5]] if block[5] >= 0 else None for block in step.blocks]
    assert sites == [
        "/home/me/train.py:12 forward\n/home/me/train.py:30 <module>",
        f"{TORCH}/nn/linear.py:134 forward\n{TORCH}/nn/linear.py:134 forward",
        None,
    ]
    shorter = without_sites(step)
    assert {block[5] for block in shorter.blocks} == {-1}
    assert not shorter.sites
    assert shorter.blocks[0][:5] == step.blocks[0][:5]


def test_the_module_that_ran_is_the_one_on_the_stack_that_was_called_last() -> None:
    """`blocks.0` and `blocks.1` have one class, each with a child; the root goes on after the last of them."""
    file = "/home/me/model.py"
    root, block, leaf = (file, "forward", 10, 19), (file, "forward", 20, 29), (file, "forward", 30, 39)
    history = History()
    history.boundary("forward")
    calls = []

    def called(place: int) -> None:
        history.now_us += 1
        calls.append((history.now_us * 1000 + 500, place))
        history.now_us += 1

    stack = [(file, 31, "forward"), (file, 21, "forward"), (file, 11, "forward"), (file, 99, "train")]
    called(0)
    for place in (1, 3):
        called(place)
        called(place + 1)
        history.alloc(512, *stack)  # in the leaf
        history.alloc(1024, *stack[1:])  # in the block, when the leaf has returned
    history.alloc(2048, *stack[2:])
    history.alloc(4096, *stack[3:])
    history.boundary("between")
    submodules = Submodules(
        names=("", "blocks.0", "blocks.0.leaf", "blocks.1", "blocks.1.leaf"),
        parents=(-1, 0, 1, 0, 3),
        spans=(root, block, leaf, block, leaf),
        calls=calls,
    )
    step = history.recorded(submodules=submodules)
    found = [step.modules[block[6]] if block[6] >= 0 else None for block in step.blocks]
    assert found == ["blocks.0.leaf", "blocks.0", "blocks.1.leaf", "blocks.1", "", None]
    assert step.marks == (Mark(0, "forward"),)


def test_what_the_step_began_with_and_asked_for() -> None:
    """The memory of the beginning and the bytes asked for, so that the step can be done again."""
    history = History(4 * MIB, 8 * MIB)
    first, second = history.live
    made = history.alloc(3 * MIB + 5)
    history.entries[-1]["stream"] = 77
    history.drop(made)
    late = history.alloc(MIB)
    history.entries[-1]["pool_id"] = (0, 3)
    history.drop(late)
    done = history.entries.pop()
    history.drop(second)
    history.entries.append({**done, "time_us": history.wall()})
    history.entries.append({"action": "segment_free", "addr": second, "size": 8 * MIB, "time_us": history.wall()})
    history.alloc(2 * MIB)
    history.boundary("between")
    step = history.recorded()
    heap = step.heap
    assert heap is not None
    assert heap.base_address == first
    assert heap.segments == ((0, 8192, 0, 0, 1, 0), (8192, 16384, 0, 0, 1, 0))
    assert heap.asked_bytes == (0, 0, 3 * MIB + 5, -1, 2 * MIB)
    assert heap.streams == (0, 0, 1, 0, 0)
    assert [heap.base_address + 512 * place for place in heap.places[:3]] == [first, second, made]
    assert heap.late == ((3, 5),)  # one event after it was asked for
    assert heap.emptied == (5,)
