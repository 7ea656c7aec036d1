"""A recorded step as it would be if every block of the model were checkpointed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Optional

from memtui.analysis.recorded import Block, StepTimeline

from .moments import Life, Moment, lives, of_lives

_CHECKPOINT = "torch/utils/checkpoint.py"
#: A block that keeps one tensor only has nothing to compute again.
_LEAST_KEPT = 2


@dataclass(frozen=True)
class Checkpointed:
    """The instants with checkpointing; none where they cannot be told, and why."""

    moments: tuple[Moment, ...] = ()
    blocks: int = 0
    reason: str = ""
    in_use: bool = False


NOT_RECORDED = Checkpointed(reason="not known: d records a step")


def checkpointed(timeline: StepTimeline) -> Checkpointed:
    """Each repeated block keeps its output only, and has the rest again while its own backward lasts.

    Of a block's activations the last to be made is taken to be its output, which is the next one's input. The others
    live twice: until the block's forward ends, and from when the first of them was freed in backward.
    """
    if any(_CHECKPOINT in site.replace("\\", "/") for site in timeline.recorded.sites):
        return Checkpointed(reason="in use already", in_use=True)
    starts = sorted(mark.event for mark in timeline.recorded.marks if mark.phase == "backward")
    if len(starts) != 1:
        return Checkpointed(reason="the recorded step has no backward, or several: they cannot be told apart")
    blocks = _blocks(timeline, starts[0])
    if len(blocks) < 2:
        return Checkpointed(reason="no repeated blocks in the recorded step")
    changed: list[Life] = []
    of_blocks = {id(block) for held in blocks.values() for block in held}
    for block, life in zip(timeline.blocks, lives(timeline)):
        if id(block) not in of_blocks:
            changed.append(life)
    for held in blocks.values():
        changed += _twice(timeline, held)
    return Checkpointed(of_lives(changed, timeline), len(blocks))


def container(module: str) -> Optional[str]:
    """The block that a module is in: "layers.3" of "layers.3.mlp.up"; None of one in no numbered block."""
    names = module.split(".")
    number = next((place for place, name in enumerate(names) if name.isdigit()), None)
    return None if number is None else ".".join(names[: number + 1])


def _blocks(timeline: StepTimeline, backward: int) -> dict[str, list[Block]]:
    """What each repeated block keeps for its backward."""
    activations = timeline.categories.index("activations")
    found: defaultdict[str, list[Block]] = defaultdict(list)
    for block in timeline.blocks:
        kept = 0 <= block.born < backward and block.died is not None and block.died >= backward
        if kept and block.category == activations and block.module >= 0:
            name = container(timeline.modules[block.module])
            if name is not None:
                found[name].append(block)
    return {name: held for name, held in found.items() if len(held) >= _LEAST_KEPT}


def _twice(timeline: StepTimeline, held: list[Block]) -> list[Life]:
    output = max(held, key=lambda block: block.born)
    others = [block for block in held if block is not output]
    again = min(block.died for block in others if block.died is not None)
    result = [Life(output.born, output.died, output.size_bytes, "activations")]
    for block in others:
        result.append(Life(block.born, output.born, block.size_bytes, "activations"))
        result.append(Life(again, block.died, block.size_bytes, "activations"))
    return result
