"""A cause in one sentence, what would decide one that is undecided, and what else the figures show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from memtui.analysis import units
from memtui.analysis.text import clean, place_words
from memtui.session.steps import step_number

from .cause import Cause, Kind, contradicts, is_narrow, is_nearly_full, short_by
from .evidence import Evidence, Live
from .interval import Interval, as_printed
from .message import Message

_NAMES: dict[Kind, str] = {
    "impossible": "an impossible request",
    "block limit": "a limit of one block",
    "spill": "memory that was spilled to the host",
    "cap": "the cap",
    "other process": "other processes",
    "full": "full of its own tensors",
    "leak": "a leak",
    "unexplained": "nothing that the figures explain",
}
_COMPLAINTS = {
    "driver": "the driver ran out of memory in a call outside PyTorch's allocator (a module that is loaded, a mapping)",
    "runtime": "CUDA ran out of memory; where, and with how much in use, this message does not say",
    "library": "a library (cuBLAS, cuDNN…) got no memory for its handle or workspace, which is not PyTorch's to count",
    "jetson": "out of memory, hidden by a failed look at NVML, which a Jetson does not have",
    "async": "cudaMallocAsync found no memory; the lines with the figures are missing",
    "bare": "out of memory; the figures are missing",
}


def size(interval: Optional[Interval]) -> str:
    """The middle of what is known, for a sentence."""
    return units.UNKNOWN if interval is None else as_printed(interval.middle)


def sentence(cause: Cause, evidence: Evidence, message: Optional[Message] = None) -> str:
    """What it was, with the figures that say so."""
    if cause.kind == "undecided":
        return _undecided(cause, evidence, message)
    if message is not None and message.format == "block limit":
        return (
            f"block limit: this platform gives no block above {message.complaint}; "
            f"{size(evidence.tried)} were asked for in one"
        )
    if message is not None and message.format == "more than can be":
        return "impossible: more than 1 EB was asked for in one piece"
    if message is not None and message.format == "host":
        return f"host memory: the system refused {size(evidence.tried)}; no device is concerned"
    return f"{cause.kind}: {_certain(cause.kind, evidence)}"


def _certain(kind: Kind, evidence: Evidence) -> str:
    tried, live = size(evidence.tried), evidence.live
    limit = evidence.allowed if evidence.allocator == "metal" else evidence.total
    texts = {
        "impossible": lambda: f"{tried} were asked for in one piece, of a device with {size(limit)}",
        "spill": lambda: (
            f"PyTorch holds {size(_held(evidence))} on a device of {size(evidence.total)}: "
            "the driver has put the rest into the host's memory, and had no more to give"
        ),
        "cap": lambda: (
            f"PyTorch may have {size(evidence.allowed)} in this process, holds {size(_held(evidence))} "
            f"and asked for {tried} more"
        ),
        "other process": lambda: _others(evidence),
        "fragmentation": lambda: _fragmentation(evidence),
        "leak": lambda: (
            f"what is allocated grew by {units.size(round(live.growth_bytes_per_step or 0))} a step{_since(evidence)} "
            f"until {tried} more did not fit"
        ),
        "first optimizer step": lambda: (
            f"the optimizer makes its state in its first step, and {tried} of it did not fit{_to_come(evidence)}"
        ),
        "evaluation peak": lambda: f"{_evaluation(live)}: {tried} did not fit{_at(evidence)}",
        "checkpoint peak": lambda: f"saving or loading a checkpoint needs copies: {tried} did not fit{_at(evidence)}",
        "longest batch": lambda: _longest(evidence),
        "unexplained": lambda: (
            f"{tried} were asked for and {size(_room(evidence))} were free: the figures do not explain it"
        ),
    }
    text = texts.get(kind)
    return _full(evidence) if text is None else text()


def _evaluation(live: Live) -> str:
    if live.evaluates:
        return "the model is in eval mode, but gradients are on: each output keeps its activations"
    return "the evaluation needs more than the training did"


def _to_come(evidence: Evidence) -> str:
    size_bytes = evidence.live.state_to_come_bytes
    return f"; {units.size(size_bytes)} or more were still to come (predicted)" if size_bytes else ""


def _since(evidence: Evidence) -> str:
    live = evidence.live
    if live.growth_since_step is None:
        return ""
    what = f", {clean(live.growing_category, 40).replace('_', ' ')} most," if live.growing_category else ""
    return f"{what} since step {step_number(live.growth_since_step):,}"


def _full(evidence: Evidence) -> str:
    short = short_by(evidence)
    lacking = "" if short is None or short.high == 0 else f", {size(short)} too little"
    if evidence.allocator == "metal":
        return (
            f"of {size(evidence.allowed)} allowed, PyTorch holds {size(evidence.allocated)} and the rest of the "
            f"process {size(evidence.beside)}; {size(evidence.tried)} more do not fit"
        )
    if evidence.at_hand is None:
        return (
            f"{size(evidence.tried)} were asked for beside {size(_held(evidence))} that PyTorch holds "
            f"of {size(evidence.total)}"
        )
    biggest = max(evidence.live.categories.items(), key=lambda item: item[1], default=None)
    most = ""
    if biggest and biggest[0] != "unattributed":
        most = f"; most is {clean(biggest[0], 40).replace('_', ' ')}, {units.size(biggest[1])}"
        as_of = evidence.live.categories_step
        most += "" if as_of is None else f" in step {step_number(as_of):,}, the last like it that was looked at"
    if _in_pieces(evidence):
        left = f"{size(evidence.at_hand)} of {size(evidence.total)} were free or idle, in pieces"
        return f"{size(evidence.tried)} were asked for, and no more than {left}{most}"
    return f"{size(evidence.tried)} were asked for, and {size(evidence.at_hand)} were free or idle{lacking}{most}"


def _in_pieces(evidence: Evidence) -> bool:
    """Whether what little a full device had left was enough, and in no one piece."""
    tried, at_hand = evidence.tried, evidence.at_hand
    return tried is not None and at_hand is not None and at_hand.low >= tried.high and is_nearly_full(evidence)


def _fragmentation(evidence: Evidence) -> str:
    live = evidence.live
    if evidence.in_pools:
        return (
            f"{size(evidence.private)} are free in the pools of CUDA graphs, which nothing else is given; "
            f"{size(evidence.tried)} were asked for, and {size(evidence.at_hand)} are free or idle elsewhere"
        )
    text = f"{size(evidence.at_hand)} are free or idle, but no piece of {size(evidence.tried)}"
    if live.pinned_segments and live.pins:
        return f"{text}: {live.pinned_segments:,} segments are pinned by live blocks, as {clean(live.pins[0].name, 60)}"
    return f"{text}{', by a narrow margin' if is_narrow(evidence) else ''}"


def _others(evidence: Evidence) -> str:
    if evidence.others is None:
        return (
            f"{size(evidence.outside)} of {size(evidence.total)} are held outside this PyTorch, which has "
            f"{size(evidence.reserved)}: by other processes, or by other libraries in this one"
        )
    return (
        f"others hold {size(evidence.others)} of {size(evidence.total)}; PyTorch in this process has "
        f"{size(evidence.reserved)}"
    )


def _longest(evidence: Evidence) -> str:
    larger, outgrown = evidence.live.larger_batch, evidence.live.outgrown
    if larger is None and outgrown is not None:
        return (
            f"this step needs {units.size(outgrown.needed_bytes)} at least, the {outgrown.steps:,} before it no more "
            f"than {units.size(outgrown.before_bytes)}: a longer batch, or another way through the model"
        )
    if larger is None:
        return _full(evidence)
    unit = clean(larger.unit, 20)
    return f"a batch of {larger.size:,} {unit}, the largest before had {larger.before:,}: {_full(evidence)}"


def _held(evidence: Evidence) -> Optional[Interval]:
    return evidence.reserved or evidence.allocated


def _room(evidence: Evidence) -> Optional[Interval]:
    if evidence.allocator != "metal" or evidence.allowed is None or evidence.allocated is None:
        return evidence.free
    held = evidence.allocated if evidence.beside is None else evidence.allocated + evidence.beside
    return (evidence.allowed - held).at_least_nothing()


def _at(evidence: Evidence) -> str:
    step = evidence.live.step
    return "" if step is None else f", step {step_number(step):,}"


def _undecided(cause: Cause, evidence: Evidence, message: Optional[Message]) -> str:
    if cause.reason == "no figures":
        complaint = message.complaint if message is not None else ""
        return f"undecided: {_COMPLAINTS.get(complaint, 'the figures are missing')}"
    if cause.reason == "contradiction":
        return f"undecided: the figures contradict each other: {contradicts(evidence)}"
    if not cause.possible:
        return "undecided: the message is cut off before the figures that would tell"
    kinds = " or ".join(_NAMES.get(kind, kind) for kind in cause.possible)
    likely = f"; most likely {_NAMES.get(cause.likely, cause.likely)}" if cause.likely else ""
    if cause.reason == "one message":
        return (
            f"undecided: {kinds}: {size(evidence.live_tensors)} of {size(evidence.total)} are live tensors, "
            f"and a request as small as {size(evidence.tried)} was the last straw"
        )
    return f"undecided: {kinds}{likely}"


def deciding(cause: Cause, message: Optional[Message] = None) -> str:
    """What would decide it; "" where nothing is open."""
    if cause.kind != "undecided":
        return ""
    if message is None and cause.reason == "no figures":  # it was watched where there are none: nothing was pasted
        return "PyTorch's own message has them: memtui explain LOG reads it in what the program printed."
    texts = {
        "rounding": (
            "The figures differ by less than they are rounded by. torch.cuda.memory_stats() has them to the byte, "
            "and memtui run shows them."
        ),
        "missing": "The message does not have all figures, or is cut off: paste it to its last full stop.",
        "contradiction": "Was it copied whole, and is it one message? Paste it again as it was printed.",
        "one message": (
            "Two figures of what is allocated at the same place of two later steps: what still grows is a leak. "
            "memtui run watches for it."
        ),
        "no figures": "Look at the lines around it for another message that has figures, or watch with memtui run.",
    }
    return texts[cause.reason]


def notes(cause: Cause, evidence: Evidence, message: Optional[Message] = None) -> tuple[str, ...]:
    """What else is worth a word, none of it the cause."""
    return tuple(_notes(cause, evidence, message))


def _notes(cause: Cause, evidence: Evidence, message: Optional[Message]) -> Iterator[str]:
    kind, tried, free, idle = cause.kind, evidence.tried, evidence.free, evidence.idle
    held = evidence.allocated
    if kind != "spill" and held is not None and evidence.total is not None and held.above(evidence.total):
        yield "More is allocated than the device has: the driver has put some into the host's memory."
    if kind == "cap" and tried is not None and idle is not None and idle.low >= tried.high:
        yield f"Inside the cap {size(idle)} lie idle, in pieces: fragmentation has its part in it."
    if kind == "cap" and tried is not None and free is not None and tried.above(free):
        yield f"Without the cap it would have failed too: {size(free)} were free on the device."
    others = evidence.others
    worth_a_word = None if evidence.total is None else Interval.exactly(evidence.total.high // 20)
    shared = others is not None and worth_a_word is not None and others.above(worth_a_word)
    if shared and kind in ("full", "fragmentation", "undecided"):
        yield f"The device is shared: other processes hold {size(others)} of it."
    outside = evidence.own_outside
    if outside is not None and outside.low > 2 << 30 and kind != "unexplained" and evidence.allocator != "metal":
        yield f"{size(outside)} of this process are outside PyTorch: context, libraries, communication (NCCL)."
    pools = evidence.private is not None and worth_a_word is not None and evidence.private.above(worth_a_word)
    if evidence.private is not None and pools and not (kind == "fragmentation" and evidence.in_pools):
        yield f"{size(evidence.private)} are free in private pools, which only CUDA graphs can use."
    whole = ("full", "leak", "longest batch", "evaluation peak", "checkpoint peak", "first optimizer step")
    if kind in whole and _in_pieces(evidence):
        yield f"No piece of it was of {size(tried)}: joined, it would have served this request and few more."
    if kind == "full" and evidence.live.phase:
        yield f"It was {place_words(evidence.live.phase, evidence.live.step or 0)}."
    if kind == "fragmentation" and evidence.live.growth_bytes_per_step:
        yield f"It grows by {units.size(round(evidence.live.growth_bytes_per_step))} a step, too."
    if kind == "unexplained" and evidence.backend == "XPU":
        yield "Drivers of such devices limit a single allocation, which no figure here shows."
    if message is not None and message.not_available:
        yield "2^64 bytes (17179869184.00 GiB) stand for a figure that the driver does not know (WSL, Windows)."
