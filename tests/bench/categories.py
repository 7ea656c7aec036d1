"""The agent's categories at every boundary, against what each of many kinds of training knows itself, and MemTracker.

What is unattributed is mostly batches: memory that was there when looking began has no known birth, and a block that is
freed and given out again between two looks, at the same address, cannot be told from one that stayed. Compiled kinds
run inductor's own kernels on the virtual GPU, where Triton is installed.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from . import surroundings, tracker
from .report import Line

_OWNED = ("parameters", "buffers", "gradients", "optimizer_state", "workspaces", "communication", "private_pools")
_BORN = ("activations", "temporaries")
#: Of the peak; DESIGN's bar for what is known by birth only.
_SHARE = 0.01
_SECONDS = 300
_NEED_TRITON = ("GPT, compiled", "GPT, compiled, CUDA graphs")


def bench() -> Iterator[Line]:
    """A line a kind: bytes by which the owned categories are off, and the others by birth, at the worst boundary.

    Then what MemTracker says at the same boundaries, and why.
    """
    for kind in _child("categories").splitlines():
        if kind in _NEED_TRITON and importlib.util.find_spec("triton") is None:
            yield Line(kind, "skipped: triton is not installed")
            continue
        found = measure(kind)
        yield line(kind, found)
        if "failed" not in found:
            yield from tracker.lines(kind, found["rows"], measure(kind, "tracker"))


def measure(kind: str, program: str = "categories") -> dict[str, Any]:
    """What the child found."""
    try:
        found: dict[str, Any] = json.loads(_child(program, kind).splitlines()[-1])
    except subprocess.CalledProcessError as error:
        return {"failed": error.stderr.strip().splitlines()[-1:]}
    return found


def _child(program: str, *arguments: str) -> str:
    command = [sys.executable, str(surroundings.PROGRAMS / f"{program}.py"), *arguments]
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=program == "categories")
        return subprocess.run(
            command, env=environment, capture_output=True, timeout=_SECONDS, check=True, text=True
        ).stdout


def line(kind: str, found: dict[str, Any]) -> Line:
    """One kind's figures."""
    if "failed" in found:
        return Line(kind, f"failed: {found['failed']}", "", False)
    rows, peak = found["rows"], found["peak_bytes"]
    owned, born, unknown = (max(map(each, rows)) for each in (owned_bytes, by_birth_bytes, unattributed_bytes))
    shown = (
        f"owned {owned:,} B off, by birth {100 * born / peak:.2f} %, "
        f"unattributed {100 * unknown / peak:.2f} % of {peak / 2**20:,.1f} MiB, {len(rows)} boundaries"
    )
    graphs, breaks = found["compiled"]
    if graphs:
        shown += f", {graphs} compiled graph, {breaks} breaks"
    return Line(kind, shown, "0 B, ≤ 1 %", owned == 0 and born <= _SHARE * peak and bool(rows))


def owned_bytes(row: dict[str, Any]) -> int:
    """By how much the category that is most wrong is off, of those that tensors or sizes tell."""
    return _off(row, _OWNED)


def by_birth_bytes(row: dict[str, Any]) -> int:
    """By how much activations or temporaries are off."""
    return _off(row, _BORN)


def unattributed_bytes(row: dict[str, Any]) -> int:
    """What the agent found no owner for."""
    return abs(row["agent"].get("unattributed", 0))


def _off(row: dict[str, Any], names: tuple[str, ...]) -> int:
    return max(abs(row["agent"].get(name, 0) - row["truth"].get(name, 0)) for name in names)
