"""The allocator's settings: how it rounds what is asked for, and what it asks the device for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

MIB = 1 << 20
#: Torch's kMinBlockSize: every block is a multiple of it.
UNIT_BYTES = 512
#: kSmallSize: what is larger is taken from the pool of large blocks.
SMALL_BYTES = MIB
#: kSmallBuffer: the segments of the pool of small blocks.
SMALL_SEGMENT_BYTES = 2 * MIB
#: kMinLargeAlloc: from here on a segment is made for one block.
_OWN_SEGMENT_BYTES = 10 * MIB
#: kRoundLarge: such a segment is a multiple of it.
_SEGMENT_UNIT_BYTES = 2 * MIB
#: The divisions of roundup_power2_divisions are by powers of two from 1 MiB to 32 GiB.
_FIRST_POWER, _POWERS = 20, 16


@dataclass(frozen=True)
class Settings:
    """What PYTORCH_ALLOC_CONF says of the device's memory; the defaults are torch's."""

    max_split_bytes: Optional[int] = None  # max_split_size_mb
    max_non_split_rounding_bytes: int = 20 * MIB
    large_segment_bytes: int = 20 * MIB  # kLargeBuffer in older torch, where it cannot be set
    roundup_power2_divisions: tuple[int, ...] = ()  # by power of two, the first for all up to 2 MiB
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False

    def rounded(self, asked_bytes: int) -> int:
        """The bytes of the block that so many asked for are given at least: torch's round_size."""
        if asked_bytes < UNIT_BYTES:
            return UNIT_BYTES
        if self.roundup_power2_divisions:
            power = asked_bytes.bit_length() - 1
            place = min(max(power - _FIRST_POWER, 0), _POWERS - 1)
            divisions = self.roundup_power2_divisions[place]
            if divisions > 1 and asked_bytes > UNIT_BYTES * divisions:
                part = max(1, (1 << power) >> (divisions.bit_length() - 1))
                return -(-asked_bytes // part) * part
        return -(-asked_bytes // UNIT_BYTES) * UNIT_BYTES

    def segment_bytes(self, block_bytes: int) -> int:
        """The bytes that the device is asked for where no free block will do: get_allocation_size."""
        if block_bytes <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if block_bytes < _OWN_SEGMENT_BYTES:
            return self.large_segment_bytes
        return -(-block_bytes // _SEGMENT_UNIT_BYTES) * _SEGMENT_UNIT_BYTES

    def page_bytes(self, *, small: bool) -> int:
        """What an expandable segment grows by."""
        return SMALL_SEGMENT_BYTES if small else self.large_segment_bytes


def settings_from(told: Mapping[str, Any]) -> Settings:
    """Those that torch's snapshot tells as `allocator_settings`; what it does not tell is read from their text."""
    text = str(told.get("PYTORCH_CUDA_ALLOC_CONF") or "")
    divisions = told.get("roundup_power2_divisions")
    parts = tuple(int(divisions.get(str(1 << power), 0)) for power in range(_POWERS)) if divisions else ()
    limit = told.get("max_split_size")
    threshold = told.get("garbage_collection_threshold")
    return Settings(
        max_split_bytes=limit if isinstance(limit, int) and limit > 0 else None,
        max_non_split_rounding_bytes=_mebibytes(text, "max_non_split_rounding_mb") or 20 * MIB,
        large_segment_bytes=_mebibytes(text, "large_segment_size_mb") or 20 * MIB,
        roundup_power2_divisions=parts if any(part > 1 for part in parts) else (),
        garbage_collection_threshold=float(threshold) if isinstance(threshold, (int, float)) else 0.0,
        expandable_segments=bool(told.get("expandable_segments")),
    )


def _mebibytes(text: str, name: str) -> Optional[int]:
    for setting in text.replace(" ", "").split(","):
        key, _, value = setting.partition(":")
        if key == name and value.isdigit():
            return int(value) * MIB
    return None
