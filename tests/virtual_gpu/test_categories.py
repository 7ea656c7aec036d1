"""Categories at every boundary, against what each kind of training knows itself, and against torch's MemTracker."""

from __future__ import annotations

import importlib.util

import pytest

from tests.bench import tracker
from tests.bench.categories import by_birth_bytes, measure, owned_bytes, unattributed_bytes
from tests.support.virtual_gpu import require_virtual_gpu

pytestmark = pytest.mark.virtual_gpu

#: Those in which something is unlike a plain training; the benchmark compares them all.
KINDS = (
    "MLP, Adafactor",
    "GPT, checkpointed",
    "GPT, accumulated",
    "GPT, compiled",
    "GPT, compiled, CUDA graphs",
    "GPT, autocast, scaler",
    "LoRA on a frozen base",
    "EMA copy",
    "MLP, tensors that move",
    "MLP, memory changes hands",
    "DDP",
    "DDP, bucket views",
    "FSDP2",
)
COMPILED = ("GPT, compiled", "GPT, compiled, CUDA graphs")


@pytest.mark.parametrize("kind", KINDS)
def test_categories_are_those_of_the_program(kind: str) -> None:
    """What tensors own to the byte; what is told by birth, and what nobody is known to own, within 1 % of the peak."""
    require_virtual_gpu()
    if kind in COMPILED and importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    found = measure(kind)
    assert "failed" not in found, found
    assert found["compiled"] == ([1, 0] if kind in COMPILED else [0, 0])
    assert len(found["rows"]) >= 6
    for row in found["rows"]:
        assert owned_bytes(row) == 0, row
        assert by_birth_bytes(row) <= 0.01 * found["peak_bytes"], row
        assert unattributed_bytes(row) <= 0.01 * found["peak_bytes"], row
        assert sum(row["agent"].values()) == sum(row["truth"].values())


@pytest.mark.parametrize("kind", ["MLP, Adam foreach", "GPT, accumulated"])
def test_persistent_categories_are_those_of_torchs_own_tracker(kind: str) -> None:
    """To the byte, once its rounding to 512 bytes is put beside the blocks; and it sees no workspace."""
    require_virtual_gpu()
    ours, theirs = measure(kind), measure(kind, "tracker")
    assert "failed" not in ours, ours
    assert "failed" not in theirs, theirs
    rows = tracker.paired(ours["rows"], theirs["rows"])
    assert any(row["tracker"].get("gradients") for _, row in rows)
    for memtui, their in rows:
        assert tracker.persistent_bytes(memtui, their) == 0, (memtui, their)
        assert tracker.unexplained_bytes(memtui, their, tracker.OTHERS) <= 2048, (memtui, their)
        assert their["tracker"]["optimizer_state"] > 0
