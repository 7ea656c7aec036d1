"""A link to another machine: small frames over a stream of bytes, with several agents' streams side by side.

A frame is a kind, a channel and a size, then so many bytes. `TOLD` is a JSON object of the link itself (channel 0);
`DATA` a piece of a channel's stream; `CLOSE` its end, with the reason; `CREDIT` says that so many bytes have been
taken in: of a channel's data, or, as channel 0, of the link's own bytes. What comes from the other machine is packed
by zlib as one stream; what goes there is not.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

#: Raised by one when an older relay would misread; it is sent along with each connection, so they seldom differ.
VERSION = 1
#: The relay's first line begins with this; what a login script has printed before it is no part of the link.
GREETING = b"memtui-relay-"

TOLD, DATA, CLOSE, CREDIT = 1, 2, 3, 4
_HEAD = struct.Struct("!BII")
_COUNT = struct.Struct("!Q")
MAX_FRAME_BYTES = 1 << 20
PIECE_BYTES = 16 << 10
#: Bytes of one channel that may be under way.
CHANNEL_BYTES = 256 << 10
_UNPACKED_AT_ONCE = 256 << 10


class LinkError(ValueError):
    """Bytes that are not of such a link; the message is a few words."""


def frame(kind: int, channel: int, payload: bytes = b"") -> bytes:
    """A frame, ready to be sent."""
    return _HEAD.pack(kind, channel, len(payload)) + payload


def told(**fields: Any) -> bytes:
    """A frame of the link's own."""
    return frame(TOLD, 0, json.dumps(fields, separators=(",", ":")).encode())


def credit(channel: int, count: int) -> bytes:
    """A frame that says that `count` bytes have been taken in."""
    return frame(CREDIT, channel, _COUNT.pack(count))


def read_credit(payload: bytes) -> int:
    """How many; raises LinkError."""
    if len(payload) != _COUNT.size:
        raise LinkError("a credit of another size")
    return int(_COUNT.unpack(payload)[0])


def read_told(payload: bytes) -> dict[str, Any]:
    """The object in a frame; raises LinkError."""
    try:
        plain = json.loads(payload, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise LinkError("what is no JSON") from None
    if type(plain) is not dict:
        raise LinkError("what is no object")
    return plain


def _no_number(text: str) -> None:
    raise LinkError(f"{text}, which is no number")


class Frames:
    """Cuts a stream of bytes into frames; feed it what comes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(kind, channel, payload) of those that are complete now; raises LinkError at what is none."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            kind, channel, size = _HEAD.unpack_from(self._buffer)
            if kind not in (TOLD, DATA, CLOSE, CREDIT) or size > MAX_FRAME_BYTES:
                raise LinkError("a frame that is none")
            end = _HEAD.size + size
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield kind, channel, payload


class Packer:
    """Packs one stream; each piece can be read as soon as it has come."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(6)

    def pack(self, data: bytes) -> bytes:
        """The packed bytes of a piece."""
        return self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)


class Unpacker:
    """Unpacks one stream, no more at once than can be dealt with: a few packed bytes may stand for gigabytes."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj()

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Pieces, one after the other; raises LinkError."""
        while data:
            try:
                piece = self._unpacker.decompress(data, _UNPACKED_AT_ONCE)
            except zlib.error:
                raise LinkError("what is not packed as it should be") from None
            data = self._unpacker.unconsumed_tail
            if self._unpacker.eof:
                raise LinkError("an end within the stream")
            if piece:
                yield piece
