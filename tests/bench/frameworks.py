"""Plans of unmodified programs of the frameworks people use, against the same programs run without a plan."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional

from memtui.analysis.units import size
from memtui.virtual_gpu import environment, profile_for

from . import surroundings
from .report import Line

_PROGRAMS = surroundings.PROGRAMS / "frameworks"
_GPU = "a100-40g"
_PEAK = re.compile(r"^peak (\d+)$", re.MULTILINE)
#: Of every family of torchvision's classification models, one or two.
_VISION = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3"),
    *("maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "regnet_x_400mf", "regnet_y_400mf", "resnet18"),
    *("resnet50", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_0", "swin_t", "swin_v2_t", "vgg11", "vgg16_bn"),
    *("vit_b_16", "vit_l_16", "wide_resnet50_2"),
)


@dataclass(frozen=True)
class _Program:
    """A script with its arguments; `ranks` are started by torchrun."""

    what: str
    words: tuple[str, ...]
    packages: tuple[str, ...] = ()
    ranks: int = 1
    #: How far the plan's figure may be from the other run's, in bytes for each byte of gradients, and why.
    slack: float = 0.0
    why: str = ""


_PLAIN = _Program("small transformer", ("gpt.py",))
_CHECKPOINTED = _Program("activation checkpointing", ("gpt.py", "--checkpoint"))
_ACCUMULATED = _Program("gradients of 4 batches accumulated", ("gpt.py", "--accumulate", "4"))
_FLOAT16 = _Program("float16 with a GradScaler", ("gpt.py", "--fp16"))
_PROGRAMS_ALONE = (
    _PLAIN,
    _CHECKPOINTED,
    _ACCUMULATED,
    _FLOAT16,
    _Program("torch.compile", ("gpt.py", "--compile")),
    _Program("CUDA graphs of a model", ("cuda_graphs.py", "callables")),
    _Program("a step as one CUDA graph", ("cuda_graphs.py", "step")),
    _Program("Hugging Face Trainer", ("hf_trainer.py",), ("transformers", "accelerate")),
    # Its second epoch holds one logged value more, and the plan has ended by then: with --steps 20 both are equal.
    _Program("Lightning", ("lightning_trainer.py",), ("lightning",), slack=0.001, why="or a logged value less"),
    _Program("accelerate", ("accelerate_loop.py",), ("accelerate",)),
)
_PROGRAMS_TOGETHER = (
    # Torch's watchdog of NCCL holds DDP's first buckets until it looks, ten times a second: fast steps are faster.
    _Program("DDP, NCCL, 2 ranks", ("ddp.py", "nccl"), ranks=2, slack=1.01, why="or DDP's first buckets more"),
    # Gloo's copies are on streams of its own, so a batch may be freed a little later.
    _Program("DDP, gloo, 2 ranks", ("ddp.py", "gloo"), ranks=2, slack=0.01, why="or a batch more"),
    _Program("FSDP2, 2 ranks", ("fsdp2.py",), ranks=2),
)


def bench() -> Iterator[Line]:
    """Each program's plan; `peak` is of the allocator, as the program itself prints it where it is run alone."""
    with surroundings.runtime_folder() as folder:
        surroundings.with_virtual_gpu(folder)
        allocated: dict[str, int] = {}
        vision = (_Program(f"torchvision {name}", ("vision.py", name), ("torchvision",)) for name in _VISION)
        for program in (*_PROGRAMS_ALONE, *_PROGRAMS_TOGETHER, *vision):
            lacking = [name for name in program.packages if importlib.util.find_spec(name) is None]
            if lacking:
                yield Line(program.what, f"skipped: pip install {' '.join(lacking)}")
                continue
            answer, seconds = _plan(folder, program)
            allocated[program.what] = answer["peak_allocated_bytes"] or 0
            yield _line(program, answer, seconds, _directly(folder, program))
        yield from _compared(allocated)


def _compared(allocated: dict[str, int]) -> Iterator[Line]:
    plain, kept = allocated[_PLAIN.what], allocated[_CHECKPOINTED.what]
    yield Line("checkpointing", f"{kept / plain:.2f} of the peak without", "< 1", 0 < kept < plain)
    half = allocated[_FLOAT16.what]
    yield Line("float16", f"{half / plain:.2f} of the peak in float32", "< 1", 0 < half < plain)
    more, gradients = allocated[_ACCUMULATED.what] - plain, _gpt_parameter_bytes()
    near = abs(more - gradients) <= 0.02 * gradients
    yield Line("accumulating, over one batch", size(more), f"its gradients, {size(gradients)}, ± 2 %", near)


def _gpt_parameter_bytes() -> int:
    """Those of gpt.py in float32: embedding, six layers, and the head."""
    vocabulary, width = 8000, 256
    layer = 12 * width * width + 13 * width
    return 4 * (vocabulary * width + 6 * layer + vocabulary * width + vocabulary)


def _line(program: _Program, answer: Any, seconds: float, truth: Optional[int]) -> Line:
    peak = answer["peak_allocated_bytes"]
    figures = f"{size(peak)}, {size(answer['peak_reserved_bytes'])}, {size(answer['peak_device_bytes'])}"
    measured = f"{figures}; {answer['confidence']}, {answer['ended']} {answer['steps']}, {seconds:.0f} s"
    if truth is None:
        return Line(program.what, measured, "the program alone fails", False)
    bar = f"{size(truth)}{', ' + program.why if program.why else ''}"
    faults = list(_faults(answer))
    off = None if peak is None else peak - truth
    gradients = (answer["composition"] or {}).get("categories", {}).get("gradients", 0)
    if off is None or abs(off) > program.slack * gradients:
        faults.append("no peak" if off is None else f"off by {off} bytes")
    return Line(program.what, "; ".join([measured, *faults]), bar, not faults)


def _faults(answer: Any) -> Iterator[str]:
    """What is wrong with an answer by itself."""
    if answer["fits"] is not True:
        yield "does not fit"
    if answer["ended"] not in ("steady", "exit"):
        yield "not to its end"
    if answer["steps"] < 2 or not answer["peak_phase"]:
        yield "steps not seen"
    if answer["confidence"] != "close" or not answer["reasons"]:
        yield f"{answer['confidence']}: {'; '.join(each['text'] for each in answer['reasons'])}"
    names = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes", "usable_bytes")
    figures = [answer[name] or 0 for name in names]
    if figures != sorted(figures) or not figures[0]:
        yield "figures do not lie in one another"
    if answer["composition"] is None or sum(answer["composition"]["categories"].values()) > figures[0]:
        yield "what the peak is made of does not add up"
    held = [device["peak_device_bytes"] for device in answer["devices"]]
    if held and min(held) < 0.5 * max(held):
        yield "a rank was ended too early"


def _plan(folder: pathlib.Path, program: _Program) -> tuple[Any, float]:
    """(the answer, seconds)."""
    env = surroundings.bare() | {"MEMTUI_RUNTIME_DIR": str(folder), "PYTHONPATH": str(surroundings.ROOT)}
    words = [sys.executable, "-m", "memtui", "plan", "--json", "--gpu", _GPU, "--gpus", str(program.ranks), "--"]
    begun = time.monotonic()
    done = subprocess.run([*words, *_command(program)], env=env, cwd=folder, capture_output=True, check=False)
    try:
        return json.loads(done.stdout), time.monotonic() - begun
    except ValueError:
        raise SystemExit(f"the plan of {program.what} is no answer: {done.stderr.decode()[-2000:]}") from None


def _directly(folder: pathlib.Path, program: _Program) -> Optional[int]:
    """What the program prints as its peak on such a card without a plan; None where it fails."""
    env = environment(profile_for(_GPU, program.ranks), base=surroundings.bare())
    done = subprocess.run(_command(program), env=env, cwd=folder, capture_output=True, text=True, check=False)
    # Progress bars go back to the beginning of their line.
    found = _PEAK.findall(done.stdout.replace("\r", "\n"))
    return int(found[-1]) if found and not done.returncode else None


def _command(program: _Program) -> list[str]:
    script = [str(_PROGRAMS / program.words[0]), *program.words[1:]]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(program.ranks)] if program.ranks > 1 else []
    return [sys.executable, *torchrun, *script]
