"""Which rank of a distributed training this process is: as torch.distributed says it, else the launcher."""

from __future__ import annotations

import sys
from typing import NamedTuple, Optional

from .process import number_in

#: What a module raises that another thread is just importing, or a process group that is just being destroyed.
_NOT_NOW = (AttributeError, RuntimeError, ValueError, TypeError)


class Membership(NamedTuple):
    """None is what nobody has said."""

    rank: Optional[int] = None
    world_size: Optional[int] = None
    local_rank: Optional[int] = None
    restarts: Optional[int] = None  # of all ranks together, before this life

    def now(self) -> Membership:
        """As it is said now; a group that has been destroyed is remembered. Some microseconds; imports nothing."""
        group = _of_the_group()
        # A process that `torch.multiprocessing.spawn` started has no word of it in its environment.
        rank, world_size = group or (number_in("RANK"), number_in("WORLD_SIZE"))
        return Membership(
            self.rank if rank is None else rank,
            self.world_size if world_size is None else world_size,
            number_in("LOCAL_RANK"),
            number_in("TORCHELASTIC_RESTART_COUNT"),
        )


def _of_the_group() -> Optional[tuple[int, int]]:
    """Rank and size by the default process group; None where there is none."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank, size = int(distributed.get_rank()), int(distributed.get_world_size())
            return (rank, size) if rank >= 0 else None
    except _NOT_NOW:
        pass
    return None
