"""Published figures, and the run of a program here that has each.

A row is found by what it says, not by its number, so that rows of the same series that are added run too.
"""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass
from typing import Any, Callable, Optional

from .surroundings import ROOT

_ROWS = ROOT.parent / "shared" / "cases" / "ground_truth.jsonl"
#: nvidia-smi, its library and that of torch's statistics say MB where they mean MiB.
_UNITS = {
    "GiB": 2**30,
    "GB (1e9)": 10**9,
    "GB approx.": 10**9,
    "MiB": 2**20,
    "MB": 2**20,
    "MB (NVML used)": 2**20,
    "GB": 10**9,
    "bytes": 1,
}


@dataclass(frozen=True)
class Run:
    """A program under a virtual GPU."""

    program: str
    arguments: tuple[str, ...] = ()
    memory: str = "80GiB"
    cc: str = "8.0"
    context: str = "0"
    multiprocessors: int = 84
    #: Whether the same had run before, so that the compiler finds on disk what it made.
    again: bool = False

    @property
    def compiled(self) -> bool:
        """Whether it needs Triton."""
        return "--compiled" in self.arguments


@dataclass(frozen=True)
class Shape:
    """A transformer, for the closed form."""

    parameters: int
    layers: int
    width: int
    heads: int
    sequence: int
    batch: int
    element_bytes: int = 4


@dataclass(frozen=True)
class Case:
    """A published figure and where its prediction is; `series` names its kind of program."""

    name: str
    series: str
    published_bytes: float
    #: By how much its last digit leaves it open, either way.
    open_bytes: float
    run: Run
    figure: str
    #: The version that the publication names, and the nearest that can be had.
    torch: Optional[str] = None
    nearest: Optional[str] = None
    driver: bool = False
    shape: Optional[Shape] = None
    #: Why it may be off.
    cause: str = ""
    #: What its source leaves open and the figure depends on, and what was chosen here.
    choice: str = ""

    @property
    def tracked(self) -> bool:
        """Whether MemTracker tells such a figure: peaks of allocated memory, and what is allocated before backward."""
        return self.run.program not in _UNTRACKED and self.figure not in _NO_PEAKS


#: Programs of one operation, and figures that are no peak, which say nothing of a tracker.
_UNTRACKED = ("tensor.py", "cross_entropy.py")
_NO_PEAKS = (
    "parameters",
    "optimizer_state",
    "loaded",
    "after_init",
    "before_step",
    "after_step",
    "peak_to_before_step",
)

#: Versions that are published but cannot be had here, and why.
UNAVAILABLE = {
    "2.1.0.dev20230623": "nightly builds are not kept",
    "2.0.1": "it is built for CUDA 11.7, and virtual GPUs take 12 and later",
}


def rows() -> Optional[list[dict[str, Any]]]:
    """Every row, or None where the collection is not there."""
    if not _ROWS.exists():
        return None
    return [json.loads(line) for line in _ROWS.read_text(encoding="utf-8").splitlines() if line.strip()]


def where() -> pathlib.Path:
    """The collection's path."""
    return _ROWS


def claimed(row: dict[str, Any]) -> bool:
    """Whether the row says that plain torch reproduces it."""
    said = row["reproducible_plain_pytorch"]
    return said is True or str(said).startswith("partly (random-init config")


def case_of(row: dict[str, Any]) -> Case | str:
    """The row's case, or why there is none."""
    for series, find in _SERIES:
        if series in row["source"]:
            found = find(row)
            return found if isinstance(found, str) else _case(row, **found)
    return "no program for it"


def size_bytes(row: dict[str, Any]) -> float:
    """The published figure."""
    return float(row["figure"]) * _UNITS[row["unit"]]


def _case(row: dict[str, Any], **others: Any) -> Case:
    digits = str(row["figure"]).partition(".")[2]
    half = 0.5 * 10 ** -len(digits) * _UNITS[row["unit"]]
    config = row["config"]
    about = config.get("step") or config.get("phase") or config.get("mode")
    if not about:
        about = ", ".join(f"{key} {config[key]}" for key in ("seq", "d") if key in config) or row["model"]
    return Case(name=f"{row['id']} {about}", published_bytes=size_bytes(row), open_bytes=half, **others)


_GPT2 = {
    "fp32 baseline": "",
    "causal mask on the fly": "--made-mask",
    "TF32": "--made-mask --tf32",
    "fused AdamW": "--made-mask --tf32 --fused",
    "bf16": "--made-mask --tf32 --fused --bf16",
    "+ native LayerNorm/GELU": "--made-mask --tf32 --fused --bf16 --native",
    "+ FlashAttention (SDPA)": "--made-mask --tf32 --fused --bf16 --native --sdpa",
    "+ torch.compile": "--made-mask --tf32 --fused --bf16 --native --sdpa --compiled",
}
_GPT2["+ vocab 50304"] = _GPT2["+ torch.compile"] + " --vocabulary 50304"
_GPT2["+ batch 32"] = _GPT2["+ vocab 50304"] + " --batch 32"
_GPT2["DDP 4 GPUs"] = _GPT2["+ batch 32"] + " --ddp"


def _gpt2(row: dict[str, Any]) -> Any:
    step = row["config"]["step"]
    if step not in _GPT2:
        return "no program for it"
    arguments = tuple(_GPT2[step].split())
    halves = 2 if "--bf16" in arguments else 4
    ddp = "--ddp" in arguments
    if ddp:  # 47 texts are kept aside, which four ranks share; an epoch has three steps
        arguments = (*arguments, "--aside", "12", "--steps", "3")
    return {
        "series": "GPT-2, compiled" if "--compiled" in arguments else "GPT-2 124M",
        "run": Run("gpt2.py", arguments, "40GiB", multiprocessors=108, again=ddp),
        "figure": "reserved",
        "torch": "2.6.0",
        "shape": Shape(163_009_536, 12, 768, 12, 1024, row["config"]["batch"], halves),
        "cause": "of its program the first and the last version are published, and this one is between; how long its "
        "tensors live is not known",
        "choice": "whether it had run before is not said, and inductor times no kernel again that it keeps on disk, so "
        "the buffer it times with does not split blocks; taken: it had"
        if ddp
        else "",
    }


def _loading(row: dict[str, Any]) -> Any:
    step = row["config"]["step"]
    if "2 copies" not in step and step != "sequential copy":
        return "no program for it"
    arguments = () if "2 copies" in step else ("--sequential",)
    run = Run("loading.py", arguments)
    return {"series": "loading of weights", "run": run, "figure": "allocated_peak", "torch": "2.4.1"}


_VIT = {
    "fp32": "--drop-batch",
    "Fabric fp32": "",
    "16-bit mixed": "--precision 16-mixed",
    "bf16-true": "--precision bf16",
    "gradient accumulation, 4 micro-batches": "--precision bf16 --batch 4 --accumulate 4",
}


def _vit(row: dict[str, Any]) -> Any:
    step = row["config"]["step"]
    if step not in _VIT:
        return "no program for it"
    few = "--accumulate" in _VIT[step]
    return {
        "series": "ViT-L/16",
        "run": Run("vit.py", (*_VIT[step].split(), *_NIGHTLY), "40GiB", multiprocessors=108),
        "figure": "reserved_peak",
        "torch": "2.1.0.dev20230623",
        "nearest": "2.1.0",
        "shape": Shape(303_311_882, 24, 1024, 16, 197, 4 if few else 64, 2 if "bf16" in _VIT[step] else 4),
        "cause": "a nightly build before 2.1.0, of CUDA 11.8; not explained further",
    }


#: Adam of the nightly's day, written out: 2.1.0's own makes do with one temporary (torch's pull request 104898, July).
_NIGHTLY = ("--two-temporaries", "--steps", "12")

_TUTORIAL = {
    "parameters": ("parameters", ""),
    "optimizer state": ("optimizer_state", ""),
    "peak, optimizer fused in backward": ("allocated_peak", "--in-backward"),
}


def _tutorial(row: dict[str, Any]) -> Any:
    found = _TUTORIAL.get(row["config"]["step"])
    if found is None:
        return "no program for it"
    run = Run("vit.py", ("--batch", "1", "--classes", "1000", *found[1].split()))
    return {"series": "ViT-L/16, read off a picture", "run": run, "figure": found[0]}


_BERT = {
    "fp32 AdamW": "",
    "fp32, micro-batch 1 x 4 accumulation": "--batch 1 --accumulate 4",
    "+ activation checkpointing": "--batch 1 --accumulate 4 --checkpointed",
    "fp16 + GA4 + checkpointing": "--batch 1 --accumulate 4 --checkpointed --fp16",
    "Adafactor": "--optimizer adafactor",
    "all + Adafactor": "--batch 1 --accumulate 4 --checkpointed --fp16 --optimizer adafactor",
    "8-bit Adam": "--optimizer adam8bit",
}


def _bert(row: dict[str, Any]) -> Any:
    step = row["config"]["step"]
    if step == "CUDA context only":
        return "the context itself: given to the run, not predicted"
    if step != "weights loaded" and step not in _BERT:
        return "no program for it"
    arguments = tuple(_BERT.get(step, "").split())
    batch = row["config"]["batch"]
    shaped = step != "weights loaded" and "--checkpointed" not in arguments
    return {
        "series": "BERT-large",
        "run": Run("bert.py", arguments, "16160MiB", "7.0", context="1343MiB", multiprocessors=80),
        "figure": "loaded" if step == "weights loaded" else "device",
        "nearest": "2.1.0",
        "driver": True,
        "shape": Shape(335_143_938, 24, 1024, 16, 512, batch) if shaped else None,
        "cause": "a torch before 1.12, and optimizers of other libraries, by their description",
    }


_LARGE = "--width 2560 --wide 10240 --layers 32 --heads 32"
_MEDIUM = "--width 1024 --wide 4096 --layers 24 --heads 16"
_SMALL = "--width 768 --wide 3072 --layers 12 --heads 12"
_POINTS = {
    "after init": "after_init",
    "peak to before step": "peak_to_before_step",
    "before step": "before_step",
    "after step": "after_step",
    "peak in step": "peak_in_step",
}


def _sharded(row: dict[str, Any]) -> Any:
    config = row["config"]
    if config["step"] not in _POINTS:
        return "no program for it"
    ranks = "2" if config["sharded_optimizer"] else "1"
    arguments = f"{_LARGE} --autocast --optimizer in-place --batch {config['batch'] // 2} --ranks {ranks}"
    peak = config["step"] == "peak in step" and ranks == "1"
    return {
        "series": "decoder 3.4B, two GPUs",
        "run": Run("decoder.py", tuple(arguments.split()), "180GiB", "9.0"),
        "figure": _POINTS[config["step"]],
        "torch": "2.11.0",
        "shape": Shape(3_406_809_600, 32, 2560, 32, 512, 2) if peak else None,
        "cause": "its program is not published: parameters and gradients are 25.383 GiB, and what is held beyond them "
        "is the rest of blocks that are not split, 118 MiB there: how many gradients come to lie in blocks that "
        "activations have left hangs on the order of its tensors",
    }


#: By the source's end and the config: arguments, compute capability (its cuBLAS workspaces tell it), parameters.
_SNAPSHOTS: dict[tuple[str, str], tuple[str, str, Optional[Shape]]] = {
    ("medium training", "training"): (f"{_MEDIUM} --window", "8.6", Shape(423_183_360, 24, 1024, 16, 128, 4)),
    ("medium inference", "inference"): (f"{_MEDIUM} --mode inference", "8.6", None),
    ("full step", ""): (f"{_LARGE} --window --optimizer torch", "9.0", Shape(3_406_809_600, 32, 2560, 32, 256, 4)),
    ("fork B", "forward+backward"): (f"{_SMALL} --mode backward --window", "8.6", None),
}


def _snapshot(row: dict[str, Any]) -> Any:
    config = row["config"]
    for (end, mode), (arguments, cc, shape) in _SNAPSHOTS.items():
        if row["source"].endswith(end) and config.get("mode", "") == mode:
            sizes = f" --batch {config['batch']} --sequence {config['seq']}"
            run = Run("decoder.py", tuple((arguments + sizes).split()), "180GiB", cc)
            cause = (
                "which AdamW it is is not said: one more or less temporary of 100 MiB, and blocks that fit less well"
            )
            return {"series": "decoder, snapshots", "run": run, "figure": "active_peak", "shape": shape, "cause": cause}
    return "no program for it"


def _attention(kind: str, cc: str) -> Callable[[dict[str, Any]], Any]:
    def find(row: dict[str, Any]) -> Any:
        config = row["config"]
        batch = int(str(config["batch"]).split()[0])
        name = f"{kind}:{batch}:{config['seq']}:{config['d']}"
        return {"series": "attention", "run": Run("attention.py", (name,), "180GiB", cc), "figure": name}

    return find


_NOTEBOOK = {"CNN": "cnn", "VGG16": "vgg16", "ResNet50": "resnet50"}


def _vramexp(row: dict[str, Any]) -> Any:
    if row["model"] == "1 GiB tensor":
        return {"series": "a tensor", "run": Run("tensor.py"), "figure": "allocated", "torch": "2.0.1"}
    if row["model"] not in _NOTEBOOK:
        return "no program for it"
    return {
        "series": "CNNs of a notebook",
        "run": Run("notebook.py", (), "24GiB", "8.6", multiprocessors=82),
        "figure": _NOTEBOOK[row["model"]],
        "torch": "2.0.1",
        "nearest": "2.1.0",
        "cause": "cuDNN's convolution workspaces are estimates",
    }


def _cross_entropy(row: dict[str, Any]) -> Any:
    phase = row["config"]["phase"]
    return {"series": "loss of a large vocabulary", "run": Run("cross_entropy.py"), "figure": phase, "torch": "2.4.1"}


def _no(reason: str) -> Callable[[dict[str, Any]], Any]:
    return lambda _row: reason


_SERIES: tuple[tuple[str, Callable[[dict[str, Any]], Any]], ...] = (
    ("LLMs-from-scratch ch05/10", _gpt2),
    ("LLMs-from-scratch ch05/08", _loading),
    ("pytorch-memory-optim", _vit),
    ("optimizer_step_in_backward", _tutorial),
    ("performance.mdx", _bert),
    ("fork A sharded optimizer", _sharded),
    ("fork A attention_benchmark", _attention("both", "9.0")),
    ("fork B attention csv", _attention("weights", "8.6")),
    ("snapshot replay", _snapshot),
    ("vramexp", _vramexp),
    ("ml-cross-entropy", _cross_entropy),
    ("stas00/ml-engineering", _no("a context: given to a run, not predicted")),
    ("ZeRO paper", _no("a formula's result, not a measurement")),
)
