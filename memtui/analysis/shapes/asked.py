"""The size of a batch, as a user writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from memtui.analysis import units

from .fit import Law
from .scaled import Refused

#: torch's tokens are 64-bit integers.
TOKEN_BYTES = 8
_TIMES = re.compile(r"x(\d+(\.\d+)?)|(\d+(\.\d+)?)x")
_LARGEST = 1000.0


@dataclass(frozen=True)
class AskedShape:
    """`text` is "x2" for a factor of the largest recorded batch, "4096" for tokens, "96KiB" for bytes of the input."""

    text: str
    factor: Optional[float] = None
    input_bytes: Optional[int] = None

    def scale(self, input_law: Optional[Law]) -> float:
        """In parts of the largest recorded batch; raises Refused."""
        if self.factor is not None:
            return self.factor
        assert self.input_bytes is not None
        if input_law is None:
            raise Refused("the recorded steps make no input that differs in size: write --max-shape x2")
        found = input_law.scale(self.input_bytes)
        if found is None or not found <= _LARGEST:
            raise Refused(f"no batch has an input of {units.size(self.input_bytes)} here")
        return found


def asked_shape(text: str) -> AskedShape:
    """What was written; raises ValueError."""
    compact = text.replace(",", "").strip()
    times = _TIMES.fullmatch(compact)
    if times is not None:
        factor = float(times[1] or times[3])
        if not 0 < factor <= _LARGEST:
            raise ValueError(f"{text!r} is no factor from 0 to {_LARGEST:.0f}")
        return AskedShape(text, factor=factor)
    try:
        size = int(compact) * TOKEN_BYTES if compact[-1:].isdigit() else units.parse_size(compact)
    except ValueError:
        size = 0
    if not 0 < size < 2**62:
        raise ValueError(
            f"{text!r} is no size of a batch: write tokens (4096), a factor (x2) or bytes of input (96KiB)"
        )
    return AskedShape(text, input_bytes=size)
