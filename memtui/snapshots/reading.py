"""Opening a file: how much memory it will take, whether it may be read at all, and what is in it."""

from __future__ import annotations

import contextlib
import gc
import gzip
import io
import os
import pickle
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, Optional, Union, cast

from memtui.analysis.text import clean
from memtui.analysis.units import size

from . import opcodes
from .errors import SnapshotError

#: What a pickle takes in memory: for each of its bytes, and besides for each dict and list. Together they are 0.9 to
#: 1.3 times what snapshots of torch 2.5 to 2.14 took under Python 3.9 to 3.13, with the columns of a timeline.
_PER_BYTE, _PER_DICT_BYTES, _PER_LIST_BYTES = 2, 350, 70
#: Reading ends where it takes so many times the estimate.
_TOO_MUCH, _ALWAYS_ALLOWED_BYTES = 2, 64 << 20
_GZIP = b"\x1f\x8b"
_NOTHING_KNOWN = opcodes.Contents(0, 0)
_PROTOCOLS = range(2, 6)
_WATCHED_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20


def looks_like_snapshot(path: str) -> bool:
    """Whether a file begins as a pickle of protocol 2 to 5 does, or a gzip file; False where it cannot be read."""
    if not os.path.isfile(path):
        return False  # of a pipe nothing may be taken away
    try:
        with open(path, "rb") as file:
            first = file.read(2)
    except OSError:
        return False
    return first == _GZIP or (first[:1] == b"\x80" and len(first) == 2 and first[1] in _PROTOCOLS)


def estimated_bytes(path: str) -> int:
    """The memory that reading a file will take, told by its size and what is in it. Raises SnapshotError."""
    name = clean(path, 200)
    with _readable(path, name) as (stream, pickle_bytes):
        return _estimate(stream, name, pickle_bytes, None)


def load(path: str, available_bytes: Optional[int]) -> Any:
    """What the pickle in a file holds: dicts, lists, texts, numbers, and pairs of small numbers; nothing else can be.

    `available_bytes` of memory are there for it, None where that is not known: a file that needs more is refused before
    it is read, and reading ends where more is taken than that. Raises SnapshotError.
    """
    name = clean(path, 200)
    with _readable(path, name) as (stream, pickle_bytes):
        needed = _estimate(stream, name, pickle_bytes, available_bytes)
        _refuse_too_large(name, needed, available_bytes)
        stream.seek(0)
        allowed = _TOO_MUCH * needed + _ALWAYS_ALLOWED_BYTES
        return _build(stream, name, allowed if available_bytes is None else min(allowed, available_bytes))


@contextlib.contextmanager
def _readable(path: str, name: str) -> Iterator[tuple[BinaryIO, Optional[int]]]:
    """As `_opened`; what goes wrong with the file while it is read is a SnapshotError."""
    try:
        with _opened(path, name) as opened:
            yield opened
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise SnapshotError(f"{name} is a gzip file that is cut off or damaged: copy it again") from None
    except OSError as error:
        raise SnapshotError(f"cannot read {name}: {error.strerror or error}") from None


def _estimate(stream: BinaryIO, name: str, pickle_bytes: Optional[int], available_bytes: Optional[int]) -> int:
    total = pickle_bytes if pickle_bytes is not None else _unpacked(stream, name, available_bytes)
    _refuse_too_large(name, needed_bytes(total), available_bytes, " or more")
    stream.seek(0)
    return needed_bytes(total, opcodes.check(stream, name, total))


def needed_bytes(pickle_bytes: int, contents: opcodes.Contents = _NOTHING_KNOWN) -> int:
    """The memory that a pickle takes once it is read, as an estimate; without its contents the least that it can be."""
    return _PER_BYTE * pickle_bytes + _PER_DICT_BYTES * contents.dicts + _PER_LIST_BYTES * contents.lists


def _refuse_too_large(name: str, needed: int, available_bytes: Optional[int], more: str = "") -> None:
    if available_bytes is not None and needed > available_bytes:
        raise SnapshotError(
            f"{name} needs some {size(needed)}{more} of memory and {size(available_bytes)} are there: "
            "open it on a larger machine, or record with a smaller max_entries"
        )


@contextlib.contextmanager
def _opened(path: str, name: str) -> Iterator[tuple[BinaryIO, Optional[int]]]:
    """The pickle, and its size where that is known before it is unpacked."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise SnapshotError(f"{name} is no file: name the snapshot's")
    with open(path, "rb", buffering=_PIECE_BYTES) as file:
        first = file.read(2)
        file.seek(0)
        if first != _GZIP:
            _check_beginning(first, name)
            yield file, os.fstat(file.fileno()).st_size
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            _check_beginning(unpacked.read(2), name)
            yield cast(BinaryIO, unpacked), None


def _check_beginning(first: bytes, name: str) -> None:
    if not first:
        raise SnapshotError(f"{name} is empty: the snapshot was not written")
    if first[:1] != b"\x80" or len(first) < 2:
        kind = "a zip file, as torch.save writes them" if first == b"PK" else "no pickle of protocol 2 or later"
        raise SnapshotError(f"{name} is {kind}, so no memory snapshot: torch.cuda.memory._dump_snapshot writes those")
    if first[1] not in _PROTOCOLS:
        raise SnapshotError(f"{name} is a pickle of protocol {first[1]}: this memtui reads 2 to 5")


def _unpacked(stream: BinaryIO, name: str, available_bytes: Optional[int]) -> int:
    """The size of what a gzip file holds, looked at no further than to where it would not fit."""
    total = 2
    while piece := stream.read(_PIECE_BYTES):
        total += len(piece)
        _refuse_too_large(name, needed_bytes(total), available_bytes, " or more")
    return total


def _build(stream: BinaryIO, name: str, allowed_bytes: int) -> Any:
    source = _Source(stream, name, allowed_bytes)
    try:
        with _without_collection():
            return _Restricted(cast(BinaryIO, source)).load()
    except (pickle.UnpicklingError, EOFError):
        raise SnapshotError(f"{name} is cut off or damaged: it is no whole pickle; copy it again") from None
    except MemoryError:
        raise SnapshotError(f"{name} takes more memory than there is") from None
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
        raise SnapshotError(f"{name} is damaged, or no memory snapshot: it cannot be put together") from None


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Nothing in a snapshot refers back to itself, and looking for what does takes longer than reading it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # What was read stays as it is: the collector need not walk through it either, now or later.
        gc.freeze()
        if collecting:
            gc.enable()


class _Restricted(pickle.Unpickler):
    """Builds nothing but what the language has literals for; `opcodes.check` has let nothing else through."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, identity: object) -> NoReturn:
        raise pickle.UnpicklingError("a persistent object")


class _Source:
    """A stream that gives no large pieces, and ends where what was built of it takes more memory than it may."""

    def __init__(self, stream: BinaryIO, name: str, allowed_bytes: int) -> None:
        self._stream = cast(io.BufferedReader, stream)
        self._name, self._allowed_bytes = name, allowed_bytes
        self._unwatched_bytes = 0
        self._begun_bytes = resident_bytes()

    def read(self, length: int) -> bytes:
        """As a file's."""
        self._watch(length)
        return self._stream.read(length)

    def readinto(self, buffer: Union[bytearray, memoryview]) -> int:
        """As a file's."""
        self._watch(len(buffer))
        return self._stream.readinto(buffer)

    def readline(self) -> bytes:
        """As a file's; no operation that is let through reads lines."""
        return self._stream.readline(opcodes.LONGEST_PIECE_BYTES)

    def peek(self, length: int) -> bytes:
        """As a file's: what an unpickler reads of pickles without frames."""
        return self._stream.peek(length)

    def _watch(self, length: int) -> None:
        if length > opcodes.LONGEST_PIECE_BYTES:
            raise SnapshotError(f"{self._name} is damaged, or no memory snapshot: it has a piece of {length:,} bytes")
        self._unwatched_bytes += length
        if self._unwatched_bytes < _WATCHED_BYTES:
            return
        self._unwatched_bytes = 0
        now, begun = resident_bytes(), self._begun_bytes
        if now is not None and begun is not None and now - begun > self._allowed_bytes:
            raise SnapshotError(
                f"{self._name} is damaged, or no memory snapshot: it takes more than {size(self._allowed_bytes)} of "
                "memory, which is too much for its size"
            )


def resident_bytes() -> Optional[int]:
    """This process's memory now; None where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
