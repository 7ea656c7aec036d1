"""Recorded steps: one of a made-up GPT, and small ones written down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from memtui.wire.frames import CATEGORIES, Mark, RecordedStep

MIB = 1 << 20
GIB = 1 << 30


class Recorder:
    """Writes down a step: what was there before, then event after event; times are given as shares of the step."""

    def __init__(self, duration_ns: int = 412_000_000, **fields: Any) -> None:
        self.duration_ns = duration_ns
        self.fields = fields
        self.blocks: list[list[int]] = []
        self.event_us: list[int] = []
        self.marks: list[Mark] = []
        self.lists: dict[str, list[str]] = {"names": [], "sites": [], "modules": []}
        self.allocated = self.highest = self.before = 0
        self._at_us = 0

    def at(self, share: float) -> None:
        """The next events happen when so much of the step is over."""
        self._at_us = int(share * self.duration_ns / 1000)

    def mark(self, phase: str) -> None:
        """A phase begins with the next event."""
        self.marks.append(Mark(len(self.event_us), phase))

    def alloc(
        self,
        size: int,
        category: str,
        name: Optional[str] = None,
        site: Optional[str] = None,
        module: Optional[str] = None,
        *,
        before: bool = False,
    ) -> int:
        """Allocates a block; its number."""
        places = [self._place(key, text) for key, text in (("names", name), ("sites", site), ("modules", module))]
        born = -1
        if before:
            self.before += size
        else:
            born = self._event()
        self.allocated += size
        self.highest = max(self.highest, self.allocated)
        self.blocks.append([born, -1, size, CATEGORIES.index(category) if category else -1, *places])
        return len(self.blocks) - 1

    def free(self, block: int) -> None:
        """Frees a block."""
        self.blocks[block][1] = self._event()
        self.allocated -= self.blocks[block][2]

    def step(self) -> RecordedStep:
        """What was written down."""
        given: dict[str, Any] = {
            "device": "cuda:0",
            "step": 6,
            "time_ns": 1,
            "duration_ns": self.duration_ns,
            "cost_ns": 2_300_000,
            "before_bytes": self.before,
            "counted_peak_bytes": self.highest,
            "event_us": tuple(self.event_us),
            "marks": tuple(self.marks),
            "blocks": tuple(tuple(block) for block in self.blocks),
            "categories": CATEGORIES,
            **{key: tuple(texts) for key, texts in self.lists.items()},
        }
        return RecordedStep(**{**given, **self.fields})

    def _place(self, key: str, text: Optional[str]) -> int:
        if text is None:
            return -1
        if text not in self.lists[key]:
            self.lists[key].append(text)
        return self.lists[key].index(text)

    def _event(self) -> int:
        self.event_us.append(self._at_us)
        return len(self.event_us) - 1


PARTS = (("attn.qkv.weight", 3), ("attn.out.weight", 1), ("mlp.up.weight", 4), ("mlp.down.weight", 4))
LAYERS = 12
_MODEL = "/home/user/gpt/model.py"
_CALLER = "\n/home/user/gpt/model.py:102 forward\n/home/user/gpt/train.py:58 train\n/home/user/gpt/train.py:80 <module>"
_TORCH = "/usr/lib/python3.11/site-packages/torch"
ACTIVATIONS = (
    ("ln", 1, f"{_TORCH}/nn/functional.py:2955 layer_norm\n{_MODEL}:61 forward"),
    ("attn.qkv", 3, f"{_TORCH}/nn/modules/linear.py:134 forward\n{_MODEL}:31 forward"),
    ("attn", 8, f"{_MODEL}:38 softmax"),
    ("attn.out", 1, f"{_TORCH}/nn/modules/linear.py:134 forward\n{_MODEL}:44 forward"),
    ("mlp.up", 4, f"{_TORCH}/nn/modules/linear.py:134 forward\n{_MODEL}:52 forward"),
    ("mlp", 4, f"{_MODEL}:53 gelu"),
)


def gpt(duration_ns: int = 412_000_000, unit: int = 50 * MIB, **fields: Any) -> RecordedStep:
    """A step of a made-up GPT on 80 GiB: 12 layers, AdamW, its peak early in backward, before the gradients grow."""
    made = Recorder(duration_ns, **fields)
    tensors = [("wte.weight", 16, "wte")]
    tensors += [
        (f"layers.{n}.{name}", size, f"layers.{n}.{name.removesuffix('.weight')}")
        for n in range(LAYERS)
        for name, size in PARTS
    ]
    sized = [(name, size * unit * 61 // 100, module) for name, size, module in tensors]
    for name, size, module in sized:
        made.alloc(size, "parameters", name, module=module, before=True)
        for moment in ("exp_avg", "exp_avg_sq"):
            made.alloc(size, "optimizer_state", f"{name} {moment}", module=module, before=True)
    made.alloc(8_519_680, "workspaces", before=True)
    made.mark("between")
    batch = made.alloc(12 * MIB, "inputs", site="/home/user/gpt/data.py:21 batch\n/home/user/gpt/train.py:55 train")
    made.mark("forward")
    kept: list[tuple[int, str, int]] = []
    count = LAYERS * len(ACTIVATIONS)
    for n in range(LAYERS):
        for place, (part, size, site) in enumerate(ACTIVATIONS):
            made.at(0.02 + 0.31 * (n * len(ACTIVATIONS) + place) / count)
            work = made.alloc(size * unit // 3, "temporaries", site=site + _CALLER, module=f"layers.{n}.{part}")
            block = made.alloc(size * unit, "activations", site=site + _CALLER, module=f"layers.{n}.{part}")
            made.free(work)
            kept.append((block, f"layers.{n}.{part}", size))
    made.at(0.34)
    made.mark("loss")
    head = f"{_MODEL}:104 logits\n/home/user/gpt/train.py:58 train"
    logits = made.alloc(30 * unit, "activations", site=head, module="head")
    made.at(0.36)
    made.mark("backward")
    back = "/home/user/gpt/train.py:61 train\n/home/user/gpt/train.py:80 <module>"
    grad = made.alloc(30 * unit, "temporaries", site=back, module="head")
    made.free(logits)
    gradients: list[int] = []
    left = list(reversed(sized))
    for place, (block, module, size) in enumerate(reversed(kept)):
        made.at(0.37 + 0.45 * place / count)
        work = made.alloc(size * unit * 9 // 10, "temporaries", site=back, module=module)
        made.free(block)
        if place == 3:
            made.free(grad)
        made.free(work)
        while left and len(gradients) < len(sized) * (place + 1) // count:
            name, held, owner = left.pop(0)
            gradients.append(made.alloc(held, "gradients", f"{name} (gradient)", back, owner))
    made.at(0.83)
    made.mark("optimizer")
    for place in range(6):
        made.at(0.83 + 0.02 * place)
        update = f"{_TORCH}/optim/adamw.py:603 _multi_tensor_adamw\n/home/user/gpt/train.py:62 train"
        made.free(made.alloc(14 * unit, "temporaries", site=update))
    made.at(0.96)
    made.mark("between")
    for gradient in gradients:
        made.free(gradient)
    made.free(batch)
    return made.step()


def by_hand(blocks: Sequence[Sequence[int]], events: int, **fields: Any) -> RecordedStep:
    """A step of so many events, a millisecond apart, with these blocks: (born, died, bytes, category, name, ...)."""
    full = tuple((*block, *(-1,) * (7 - len(block))) for block in map(tuple, blocks))
    given: dict[str, Any] = {
        "device": "cuda:0",
        "step": 3,
        "time_ns": 1,
        "duration_ns": events * 1_000_000,
        "cost_ns": 1_000_000,
        "before_bytes": sum(block[2] for block in full if block[0] < 0),
        "counted_peak_bytes": None,
        "event_us": tuple(1000 * event for event in range(events)),
        "marks": (),
        "blocks": full,
        "categories": CATEGORIES,
        "names": (),
        "sites": (),
        "modules": (),
    }
    return RecordedStep(**{**given, **fields})
