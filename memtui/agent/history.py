"""What a viewer that comes late may still see: encoded frames, the older the sparser, never without the highest."""

from __future__ import annotations

import zlib
from collections import deque

#: (spacing, how many): every one of the newest frames, of some half minute; then one a second, then one every
#: half minute. Of those that share a place the one with the most allocated bytes stays.
_TIERS = ((0, 450), (1_000_000_000, 600), (30_000_000_000, 720))
#: From the tier of this spacing on they are packed, but for the newest there, which others may still replace.
_PACKED_NS = 1_000_000_000
#: zlib's window and memory, as small as a frame: 20 KiB while one is packed, instead of 256.
_WINDOW_BITS, _MEMORY_LEVEL = -11, 4


class History:
    """Encoded messages by time. Times are monotonic nanoseconds.

    Those older than the first tier's, of which there is one a second, are packed. One frame is much like another: with
    one device all of them together take about 1.5 MiB.
    """

    def __init__(self) -> None:
        self._tiers: list[deque[tuple[int, int, bytes]]] = [deque() for _ in _TIERS]
        self._like = b""  # what all packed ones are like

    def append(self, time_ns: int, height_bytes: int, message: bytes) -> None:
        """Adds a frame; `height_bytes` decides which of its neighbours outlives the others."""
        item = (time_ns, height_bytes, message)
        for tier, (spacing_ns, room) in zip(self._tiers, _TIERS):
            if spacing_ns and tier and item[0] - tier[-1][0] < spacing_ns:
                if item[1] > tier[-1][1]:
                    # The time of the first one of the place stays, else a rising curve would push it on for ever.
                    tier[-1] = (tier[-1][0], item[1], item[2])
                return
            if spacing_ns == _PACKED_NS and tier:
                # Packing takes longer than all else here: only what its place is left to.
                tier[-1] = (tier[-1][0], tier[-1][1], self._packed(tier[-1][2]))
            tier.append(item)
            if len(tier) <= room:
                return
            item = tier.popleft()

    def messages(self) -> list[bytes]:
        """All that is held, oldest first."""
        newest, packed, oldest = ([message for _, _, message in tier] for tier in self._tiers)
        return [*map(self._unpacked, [*oldest, *packed[:-1]]), *packed[-1:], *newest]

    def _packed(self, message: bytes) -> bytes:
        self._like = self._like or message
        packer = zlib.compressobj(
            6, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zlib.Z_DEFAULT_STRATEGY, self._like[-(1 << 11) :]
        )
        return packer.compress(message) + packer.flush()

    def _unpacked(self, message: bytes) -> bytes:
        return zlib.decompressobj(_WINDOW_BITS, self._like[-(1 << 11) :]).decompress(message)

    def __len__(self) -> int:
        return sum(map(len, self._tiers))
