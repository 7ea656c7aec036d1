"""The formats of out-of-memory messages, read from text without white space: it is the same however it was wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from .interval import Printed, read_printed
from .message import Format, Listed, Message

_SIZE = r"(\d{1,30}(?:\.\d{1,9})?)(bytes?|[KMGT]i?B)"
_BACKENDS = "CUDA|HIP|XPU|NPU|MUSA|MLU|HPU|GCU|MACA|SDAA|VACC"
#: Where a message begins. The last needs the word of an exception before it: others merely speak of such errors.
_START = re.compile(
    rf"(?P<tried>(?:(?P<backend>{_BACKENDS})outofmemory\.)?Triedtoallocate(?=\d{{1,30}}(?:\.\d{{1,9}})?(?:bytes?|[KMGT]i?B)[.(]))"
    r"|(?P<platform>Currentplatformcan(?:NOT|not)allocatememoryblockwithsizelargerthan(?P<gigabytes>\d{1,4})GB)"
    r"|(?P<metal>MPSbackendoutofmemory)"
    r"|(?P<async>Allocationondevice(?P<device>\d{0,3})(?=would|\W|$|[A-Z]))"
    r"|(?P<host>(?:can'tallocatememory|notenoughmemory):youtriedtoallocate(?P<bytes>\d{1,30})bytes)"
    r"|(?P<more>Triedtoallocatemorethan1EBmemory)"
    r"|(?P<driver>(?:CUDA|HIP)drivererror:outofmemory)"
    r"|(?P<runtime>(?:CUDA|HIP)error:outofmemory|cudaruntimeerror\(2\):outofmemory|THCudaCheckFAIL.{0,300}?error=2\b)"
    r"|(?P<library>(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT|HIPBLAS)_(?:STATUS_)?ALLOC_FAILED)"
    r"|(?P<jetson>NVML_SUCCESS==rINTERNALASSERTFAILED)"
    rf"|(?P<bare>(?<=Error:)(?:{_BACKENDS})outofmemory(?!\.?Triedto))"
)
#: Cheap to look for in a large log; every whole message has one that no wrap with a prefix has cut.
MARKS = (
    b"outofmemory",
    b"OutOfMemory",
    b"Triedtoallocate",
    b"youtriedto",
    b"totalcap",
    b"alreadyallocated",
    b"MPSallocated",
    b"Allocationondevice",
    b"exceedallowed",
    b"Currentlyallocated",
    b"ALLOC_FAILED",
    b"error=2",
    b"NVML_SUCCESS",
)
#: No message is longer without its white space, with a prefix in front of every wrapped line.
LONGEST = 3_000
_OTHER_BEGINS = re.compile(r"Traceback\(mostrecentcalllast\)")

_BRACKETS = {
    "total": rf"{_SIZE}totalcapacity",
    "allocated": rf"{_SIZE}alreadyallocated",
    "active": rf"{_SIZE}currentactive",
    "free": rf"{_SIZE}free",
    "allowed": rf"{_SIZE}allowed",
    "cached": rf"{_SIZE}cached",
    "reserved": rf"{_SIZE}reservedintotal",
}
_SENTENCES = {
    "total": rf"totalcapac?i?ty?of{_SIZE}",
    "free": rf"ofwhich{_SIZE}isfree",
    "in_use": rf"thisprocesshas{_SIZE}memoryinuse",
    "allowed": rf"{_SIZE}allowed;",
    "allocated": rf"allocatedmemory{_SIZE}isallocatedbyPyTorch",
    "private": rf"with{_SIZE}allocatedinprivatepools",
    "unallocated": rf"{_SIZE}isreservedbyPyTorchbutunallocated",
}
# A colon at the beginning of a wrapped line goes with its prefix.
_METAL = {
    "allocated": rf"MPSallocated:?{_SIZE}",
    "other": rf"otherallocations:?{_SIZE}",
    "allowed": rf"maxallowed:?{_SIZE}",
    "tried": rf"Triedtoallocate{_SIZE}",
}
_ASYNC = {
    "allocated": rf"Currentlyallocated:?{_SIZE}",
    "tried": rf"Requested:?{_SIZE}",
    "total": rf"Devicelimit:?{_SIZE}",
    "free": rf"Free\(accordingtoCUDA\):?{_SIZE}",
    "allowed": rf"user-suppliedmemoryfraction\):?{_SIZE}",
}
_TRIED = {"tried": rf"Triedtoallocate{_SIZE}"}
_READ = {
    name: {figure: re.compile(pattern) for figure, pattern in patterns.items()}
    for name, patterns in (
        ("brackets", {**_TRIED, **_BRACKETS}),
        ("sentences", {**_TRIED, **_SENTENCES}),
        ("metal", _METAL),
        ("async", _ASYNC),
    )
}
_PROCESS = re.compile(rf"Process(\d{{1,10}})has{_SIZE}memoryinuse")
_DEVICE = re.compile(r"[GN]PU(\d{1,3})(?=;|has)")
_UNALLOCATED = re.compile("reservedbyPyTorchbutunallocated")
_METAL_END = re.compile(r"on(?:shared|private)pool")
_ASYNC_END = re.compile(rf"memoryfraction\):?{_SIZE}")
_HINT = "expandable_segments:True"
_HINT_REACH = 250


@dataclass(frozen=True)
class Placed:
    """A message, and where in the text it begins and ends."""

    message: Message
    start: int
    end: int


def read_messages(squeezed: str) -> Iterator[Placed]:
    """Every message in a text without white space, in its order."""
    place = 0
    while True:
        found = _START.search(squeezed, place)
        if found is None:
            return
        placed = _read(squeezed, found)
        yield placed
        place = max(placed.end, found.end())


def _read(squeezed: str, found: re.Match[str]) -> Placed:
    reach = squeezed[found.start() : found.start() + LONGEST]
    following = _OTHER_BEGINS.search(reach)
    if following:
        reach = reach[: following.start()]
    kind = found.lastgroup
    for name, read in _READERS.items():
        if found.group(name) is not None:
            message, length = read(found, reach)
            break
    else:
        message, length = Message("bare", "CUDA", complaint=kind or "bare"), found.end() - found.start()
    return Placed(message, found.start(), found.start() + length)


def _tried(found: re.Match[str], reach: str) -> tuple[Message, int]:
    """PyTorch's own allocator, or one that was made from it."""
    size = re.compile(rf"Triedtoallocate{_SIZE}").search(reach)
    behind = reach[size.end() : size.end() + 1] if size else ""
    backend = found.group("backend") or "CUDA"
    if behind == "(":
        return _brackets(backend, reach, "brackets")
    end = _UNALLOCATED.search(reach)
    body = _until_next(reach, found.end() - found.start()) if end is None else reach[: end.end()]
    tail = reach[end.end() : end.end() + _HINT_REACH] if end else ""
    again = _START.search(tail)
    hint = _HINT in (tail[: again.start()] if again else tail)
    processes = tuple(Listed(int(pid), read_printed(digits, unit)) for pid, digits, unit in _PROCESS.findall(body))
    message = Message(
        "sentences", backend, _device(body), _figures("sentences", body), processes, end is not None, hint
    )
    return message, len(body)


def _brackets(backend: str, reach: str, form: Format, complaint: str = "") -> tuple[Message, int]:
    opened = reach.find("(")
    closed = reach.find(")", opened) if opened >= 0 else -1
    body = reach[: closed + 1] if closed >= 0 else reach
    return (
        Message(form, backend, _device(body), _figures("brackets", body), (), closed >= 0, complaint=complaint),
        len(body),
    )


def _platform(found: re.Match[str], reach: str) -> tuple[Message, int]:
    """An Intel platform whose blocks are limited; the figures follow as in brackets."""
    return _brackets("XPU", reach, "block limit", f"{found.group('gigabytes')} GB")


def _metal(found: re.Match[str], reach: str) -> tuple[Message, int]:
    end = _METAL_END.search(reach)
    body = _until_next(reach, len("MPSbackendoutofmemory"), "tried") if end is None else reach[: end.end()]
    return Message("metal", "MPS", None, _figures("metal", body), (), end is not None), len(body)


def _async(found: re.Match[str], reach: str) -> tuple[Message, int]:
    length = found.end() - found.start()
    end = _ASYNC_END.search(reach)
    body = _until_next(reach, length) if end is None else reach[: end.end()]
    figures = _figures("async", body)
    device = found.group("device")
    number = int(device) if device else None
    if not figures:
        return Message("bare", "CUDA", number, complaint="async"), length
    return Message("async", "CUDA", number, figures, (), end is not None), len(body)


def _host(found: re.Match[str], reach: str) -> tuple[Message, int]:
    tried = read_printed(found.group("bytes"), "bytes")
    return Message("host", "CPU", None, {"tried": tried}), found.end() - found.start()


def _more(found: re.Match[str], reach: str) -> tuple[Message, int]:
    return Message("more than can be", "CUDA"), found.end() - found.start()


_READERS = {
    "tried": _tried,
    "platform": _platform,
    "metal": _metal,
    "async": _async,
    "host": _host,
    "more": _more,
}


def _until_next(reach: str, length: int, *passed: str) -> str:
    """Up to where another message begins, in one that is cut off."""
    place = length
    while True:
        again = _START.search(reach, place)
        if again is None:
            return reach
        if not any(again.group(name) is not None for name in passed):
            return reach[: again.start()]
        place = again.end()


def _figures(form: str, body: str) -> dict[str, Printed]:
    found = {}
    for name, pattern in _READ[form].items():
        match = pattern.search(body)
        if match is not None:
            found[name] = read_printed(match.group(1), match.group(2))
    return found


def _device(body: str) -> Optional[int]:
    match = _DEVICE.search(body)
    return None if match is None else int(match.group(1))
