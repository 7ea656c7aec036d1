"""Published figures of trainings on real GPUs, had again on virtual ones; the bench `published` has more of them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.support.virtual_gpu import virtual_environment

pytestmark = pytest.mark.virtual_gpu

PROGRAMS = pathlib.Path(__file__).parents[1] / "bench" / "programs" / "published"
GIB = 1 << 30
MIB = 1 << 20
#: Between torch 2.6.0, which they were published with, and 2.14 they move by as much.
SHARE = 0.003

_HALF = ("--made-mask", "--tf32", "--fused", "--bf16")


@pytest.mark.parametrize(
    ("arguments", "reserved_gib"),
    [((), 26.2617), (_HALF, 13.7871), ((*_HALF, "--native"), 11.5645), ((*_HALF, "--native", "--sdpa"), 5.9004)],
    ids=["float32", "bfloat16", "native layers", "native attention"],
)
def test_gpt2_reserves_what_was_published_of_an_a100(arguments: tuple[str, ...], reserved_gib: float) -> None:
    """124 million parameters, batches of 8 sequences of 1,024 tokens (rasbt/LLMs-from-scratch, chapter 5, 2025)."""
    figures = _run("gpt2.py", *arguments, memory="40GiB", cc="8.0")
    assert figures["reserved"] / GIB == pytest.approx(reserved_gib, rel=SHARE)
    assert figures["reserved"] == figures["device"], "the driver has given out more than the allocator holds"


def test_cnns_peak_where_a_notebook_had_them() -> None:
    """Batches of 128 in float32 on 24 GB, one network after the other (WSShiro/vramexp, 2023)."""
    figures = _run("notebook.py", memory="24GiB", cc="8.6")
    assert figures["cnn"] / MIB == pytest.approx(530.9, abs=0.1)
    assert figures["resnet50"] / MIB == pytest.approx(11738.2, rel=SHARE)


def test_gradients_that_are_gathered_reserve_what_was_published() -> None:
    """ViT-L/16 in bfloat16, four batches of 4 a step (rasbt/pytorch-memory-optim, 2023): 3.91 GB."""
    arguments = ("--precision", "bf16", "--batch", "4", "--accumulate", "4", "--steps", "6", "--two-temporaries")
    figures = _run("vit.py", *arguments, memory="40GiB", cc="8.0")
    assert figures["reserved_peak"] / 1e9 == pytest.approx(3.91, abs=0.01)


def _run(program: str, *arguments: str, memory: str, cc: str) -> dict[str, Any]:
    environment = {**virtual_environment(memory=memory, cc=cc), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
