"""What a supervisor and a viewer say to each other, and how it is written into frames."""

from __future__ import annotations

import enum
import json
import struct
from typing import Any

from memtui.supervisor import framing

PROTOCOL = "memtui-run"

#: Both sides name it in their hello. Unknown kinds are skipped, so only a change of meaning raises it.
VERSION = 1

#: In front of output: how far from the beginning of the stream it starts.
OFFSET = struct.Struct("!Q")


class Kind(enum.IntEnum):
    """The first byte of a frame."""

    # From the supervisor.
    HELLO = 1  # JSON; the viewer answers with its own
    START = 2  # JSON: pid, argv, cwd, started_at, pty
    OUTPUT = 3  # offset in the stream, then bytes; a gap between two frames is output this viewer lost
    STOPPED = 4  # JSON: stopped
    EXIT = 5  # JSON: code or signal; sent after the last byte the program itself wrote
    END = 6  # nothing more will be written: the last descendant has closed the terminal
    # From a viewer.
    INPUT = 16  # bytes, as typed
    REPLY = 17  # bytes, the terminal's answer to a query; taken from one viewer only
    RESIZE = 18  # JSON: columns, rows
    SIGNAL = 19  # JSON: signal, group
    COLLECTED = 20  # the exit status has arrived where it matters


class MessageError(Exception):
    """A frame arrived whole, and its payload is not what its kind promises."""


def write(kind: Kind, **fields: Any) -> bytes:
    """A frame whose payload is a JSON object; surrogate escapes in argv survive as \\u escapes."""
    return framing.encode(kind, json.dumps(fields).encode("ascii") if fields else b"")


def write_output(offset: int, data: bytes) -> bytes:
    """An OUTPUT frame: `data` begins `offset` bytes after the beginning of the program's output."""
    return framing.encode(Kind.OUTPUT, OFFSET.pack(offset) + data)


def read(payload: bytes) -> dict[str, Any]:
    """The JSON object of a payload; raises MessageError."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise MessageError("not a JSON object")
    return fields


def read_output(payload: bytes) -> tuple[int, bytes]:
    """Offset and bytes of an OUTPUT payload; raises MessageError."""
    if len(payload) < OFFSET.size:
        raise MessageError("output frame without an offset")
    return OFFSET.unpack_from(payload)[0], payload[OFFSET.size :]


def integer(fields: dict[str, Any], name: str, lowest: int, highest: int) -> int:
    """The integer field `name`; raises MessageError where it is missing, not one, or out of range."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise MessageError(f"{name}: {value!r} is not an integer from {lowest} to {highest}")
    return value
