"""Out-of-memory messages in any text: a paste, or a log of any size, with prefixes, colours, wraps and many ranks."""

from __future__ import annotations

import bisect
import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Optional

from .formats import MARKS, read_messages
from .message import Message

#: What is read at a time, and how much of it a message may reach into what follows: wrapped, with prefixes.
BLOCK_BYTES = 1 << 18
TAIL_BYTES = 16 << 10
#: A line of more is taken as several: it makes no difference without white space.
_LINE = 4_096
#: So many lines without a prefix may be a wrapped line's that had one.
_INHERITED_LINES = 30
#: More different messages than these say no more.
MOST_MESSAGES = 1_000

_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
#: A frame around a traceback, and marks of no width.
_DROPPED = dict.fromkeys(map(ord, "\x00\u200b\u200c\u200d\u2060\ufeff│┃║╎┆"))
#: What loggers and launchers put in front of a line; the named group is the rank.
_PREFIX = re.compile(
    r"[\s:|-]*(?:"
    r"\[[Rr]ank[ _:]?(?P<a>\d{1,6})\]"
    r"|[Rr]ank[ _:]?(?P<f>\d{1,6})(?=[:|\s])"
    r"|\[(?:default|worker|trainer|local_rank)?[ :]?(?P<b>\d{1,6})\]:?"
    r"|\[\d+,(?P<c>\d{1,6})\]\s?<std(?:err|out)>:"
    r"|(?P<d>\d{1,6}):(?=\s)"
    r"|\((?:[\w.]+\s+)?(?:[Rr]ank=(?P<e>\d{1,6}),?\s*)?pid=\d+[^)\n]{0,60}\)"
    r"|[\[(]?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d+)?\s?(?:Z|UTC|[+-]\d\d:?\d\d)?[\])]?"
    r"|[\[(]?\d\d:\d\d:\d\d(?:[.,]\d+)?[\])]?(?=[\s|:-])"
    r"|[EWIF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [^\s\]]{1,80}\]"
    r"|[\[<(]?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|stderr|stdout)[\])>]?(?=[\s:|-])"
    r"|[\w.-]{1,60}\s+\|(?=\s)"
    r"|\[[A-Za-z_][\w.]{0,60}\](?=[\s\[:|-])"
    r"|[A-Za-z_][\w.]{0,60}\s-\s"
    r"|[>|](?=\s)"
    r")[\s:|-]*"
)
#: Where a message or its exception's name begins in a line: what stands before is a prefix of any kind.
_HEAD = re.compile(
    r"(?:[\w.]*(?:Error|Exception):\s*)?"
    r"(?:[A-Z]{3,5} out of memory|Current platform|Tried to allocate \d|Allocation on device|MPS backend)"
)
#: What begins a message anew, of another process, where no prefix says so.
_ANEW = re.compile(r"(?:[\w.]*(?:Error|Exception):\s*)?(?:[A-Z]{3,5} out of memory|Allocation on device|MPS backend)")
#: The end of a line that was wrapped within, or behind, the exception's name.
_NAME_BEGUN = re.compile(r"[\w.]*:?\s*[A-Z]{0,5}")


@dataclass(frozen=True)
class Found:
    """A message, the rank and the line that it was found at, and how often it stood there."""

    message: Message
    rank: Optional[int]
    line: int
    count: int = 1


def find_messages(stream: BinaryIO, watch: Callable[[bytes], None] = lambda _lines: None) -> list[Found]:
    """The different messages of a text, in its order; each block of it is forgotten once it was read.

    The stream is a buffered one. UTF-8 or UTF-16 is read, and bytes that are neither are passed over.
    `watch` is given every line, many at a time. Raises OSError.
    """
    found: dict[tuple[object, ...], Found] = {}
    for each in _placed(stream, watch):
        message = each.message
        key = (each.rank, message.format, message.device, tuple(message.figures.items()), message.processes)
        known = found.get(key)
        if known is not None:
            found[key] = replace(known, count=known.count + 1)
        elif len(found) < MOST_MESSAGES:
            found[key] = each
    return list(found.values())


def by_rank(found: Iterable[Found]) -> list[Found]:
    """Those of one rank together, the rank that failed first before the others."""
    order: dict[Optional[int], list[Found]] = {}
    for each in found:
        order.setdefault(each.rank, []).append(each)
    return [each for group in order.values() for each in group]


def _placed(stream: BinaryIO, watch: Callable[[bytes], None]) -> Iterator[Found]:
    tail, lines_before = b"", 0
    for block, last in _with_last(_as_utf8(stream)):
        buffer = tail + block
        cut = len(buffer) if last else _beginning_of_line(buffer, len(buffer) - TAIL_BYTES)
        squeezed = buffer.translate(None, b" \t\r\n\x0b\x0c\x00")
        if any(mark in squeezed for mark in MARKS):
            text = buffer.decode("utf-8", "replace")
            kept = len(text) if last else len(buffer[:cut].decode("utf-8", "replace"))
            yield from _in_text(text, kept, lines_before)
        watch(buffer[:cut])
        lines_before += buffer.count(b"\n", 0, cut)
        tail = buffer[cut:]


def _with_last(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each block, and whether it is the last one."""
    waiting = next(blocks, b"")
    for block in blocks:
        yield waiting, False
        waiting = block
    yield waiting, True


def _as_utf8(stream: BinaryIO) -> Iterator[bytes]:
    """The blocks of a stream; what a PowerShell has redirected is UTF-16."""
    block = stream.read(BLOCK_BYTES)
    encoding = _encoding(block)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    while block:
        yield block if decoder is None else decoder.decode(block).encode("utf-8", "replace")
        # After less than was asked for is the end; a terminal that is asked again wants another Ctrl-D.
        block = stream.read(BLOCK_BYTES) if len(block) == BLOCK_BYTES else b""


def _encoding(beginning: bytes) -> str:
    """UTF-16, by its mark or by the zeros of its Latin letters; "" for all else."""
    if beginning[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    sample = beginning[:4096]
    half = len(sample) // 2
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if half >= 8 and odd > 0.7 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if half >= 8 and even > 0.7 * half and odd < 0.1 * half else ""


def _beginning_of_line(buffer: bytes, place: int) -> int:
    """The first beginning of a line at or after `place`, or `place` itself in a line that does not end."""
    if place <= 0:
        return 0
    end = buffer.find(b"\n", place)
    if end >= 0 and end + 1 < len(buffer):
        return end + 1
    while place > 0 and buffer[place] & 0xC0 == 0x80:
        place -= 1  # not in the middle of a character
    return place


class _Lines:
    """The lines of one rank without their white space, and where each of them begins."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.places: list[int] = []
        self.sources: list[tuple[int, int]] = []  # offset in the text, number of the line
        self.length = 0
        self._prefix: Optional[re.Pattern[str]] = None
        self._prefix_lines = 0

    def add(self, line: str, offset: int, number: int) -> None:
        """Adds a line without the prefix that its message's first line had."""
        if self._prefix is not None and self._prefix_lines > 0:
            match = self._prefix.match(line)
            line = line[match.end() :] if match else line
            self._prefix_lines -= 1
        head = _HEAD.search(line)
        if head is not None and 0 < head.start() <= 120 and "Error" not in line[: head.start()]:
            self._prefix = re.compile(re.sub(r"\d+", r"\\d+", re.escape(line[: head.start()])))
            self._prefix_lines = _INHERITED_LINES
        squeezed = "".join(line.split()).translate(_DROPPED)
        self.parts.append(squeezed)
        self.places.append(self.length)
        self.sources.append((offset, number))
        self.length += len(squeezed)

    def source(self, place: int) -> tuple[int, int]:
        """The offset and the number of the line that holds a place of the joined text."""
        # The last that begins there, as empty lines begin where the next one does.
        return self.sources[bisect.bisect_right(self.places, place) - 1]


def _in_text(text: str, kept: int, lines_before: int) -> Iterator[Found]:
    """The messages that begin before `kept`."""
    streams: dict[Optional[int], _Lines] = {}
    rank: Optional[int] = None
    inherited, before = 0, ""
    for offset, number, line in _split(text):
        stripped, named = without_prefix(_SEQUENCES.sub("", line))
        if is_own(stripped):
            continue
        if named is not None:
            rank, inherited = named, _INHERITED_LINES
        elif inherited == 0 or (_ANEW.match(stripped) and not _NAME_BEGUN.fullmatch(before)):
            rank = None
        else:
            inherited -= 1
        before = stripped
        streams.setdefault(rank, _Lines()).add(stripped, offset, lines_before + number)
    found = []
    for of_rank, lines in streams.items():
        for placed in read_messages("".join(lines.parts)):
            offset, number = lines.source(placed.start)
            if offset < kept:
                found.append((offset, placed.start, Found(placed.message, of_rank, number)))
    yield from (each for _, _, each in sorted(found, key=lambda item: item[:2]))


def _split(text: str) -> Iterator[tuple[int, int, str]]:
    """Each line with its offset and its number in the text; what a carriage return wrote over counts as one, too."""
    offset, number = 0, 1
    for line in text.split("\n"):
        start = offset
        for part in line.split("\r"):
            for place in range(0, max(1, len(part)), _LINE):
                yield start + place, number, part[place : place + _LINE]
            start += len(part) + 1
        offset += len(line) + 1
        number += 1


def is_own(stripped: str) -> bool:
    """Whether a line without its prefix is memtui's own, which says again, and shorter, what the program has said."""
    return stripped.startswith("memtui: ")


def without_prefix(line: str) -> tuple[str, Optional[int]]:
    """A line without what loggers put before it, and the rank that this names."""
    rank: Optional[int] = None
    place = 0
    while True:
        match = _PREFIX.match(line, place)
        if match is None or match.end() == place:
            return line[place:], rank
        named = next((value for value in match.groupdict().values() if value is not None), None)
        rank = rank if named is None else int(named)
        place = match.end()
