"""Out-of-memory messages of every format, printed from figures known to the byte; and the right verdict on those."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from memtui.analysis.policy import DEFAULT

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Figures:
    """What a device and an allocator held when a request failed, in bytes."""

    tried: int
    total: int
    free: int
    allocated: int
    idle: int
    own_outside: int = 0
    others: tuple[int, ...] = ()
    allowed: Optional[int] = None
    private: int = 0

    @property
    def reserved(self) -> int:
        return self.allocated + self.idle


def c10_size(size: int) -> str:
    """As c10's format_size prints it."""
    if size <= 1024:
        return f"{size} bytes"
    if size <= 1 << 20:
        return f"{size / 1024:.2f} KiB"
    return f"{size / (1 << 20):.2f} MiB" if size <= 1 << 30 else f"{size / (1 << 30):.2f} GiB"


HINT = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management"
    "  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
_OLD_HINT = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    "  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)


def brackets(sizes: Mapping[str, str], form: str, device: int = 0) -> str:
    """Formats T2, T3, T4, T12, T15 and T16; sizes are printed already, and one that is absent is left out."""
    backend = {"T15": "NPU", "T16": "MUSA"}.get(form, "CUDA")
    head = f"RuntimeError: {backend} out of memory. "
    if form == "T12":
        head = "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! "
    names = [
        ("total", "total capacity"),
        ("allocated", "already allocated"),
        ("free", "free"),
        ("allowed", "allowed"),
        ("cached" if form == "T2" else "reserved", "cached" if form == "T2" else "reserved in total by PyTorch"),
    ]
    parts = "; ".join(f"{sizes[name]} {words}" for name, words in names if name in sizes)
    where = f"GPU  {device}" if form == "T12" else f"{'NPU' if form == 'T15' else 'GPU'} {device}"
    return f"{head}Tried to allocate {sizes['tried']} ({where}; {parts}){_OLD_HINT if form in ('T4', 'T16') else ''}"


def sentences(
    sizes: Mapping[str, str], form: str, device: int = 0, others: tuple[str, ...] = (), hint: str = HINT
) -> str:
    """Formats T5 to T11."""
    backend = {"T10": "HIP", "T11": "XPU"}.get(form, "CUDA")
    error = "torch.cuda.OutOfMemoryError" if form in ("T5", "T6", "T7") else "torch.OutOfMemoryError"
    text = f"{error}: {backend} out of memory. Tried to allocate {sizes['tried']}. GPU {device} has a total "
    text += f"{'capacty' if form == 'T5' else 'capacity'} of {sizes['total']}"
    text += f" of which {sizes['free']} is free. " if "free" in sizes else ". "
    text += "".join(f"Process {4000 + place} has {size} memory in use. " for place, size in enumerate(others))
    if "in_use" in sizes:
        text += f"Including non-PyTorch memory, this process has {sizes['in_use']} memory in use. "
    if "allowed" in sizes:
        text += f"{sizes['allowed']} allowed; "
    text += f"Of the allocated memory {sizes['allocated']} is allocated by PyTorch, "
    if "private" in sizes:
        graphs = "HIP" if form == "T10" else "CUDA"
        text += f"with {sizes['private']} allocated in private pools (e.g., {graphs} Graphs), "
    if "idle" not in sizes:
        return text
    return f"{text}and {sizes['idle']} is reserved by PyTorch but unallocated.{hint}"


def metal(sizes: Mapping[str, str]) -> str:
    """Format T13."""
    most = f", max allowed: {sizes['allowed']}" if "allowed" in sizes else ""
    return (
        f"RuntimeError: MPS backend out of memory (MPS allocated: {sizes['allocated']}, other allocations: "
        f"{sizes['other']}{most}). Tried to allocate {sizes['tried']} on private pool. Use "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure)."
    )


def asynchronous(sizes: Mapping[str, str], device: int = 0) -> str:
    """Format T14."""
    return (
        f"torch.OutOfMemoryError: Allocation on device {device} would exceed allowed memory. (out of memory)\n"
        f"Currently allocated     : {sizes['allocated']}\nRequested               : {sizes['tried']}\n"
        f"Device limit            : {sizes['total']}\nFree (according to CUDA): {sizes['free']}\n"
        "PyTorch limit (set by user-supplied memory fraction)\n"
        f"                        : {sizes.get('allowed', '17179869184.00 GiB')}"
    )


FORMS = ("T2", "T3", "T4", "T15", "T5", "T6", "T7", "T8", "T9", "T10", "T14")


def print_message(figures: Figures, form: str, device: int = 0) -> str:
    """The message that PyTorch would print."""
    known: dict[str, Optional[int]] = {
        "tried": figures.tried,
        "total": figures.total,
        "free": figures.free,
        "allocated": figures.allocated,
        "reserved": figures.reserved,
        "cached": figures.idle,
        "idle": figures.idle,
        "allowed": figures.allowed,
        "private": figures.private or None,
        "in_use": figures.reserved + figures.own_outside if form not in ("T5", "T10") else None,
    }
    sizes = {name: c10_size(value) for name, value in known.items() if value is not None}
    if form in ("T2", "T3", "T4", "T15"):
        return brackets(sizes, form, device)
    if form == "T14":
        return asynchronous(sizes, device)
    return sentences(sizes, form, device, tuple(map(c10_size, figures.others)) if "in_use" in sizes else ())


def random_figures(chance: random.Random, form: str) -> Figures:
    """Figures that a failing allocator could show, many of them at an edge of the rule."""
    total = chance.choice([4, 6, 8, 11, 16, 24, 40, 80, 141]) * GIB - chance.randrange(700) * MIB
    spilled = chance.random() < 0.05
    share = chance.uniform(1, 2) if spilled else chance.choice([chance.random() ** 0.5, chance.random() ** 3])
    reserved = _rounded(int(total * share))
    idle = 0 if form == "T14" else int(reserved * chance.choice([0, chance.random(), chance.random() ** 4]))
    rest = max(0, total - reserved)
    own_outside = int(rest * chance.random() ** 3)
    rest -= own_outside
    others = _split(int(rest * chance.choice([0, 0.9, 0.99, 1, chance.random()])), chance)
    free = rest - sum(others)
    edges = [free, free + idle, total, 2 * MIB, 20 * MIB, GIB]
    tried = chance.choice([*edges, int(total * chance.random()), int((free + idle) * chance.random())])
    tried += chance.choice([0, 0, *_NEAR])
    tried = max(512, _rounded(tried) if chance.random() < 0.7 else tried)
    allowed = None
    if chance.random() < 0.2 and form != "T2":
        near = reserved + tried + chance.choice([0, *_NEAR])
        allowed = max(1, chance.choice([near, int(total * chance.random())]))
    private = int((reserved - idle) * chance.random() ** 3) if form == "T7" and chance.random() < 0.5 else 0
    return Figures(tried, total, free, reserved - idle, idle, own_outside, others, allowed, private)


_NEAR = tuple(sign * step for sign in (1, -1) for step in (1, 512, 4 * KIB, MIB, 2 * MIB, 5 * MIB, 12 * MIB))


def _rounded(size: int) -> int:
    return size // (2 * MIB) * (2 * MIB)


def _split(size: int, chance: random.Random) -> tuple[int, ...]:
    count = chance.choice([1, 1, 2, 3])
    return () if not size else tuple(size // count + (size % count if place == 0 else 0) for place in range(count))


def verdict(figures: Figures, form: str) -> frozenset[str]:  # noqa: PLR0911 (as many verdicts as there are)
    """What is right of figures that are known to the byte: one kind, or two that no single message tells apart.

    Written from the rule and its reasons, apart from the code it judges.
    """
    if figures.tried > figures.total:
        return frozenset(("impossible",))
    if max(figures.allocated, figures.reserved) > figures.total:
        return frozenset(("spill",))
    if figures.allowed is not None and figures.reserved + figures.tried > figures.allowed:
        return frozenset(("cap",))
    if figures.free >= figures.tried:
        return frozenset(("unexplained",))
    if form in ("T6", "T7", "T8", "T9"):
        others = figures.total - figures.free - figures.reserved - figures.own_outside
    else:
        others = figures.total - figures.free - figures.reserved - 2 * GIB
    if others > figures.reserved and figures.free + max(0, others) >= figures.tried:
        return frozenset(("other process",))
    if figures.free + figures.idle < figures.tried:
        return frozenset(("full",))
    if figures.tried <= 4 * MIB and figures.idle <= int(DEFAULT.holes_share * figures.total):
        return frozenset(("leak", "full"))
    return frozenset(("fragmentation",))


@dataclass
class Disguise:
    """How a message stands in a log: prefixes, colours, wraps."""

    chance: random.Random
    rank: Optional[int] = None
    prefix: str = field(default="")

    def __post_init__(self) -> None:
        rank = self.chance.randrange(64)
        self.prefix, self.rank = self.chance.choice(
            [
                ("", None),
                ("", None),
                (f"[rank{rank}]: ", rank),
                (f"{rank}: ", rank),
                (f"[default{rank}]:", rank),
                ("2026-03-01 12:00:03,118 - trainer - ERROR - ", None),
                (f"[2026-03-01 12:00:03,118][train][ERROR] - [rank{rank}] ", rank),
                (f"(TrainWorker pid=3311, ip=10.0.0.7) [rank{rank}]: ", rank),
                ("E0301 12:00:03.118412 140213 train.py:88] ", None),
                ("trainer-1  | ", None),
                (f"[1,{rank}]<stderr>:", rank),
            ]
        )

    def of(self, text: str) -> str:
        """The text as it stands in the log, with lines around it."""
        lines = text.split("\n")
        how = self.chance.randrange(4)
        if how == 1:  # a terminal's wrap: at a column, in the middle of words, the prefix only once
            lines = _at_column(self.prefix + lines[0], self.chance.randrange(40, 160)) + lines[1:]
        elif how == 2:  # a logger's: at spaces, the prefix on every line
            lines = [self.prefix + part for line in lines for part in _at_spaces(line, self.chance.randrange(30, 120))]
        else:
            lines = [self.prefix + line for line in lines]
        if self.chance.random() < 0.3:
            lines[0] = f"\x1b[31;1m{lines[0]}\x1b[0m"
        if self.chance.random() < 0.2:
            lines[0] = f" 45%|████▌     | 12/27 [00:03<00:04,  3.31it/s]\r{lines[0]}"
        around = ["Traceback (most recent call last):", '  File "train.py", line 88, in step', "    loss.backward()"]
        return "\n".join([*(self.prefix + line for line in around), *lines, self.prefix + "Sending SIGTERM to ranks"])


def _at_column(line: str, width: int) -> list[str]:
    return [line[place : place + width] for place in range(0, len(line), width)]


def _at_spaces(line: str, width: int) -> list[str]:
    lines, current = [], ""
    for word in line.split(" "):
        if current and len(current) + len(word) >= width:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current]
