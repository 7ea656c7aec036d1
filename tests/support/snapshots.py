"""Memory snapshots as torch writes them, small and made up."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any, Optional

from memtui.snapshots.model import Snapshot, snapshot_from
from memtui.snapshots.queries import Opened

KIB, MIB = 1 << 10, 1 << 20
BASE = 0x7F00_0000_0000
MODULE = "/env/lib/python3.11/site-packages/torch/nn/modules/module.py"
OPTIMIZER = "/env/lib/python3.11/site-packages/torch/optim/adamw.py"


def frame(filename: str, line: int, name: str) -> dict[str, Any]:
    """One call."""
    return {"name": name, "filename": filename, "line": line}


#: From the innermost, as torch has them.
FORWARD = [
    frame("/home/me/model.py", 7, "forward"),
    frame(MODULE, 1794, "_call_impl"),
    frame("/home/me/train.py", 3, "<module>"),
]
MOVING = [frame(MODULE, 933, "_apply"), frame("/home/me/train.py", 1, "<module>")]
_CALLS = [frame(MODULE, 1794, "_call_impl"), frame(MODULE, 1783, "_wrapped_call_impl")]
_MAIN = [frame("/home/me/train.py", 51, "main"), frame("/home/me/train.py", 54, "<module>")]
STEPPING = [frame(OPTIMIZER, 100, "_init_group"), frame("/home/me/train.py", 5, "<module>")]


def event(
    action: str, address: int, size_bytes: int, time_us: int, frames: Any = FORWARD, **more: Any
) -> dict[str, Any]:
    """An entry of a trace; the address is counted from BASE."""
    place = {"device_free": address} if action == "oom" else {"addr": BASE + address}
    told = {"action": action, **place, "size": size_bytes, "stream": 0, "time_us": 1_700_000_000_000_000 + time_us}
    return {**told, "compile_context": "N/A", "user_metadata": "", "frames": list(frames), **more}


def block(
    size_bytes: int, state: str = "inactive", frames: Any = (), requested: Optional[int] = None
) -> dict[str, Any]:
    """A block, without its address, which `segment` gives."""
    asked = size_bytes if requested is None else requested
    return {"size": size_bytes, "requested_size": asked, "state": state, "frames": list(frames)}


def segment(address: int, *blocks: dict[str, Any], device: int = 0, **more: Any) -> dict[str, Any]:
    """A segment of these blocks, its totals as they are."""
    place = BASE + address
    placed = []
    for each in blocks:
        placed.append({**each, "address": place})
        place += each["size"]
    live = sum(each["size"] for each in blocks if each["state"] == "active_allocated")
    return {
        "device": device,
        "address": BASE + address,
        "total_size": sum(each["size"] for each in blocks),
        "allocated_size": live,
        "active_size": live,
        "requested_size": live,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": placed,
        **more,
    }


def raw(segments: list[Any], *traces: list[Any]) -> dict[str, Any]:
    """What torch's `_snapshot` returns."""
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "roundup_power2_divisions": {"1": 0}}
    told = {"allocator_settings": settings, "external_annotations": []}
    return {"segments": segments, "device_traces": list(traces), **told}


def training() -> dict[str, Any]:
    """30 MiB of parameters from before the recording, activations that come and go, a request of 1 GiB that failed.

    After each of the ten events are allocated, in MiB: 30 30 34 40 36 36 30 30 38 38, from 30 at the start.
    """
    trace = [
        event("segment_alloc", 40 * MIB, 20 * MIB, 0),
        event("alloc", 40 * MIB, 4 * MIB, 10),
        event("alloc", 44 * MIB, 6 * MIB, 20),
        event("free_requested", 40 * MIB, 4 * MIB, 30, ()),
        event("free_completed", 40 * MIB, 4 * MIB, 31, ()),
        event("free_requested", 44 * MIB, 6 * MIB, 40, ()),
        event("free_completed", 44 * MIB, 6 * MIB, 41, ()),
        event("alloc", 40 * MIB, 8 * MIB, 50, STEPPING),
        event("oom", 3 * MIB, 1024 * MIB, 60),
    ]
    segments = [
        segment(0, block(30 * MIB, "active_allocated"), block(2 * MIB)),
        segment(40 * MIB, block(8 * MIB, "active_allocated", STEPPING), block(12 * MIB)),
    ]
    return raw(segments, trace)


def layered(layers: int = 12, steps: int = 2, layer_bytes: int = 8 * MIB) -> dict[str, Any]:
    """Steps of a network of so many layers: parameters, activations by layer, gradients, optimizer state.

    The parameters are moved while it is recorded, gradients have no Python stack, and the last event is a request that
    failed. What is live at the end has its events' stacks, in one segment for each kind.
    """
    trace: list[Any] = []
    live: dict[int, tuple[int, Any]] = {}
    clock = 0
    spacing = {0: layer_bytes, 1: 5 * layer_bytes, 2: layer_bytes, 3: 2 * layer_bytes}

    def happen(action: str, place: int, size_bytes: int, frames: Any) -> None:
        nonlocal clock
        clock += 400
        trace.append(event(action, place, size_bytes, clock, frames))

    def take(kind: int, layer: int, size_bytes: int, frames: Any) -> None:
        place = kind << 30 | layer * spacing[kind]
        happen("alloc", place, size_bytes, frames)
        live[place] = (size_bytes, frames)

    def give(kind: int, layer: int) -> None:
        place = kind << 30 | layer * spacing[kind]
        size_bytes, _ = live.pop(place)
        for action in ("free_requested", "free_completed"):
            happen(action, place, size_bytes, [])

    def layer_stack(layer: int) -> list[dict[str, Any]]:
        line = 20 + 4 * (layer % 3)
        return [frame("/home/me/model.py", line, "forward"), *_CALLS, frame("/home/me/train.py", 31, "train"), *_MAIN]

    moving = [frame(MODULE, 933, "_apply"), frame("/home/me/train.py", 12, "build"), *_MAIN]
    stepping = [frame(OPTIMIZER, 100, "_init_group"), frame("/home/me/train.py", 33, "train"), *_MAIN]
    for kind, apart_bytes in spacing.items():
        happen("segment_alloc", kind << 30, layers * apart_bytes, moving)
    for layer in range(layers):
        take(0, layer, layer_bytes, moving)
    for step in range(steps):
        for layer in range(layers):
            take(1, layer, (3 + layer % 3) * layer_bytes, layer_stack(layer))
        for layer in reversed(range(layers)):
            take(2, layer, layer_bytes, [])
            give(1, layer)
        for layer in range(layers):
            if not step:
                take(3, layer, 2 * layer_bytes, stepping)
            give(2, layer)
    failed = event("oom", 300 * MIB, 4 << 30, clock + 400, layer_stack(0))
    trace.append(failed)
    segments = []
    for kind, apart_bytes in spacing.items():
        blocks, free_bytes = [], 0
        for layer in range(layers):
            size_bytes, frames = live.get(kind << 30 | layer * apart_bytes, (0, ()))
            if size_bytes:
                blocks += [block(free_bytes)] if free_bytes else []
                blocks.append(block(size_bytes, "active_allocated", frames))
                free_bytes = 0
            free_bytes += apart_bytes - size_bytes
        segments.append(segment(kind << 30, *blocks, *([block(free_bytes)] if free_bytes else [])))
    return raw(segments, trace)


def opened(told: Any, name: Optional[str] = None) -> Opened:
    """What a dict holds, without a file."""
    snapshot: Snapshot = snapshot_from(told, "made.pickle")
    return Opened(snapshot, snapshot.device(name))


def write(path: pathlib.Path, told: Any, protocol: int = 4) -> str:
    """Writes it as torch does; the path as text."""
    path.write_bytes(pickle.dumps(told, protocol))
    return str(path)
