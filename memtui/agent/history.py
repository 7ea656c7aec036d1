"""What a viewer that comes late may still see: encoded frames, the older the sparser, never without the highest."""

from __future__ import annotations

from collections import deque

#: (spacing, how many): every frame of the last minute and a half, then one a second, then one every half minute. Of
#: those that share a place the one with the most allocated bytes stays. About 2.3 MiB with one device.
_TIERS = ((0, 900), (1_000_000_000, 600), (30_000_000_000, 720))


class History:
    """Encoded messages by time. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._tiers: list[deque[tuple[int, int, bytes]]] = [deque() for _ in _TIERS]

    def append(self, time_ns: int, height_bytes: int, message: bytes) -> None:
        """Adds a frame; `height_bytes` decides which of its neighbours outlives the others."""
        item = (time_ns, height_bytes, message)
        for tier, (spacing_ns, room) in zip(self._tiers, _TIERS):
            if spacing_ns and tier and item[0] - tier[-1][0] < spacing_ns:
                if item[1] > tier[-1][1]:
                    # The time of the first one of the place stays, else a rising curve would push it on for ever.
                    tier[-1] = (tier[-1][0], item[1], item[2])
                return
            tier.append(item)
            if len(tier) <= room:
                return
            item = tier.popleft()

    def messages(self) -> list[bytes]:
        """All that is held, oldest first."""
        return [message for tier in reversed(self._tiers) for _, _, message in tier]

    def __len__(self) -> int:
        return sum(map(len, self._tiers))
