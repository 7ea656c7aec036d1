"""What nvidia-smi said of trained image networks beside a virtual GPU's figure, with and without workspaces.

Nothing here was fitted: the choice of algorithms comes from 80 of the same group's small generated networks, the
kernels' size from those of one layer, the context from its fully connected ones.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from memtui.virtual_gpu import VirtualGpuError, environment, profile_of

from .report import Line, Skipped, at_most

#: MiB by images a batch; GPUMemNet (github.com/itu-rad/GPUMemNet), Test_Pipeline/GPUMemNet_CNN.xlsx: A100, fp32 under
#: torch's defaults, ImageNet, nvidia-smi's highest in an epoch of training and validation.
MEASURED = {
    "vgg16": {32: 8222, 64: 13642, 128: 24408},
    "resnet50": {32: 5262, 64: 8536, 128: 15120},
    "xception": {32: 7202, 64: 11520, 128: 22978},
    "mobilenet_v2": {32: 4544, 64: 7224, 128: 12578},
    "efficientnet_b0": {32: 4958, 64: 7844, 128: 13832},
    "inception_v3": {32: 6346, 64: 10560, 128: 19018},
}
_A100 = {"memory": "40GiB", "cc": "8.0", "multiprocessors": 108, "context": "1429MiB"}
#: As it was before workspaces were estimated.
_WITHOUT = {"cudnn_workspace": 0, "cudnn_load": 0}

_PROGRAM = Path(__file__).parent / "programs" / "convolutions.py"
_CASES = Path(__file__).parents[3] / "shared" / "cases" / "ground_truth.jsonl"
_SECONDS = 600


def bench() -> Iterator[Line]:
    """A line for each training, then the errors of all."""
    if importlib.util.find_spec("torchvision") is None:
        raise Skipped("needs torchvision (and timm for Xception)")
    errors: dict[str, list[float]] = {"estimated": [], "without": []}
    for name, by_batch in MEASURED.items():
        if name == "xception" and importlib.util.find_spec("timm") is None:
            yield Line("xception", "left out: needs timm")
            continue
        for batch, measured in by_batch.items():
            side = 299 if name == "inception_v3" else 224
            said = {"estimated": _used_mib(name, batch, side), "without": _used_mib(name, batch, side, **_WITHOUT)}
            off = {kind: 100 * (mib / measured - 1) for kind, mib in said.items()}
            for kind, percent in off.items():
                errors[kind].append(abs(percent))
            yield Line(
                f"{name}, batch {batch}: nvidia-smi {measured:,} MiB",
                f"{said['estimated']:,} MiB, {off['estimated']:+.1f} % ({off['without']:+.1f} % without)",
            )
    without = errors["without"]
    yield Line("without workspaces: median, worst", f"{median(without):.1f}, {max(without):.1f} %")
    yield at_most("median error", median(errors["estimated"]), 2.0, "%", 1)
    yield at_most("worst error", max(errors["estimated"]), 10.0, "%", 1)
    yield _other_card()


def _other_card() -> Line:
    """The one such row of the cases: another card, another torch, the allocator's own figure."""
    if not _CASES.is_file():
        return Line("ResNet-50 of the cases", "left out: ../shared/cases is not there")
    rows = (json.loads(line) for line in _CASES.read_text(encoding="utf-8").splitlines())
    row = next(row for row in rows if row["id"] == "G104")
    job = ("resnet50", 10, row["config"]["batch"], row["config"]["img"], "SGD")
    figure = row["figure"]
    said = [_trained(job, cc="8.9", **others)[1] >> 20 for others in ({}, _WITHOUT)]
    off = [f"{100 * (mib / figure - 1):+.1f} %" for mib in said]
    return Line(
        f"{row['id']}, ResNet-50 elsewhere: torch {figure:,} MiB", f"{said[0]:,} MiB, {off[0]} ({off[1]} without)"
    )


def _used_mib(name: str, batch: int, side: int, **profile: Any) -> int:
    return _trained((name, 1000, batch, side, "Adam"), **profile)[0] >> 20


def _trained(job: tuple[object, ...], **profile: Any) -> list[int]:
    """Bytes of the device in use, and the allocator's peak."""
    try:
        virtual = environment(profile_of(**{**_A100, **profile}))
    except VirtualGpuError as error:
        raise Skipped(f"no virtual GPU: {error}") from error
    child = subprocess.run(
        [sys.executable, str(_PROGRAM), *map(str, job)],
        env=virtual,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if child.returncode:
        raise RuntimeError(child.stderr.strip().rpartition("\n")[2])
    figures: list[int] = json.loads(child.stdout.splitlines()[-1])
    return figures
