"""Frames to bytes and back: four bytes of length, then JSON with a `kind`."""

from __future__ import annotations

import dataclasses
import json
import struct
import typing
from collections.abc import Iterator

from . import frames

#: A frame is about a kilobyte a device; anything near this is not ours.
MAX_MESSAGE_BYTES = 4 << 20
_LENGTH = struct.Struct("!I")
_KINDS = {cls: kind for kind, cls in frames.MESSAGES.items()}
_HINTS: dict[type, dict[str, typing.Any]] = {}


class CodecError(ValueError):
    """Bytes that are not a message of this protocol."""


def to_json(message: object) -> dict[str, typing.Any]:
    """A message as a JSON object with its `kind`; fields that hold nothing are left out."""
    return typing.cast("dict[str, typing.Any]", json.loads(_encoder.encode(_with_kind(message))))


def _with_kind(message: object) -> dict[str, typing.Any]:
    return {"kind": _KINDS[type(message)], **_fields(message)}


def _fields(value: object) -> dict[str, typing.Any]:
    return {key: item for key, item in value.__dict__.items() if item is not None and item not in ((), {})}


_encoder = json.JSONEncoder(separators=(",", ":"), default=_fields)


def encode(message: object) -> bytes:
    """A message with its length in front, ready for a socket."""
    body = _encoder.encode(_with_kind(message)).encode()
    return _LENGTH.pack(len(body)) + body


def from_json(plain: object) -> typing.Any:
    """The message that a JSON object stands for; raises CodecError. Unknown fields are a newer peer's: ignored."""
    if not isinstance(plain, dict) or plain.get("kind") not in frames.MESSAGES:
        raise CodecError(f"not a message: {str(plain)[:80]!r}")
    return _build(frames.MESSAGES[plain["kind"]], plain)


def decode(body: bytes) -> typing.Any:
    """The message in a body (without its length); raises CodecError."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    return from_json(plain)


def _hints(cls: type) -> dict[str, typing.Any]:
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]


def _build(cls: type, plain: dict[str, typing.Any]) -> typing.Any:
    hints = _hints(cls)
    given = {}
    for field in dataclasses.fields(cls):
        if field.name in plain:
            given[field.name] = _value(hints[field.name], plain[field.name], f"{cls.__name__}.{field.name}")
        elif hints[field.name] in _EMPTY and field.default is dataclasses.MISSING:
            given[field.name] = _EMPTY[hints[field.name]]()  # empty ones are left out on the wire
    try:
        return cls(**given)
    except TypeError as error:
        raise CodecError(f"{cls.__name__}: {error}") from None


_EMPTY: dict[typing.Any, typing.Callable[[], typing.Any]] = {
    dict[str, int]: dict,
    dict[str, typing.Any]: dict,
    tuple[str, ...]: tuple,
    tuple[frames.DeviceFrame, ...]: tuple,
}


def _value(hint: typing.Any, value: typing.Any, where: str) -> typing.Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return value
    if origin is typing.Union:
        return None if value is None else _value(arguments[0], value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(arguments[0], item, where) for item in value)
    if origin is dict and isinstance(value, dict):
        return {str(key): _value(arguments[1], item, where) for key, item in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(typing.cast(type, hint), value)
    if hint in (int, str, bool) and type(value) is hint:
        return value
    raise CodecError(f"{where}: {str(value)[:60]!r} is not {getattr(hint, '__name__', hint)}")


class Splitter:
    """Cuts a stream of bytes into message bodies; feed it what a socket gives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete now; raises CodecError at a length that no message has."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MAX_MESSAGE_BYTES:
                raise CodecError(f"a message of {size} bytes")
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield body
