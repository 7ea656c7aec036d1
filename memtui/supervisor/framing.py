"""Frames on the socket between a supervisor and its viewers: one kind, one length, one payload."""

from __future__ import annotations

import struct

#: Kind (1 byte) and payload length (4 bytes), network order.
HEADER = struct.Struct("!BI")

#: No honest frame is longer; a length above it is another protocol or a broken peer.
MAX_PAYLOAD_BYTES = 1 << 20


class FramingError(Exception):
    """The bytes received are not frames of this protocol; the connection is of no further use."""


def encode(kind: int, payload: bytes = b"") -> bytes:
    """One frame; raises FramingError where the payload is longer than any receiver accepts."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise FramingError(f"payload of {len(payload)} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    return HEADER.pack(kind, len(payload)) + payload


class Decoder:
    """Turns received bytes, cut anywhere, back into frames."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that `data` completes, as (kind, payload); raises FramingError on an impossible length."""
        received = self._received
        received += data
        frames: list[tuple[int, bytes]] = []
        position = 0
        while len(received) - position >= HEADER.size:
            kind, length = HEADER.unpack_from(received, position)
            if length > MAX_PAYLOAD_BYTES:
                raise FramingError(f"frame of {length} bytes announced; the limit is {MAX_PAYLOAD_BYTES}")
            end = position + HEADER.size + length
            if end > len(received):
                break
            frames.append((kind, bytes(received[position + HEADER.size : end])))
            position = end
        # One deletion a call: deleting frame by frame moves the rest each time.
        del received[:position]
        return frames
