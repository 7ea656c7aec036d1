"""Which rank of a distributed training this process is: as torch.distributed says it, else the launcher."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Optional

from .process import number_in

#: What a module raises that another thread is just importing, or a process group that is just being destroyed.
_NOT_NOW = (AttributeError, RuntimeError, ValueError, TypeError)


class Membership:
    """What was told of it last, and of the devices that are used; None is what nobody has said."""

    def __init__(self) -> None:
        self._devices: tuple[str, ...] = ()
        self.numbers: dict[str, Optional[int]] = {}

    def news(self, devices: Iterable[str]) -> bool:
        """Looks again; whether anything is another than it was. Some microseconds; imports nothing."""
        told = self._devices, self.numbers
        group = _of_the_group()
        if group is None:  # a group that has been destroyed is remembered
            group = number_in("RANK"), number_in("WORLD_SIZE")
        # A process that `torch.multiprocessing.spawn` started has no word of it in its environment.
        self.numbers = {
            "rank": told[1].get("rank") if group[0] is None else group[0],
            "world_size": told[1].get("world_size") if group[1] is None else group[1],
            "local_rank": number_in("LOCAL_RANK"),
            "restarts": number_in("TORCHELASTIC_RESTART_COUNT"),
        }
        self._devices = tuple(devices)
        return (self._devices, self.numbers) != told


def _of_the_group() -> Optional[tuple[Optional[int], Optional[int]]]:
    """Rank and size by the default process group; None where there is none."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank, size = int(distributed.get_rank()), int(distributed.get_world_size())
            return (rank, size) if rank >= 0 else None
    except _NOT_NOW:
        pass
    return None
