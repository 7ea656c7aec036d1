"""Frames to bytes and back: four bytes of length, then JSON with a `kind`."""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
import typing
from collections.abc import Iterator

from . import frames

#: A frame is about a kilobyte a device; anything near this is not ours.
MAX_MESSAGE_BYTES = 4 << 20
_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size
_KINDS = {cls: kind for kind, cls in frames.MESSAGES.items()}


class CodecError(ValueError):
    """Bytes that are not a message of this protocol."""


def to_json(message: object) -> dict[str, typing.Any]:
    """A message as a JSON object with its `kind`; fields that hold nothing are left out."""
    return typing.cast("dict[str, typing.Any]", json.loads(_encoder.encode(_with_kind(message))))


def _with_kind(message: object) -> dict[str, typing.Any]:
    return {"kind": _KINDS[type(message)], **_fields(message)}


def _fields(value: object) -> dict[str, typing.Any]:
    return {
        key: item
        for key, item in value.__dict__.items()
        if item or (item is not None and item.__class__ not in _HOLDERS)
    }


_HOLDERS = (tuple, dict)
_encoder = json.JSONEncoder(separators=(",", ":"), default=_fields)


def encode(message: object) -> bytes:
    """A message with its length in front, ready for a socket."""
    body = _encoder.encode(_with_kind(message)).encode()
    return _LENGTH.pack(len(body)) + body


class Text(str):
    """JSON already: in a frame it stands for the object that it says."""

    __slots__ = ()


def encode_frame(frame: frames.Frame) -> bytes:
    """As `encode`, without looking for fields that hold nothing: whoever made this frame has left them out.

    Frames come one at a time, when others have had the processor's caches: what a general encoder touches takes ten
    times as long then as it does again and again. So the names are there already, and only numbers are put between.
    """
    body = _object({"kind": "frame", **frame.__dict__}).encode()
    return _LENGTH.pack(len(body)) + body


def rest_of(fields: dict[str, typing.Any]) -> str:
    """The JSON of what comes after an object's first field, for `aged`."""
    return "," + _object(fields)[1:]


def aged(age_ns: int, rest: str) -> Text:
    """An object whose age is its first field, and all that changes of it."""
    return Text(f'{{"age_ns":{age_ns}{rest}')


#: By the names of an object's fields. Categories are among them, of which a program may have named some itself.
_templates: dict[tuple[str, ...], str] = {}
_MOST_TEMPLATES = 256
_string = functools.lru_cache(64)(_encoder.encode)


def _object(fields: dict[str, typing.Any]) -> str:
    names = tuple(fields)
    template = _templates.get(names)
    if template is None:
        if len(_templates) >= _MOST_TEMPLATES:
            _templates.clear()
        template = ",".join([_string(name).replace("%", "%%") + ":%s" for name in names])
        template = _templates[names] = "{" + template + "}"
    return template % tuple([value if value.__class__ is int else _word(value) for value in fields.values()])


def _word(value: typing.Any) -> str:
    kind = value.__class__
    if kind is Text or kind is int:
        return str(value)
    if kind is str:
        return _string(value)
    if value is None or kind is bool:
        return _CONSTANTS[value]
    if kind is tuple:
        return f"[{','.join([_word(item) for item in value])}]"
    return _object(value if kind is dict else value.__dict__)


_CONSTANTS = {None: "null", False: "false", True: "true"}


def from_json(plain: object) -> typing.Any:
    """The message that a JSON object stands for; raises CodecError. Unknown fields are a newer peer's: ignored."""
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not isinstance(kind, str) or kind not in frames.MESSAGES:
        raise CodecError(f"not a message: {str(plain)[:80]!r}")
    return _build(frames.MESSAGES[kind], plain)


def decode(body: bytes) -> typing.Any:
    """The message in a body (without its length); raises CodecError."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    return from_json(plain)


_Convert = typing.Callable[[typing.Any], typing.Any]
#: For each field of a class: its name, what turns JSON into it, and what it is where the peer left it out.
_PLANS: dict[type, tuple[tuple[str, _Convert, typing.Optional[typing.Callable[[], typing.Any]]], ...]] = {}
_REQUIRED: dict[type, frozenset[str]] = {}


def _build(cls: type, plain: dict[str, typing.Any]) -> typing.Any:
    plan = _PLANS.get(cls) or _plan(cls)
    given = {}
    for name, convert, empty in plan:
        if name in plain:
            given[name] = convert(plain[name])
        elif empty is not None:
            given[name] = empty()
    if not given.keys() >= _REQUIRED[cls]:
        missing = ", ".join(sorted(_REQUIRED[cls] - given.keys()))
        raise CodecError(f"{cls.__name__} without {missing}")
    return frames.made(cls, given)


def _plan(cls: type) -> typing.Any:
    # Annotations are read once: they are what takes the time.
    hints = typing.get_type_hints(cls)
    plan = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        empty = typing.get_origin(hint) if field.default is dataclasses.MISSING else None  # those are left out
        if empty is typing.Union:  # Optional
            empty = _none
        plan.append((field.name, _converter(hint, f"{cls.__name__}.{field.name}"), empty))
    required = (name for name, _, empty in plan if empty is None and not hasattr(cls, name))
    _REQUIRED[cls] = frozenset(required)
    _PLANS[cls] = tuple(plan)
    return _PLANS[cls]


def _none() -> None:
    return None


def _converter(hint: typing.Any, where: str) -> _Convert:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None:
        return _container(origin, _converter(arguments[0 if origin is not dict else 1], where), where)
    if hint is typing.Any:
        return lambda value: value
    if hint is int:
        # What does not fit into 64 bits is nobody's memory and nobody's clock.
        return lambda value: value if type(value) is int and _LEAST <= value < -_LEAST else _wrong(where, value)
    if hint in (str, bool):
        return lambda value: value if type(value) is hint else _wrong(where, value)
    return lambda value: _build(hint, value) if type(value) is dict else _wrong(where, value)


def _container(origin: typing.Any, inner: _Convert, where: str) -> _Convert:
    if origin is tuple:
        return lambda value: tuple(map(inner, value)) if type(value) is list else _wrong(where, value)
    if origin is dict:
        return lambda value: (
            {key: inner(item) for key, item in value.items()} if type(value) is dict else _wrong(where, value)
        )
    return lambda value: None if value is None else inner(value)  # Optional


_LEAST = -(1 << 63)


def _wrong(where: str, value: typing.Any) -> typing.NoReturn:
    raise CodecError(f"{where}: {str(value)[:60]!r}")


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
