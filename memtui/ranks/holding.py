"""What a rank's memory is made of over its newest steps: what ranks are compared by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Optional

from memtui.analysis.ladder import Ladder
from memtui.session.session import Session

#: Steps after which categories are what they will be.
_UNSETTLED = 2
#: What is wrapped in DistributedDataParallel, and in either generation of FSDP.
_DDP, _FSDP, _FSDP1 = "DistributedDataParallel", "FSDP", "FullyShardedDataParallel"


@dataclass(frozen=True)
class Holding:
    """Of each category the most that the newest looks found, in bytes; with what is beside the allocator's tensors."""

    most: Mapping[str, int] = field(default_factory=dict)
    cache_bytes: Optional[int] = None  # reserved and not allocated, now
    non_torch_bytes: Optional[int] = None
    parameters: Optional[int] = None  # how many the model has in this process
    parameter_bytes: Optional[int] = None
    dtypes: tuple[str, ...] = ()
    wrapped: str = ""  # "ddp", "fsdp", or "" for neither
    looks: int = 0

    def of(self, category: str) -> int:
        """Bytes of a category, 0 where none were seen."""
        return self.most.get(category, 0)


def holding_of(session: Session, device: str, ladder: Ladder, looks: int) -> Holding:
    """Of one device of a session."""
    most: dict[str, int] = {}
    seen = 0
    known = session.looks(device)
    # In the first steps that were seen, what was there before is not told apart yet.
    settled = known[0][0].step + _UNSETTLED if known and known[-1][0].step > known[0][0].step + _UNSETTLED else 0
    for look, _ in islice(reversed(known), looks):
        if look.step < settled:
            break
        seen += 1
        for category, held in look.categories.items():
            if held > most.get(category, 0):
                most[category] = held
    model = session.model
    cache = None
    if ladder.reserved_bytes is not None and ladder.allocated_bytes is not None:
        cache = ladder.reserved_bytes - ladder.allocated_bytes
    return Holding(
        most,
        cache,
        ladder.non_torch_bytes,
        None if model is None else model.parameters,
        None if model is None else sum(model.parameter_bytes.values()),
        () if model is None else tuple(sorted(name for name, held in model.dtypes.items() if held)),
        "" if model is None else _wrapped(model.roots),
        seen,
    )


def _wrapped(roots: tuple[str, ...]) -> str:
    if any(root == _DDP for root in roots):
        return "ddp"
    return "fsdp" if any(root.startswith((_FSDP, _FSDP1)) for root in roots) else ""
