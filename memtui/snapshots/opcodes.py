"""What a file may hold, told before anything of it is built.

An unpickler that refuses classes still builds what it is told to: a tuple of tuples of tuples as a key, whose hash
takes for ever or ends the interpreter's stack, or a memo of billions of entries. So a file is first checked, operation
by operation, for those that torch's snapshots consist of: numbers, texts, lists, dicts, and pairs of small numbers.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Protocol

from .errors import SnapshotError

#: Pickles are written in frames of some 64 KiB, and texts are names of functions and files: none comes near it.
LONGEST_PIECE_BYTES = 1 << 20
_CHUNK_BYTES = 4 << 20
#: Of each of them, what dicts and lists are counted in.
_COUNTED_BYTES = 1 << 18
#: Longer than any operation but a long text, so that none is judged by a part of it.
_MARGIN_BYTES = 512
#: Operations taken at once: the regular expression keeps some hundred bytes for each until it ends.
_RUN = 1000

#: One small number, or two; and what makes a pair of them where so many are there.
_NUMBERS = [re.compile(b"(?s:(?:K.|M..){%d})" % count) for count in (1, 2)]
_PAIRED = [re.compile(b"(?s:(?:K.|M..)\\x86)"), re.compile(b"(?s:(?:K.|M..)?\\x86)")]
_SHORT_TEXT, _TEXT, _FRAME, _PROTOCOL, _STOP = b"\x8c", b"X", b"\x95", b"\x80", b"."
#: GLOBAL, INST, STACK_GLOBAL, REDUCE, NEWOBJ, NEWOBJ_EX, OBJ, BUILD, EXT1, EXT2, EXT4, PERSID, BINPERSID.
_CLASSES = frozenset((b"c", b"i", b"\x93", b"R", b"\x81", b"\x92", b"o", b"b", b"\x82", b"\x83", b"\x84", b"P", b"Q"))
#: Of operations that may stand there, the bytes they take; a long number's are ten more at most.
_LENGTHS = {b"h": 2, b"q": 2, b"K": 2, b"M": 3, b"j": 5, b"r": 5, b"J": 5, b"X": 5, b"G": 9, b"\x8a": 11, b"\x8c": 2}
#: MEMOIZE, BINPUT, LONG_BINPUT.
_MEMO = (b"\x94", b"q", b"r")


class Stream(Protocol):
    """What is read from the beginning to the end: a file, or what a gzip file holds."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class Contents(NamedTuple):
    """About how many dicts and lists are going to be built."""

    dicts: int
    lists: int


def check(stream: Stream, name: str, size_bytes: int) -> Contents:
    """Reads `stream` to the pickle's end; raises SnapshotError where a memory snapshot could not be there.

    `size_bytes` is all there is of it. Some 6 ns a byte.
    """
    return _Check(stream, name, size_bytes).run()


class _Check:
    def __init__(self, stream: Stream, name: str, size_bytes: int) -> None:
        self._stream, self._name = stream, name
        self._plain = _plain(size_bytes)
        self._data = b""
        self._base = 0  # where in the stream the data begins
        self._read_bytes = 0
        self._at_end = False
        self._frame_end: Optional[int] = None  # in the stream; None between frames
        self._numbers = 0  # with which the frame before ended, at most two
        self._texts = ("", "")
        self._dicts = self._lists = 0

    def run(self) -> Contents:
        """Everything up to the operation that ends a pickle."""
        place = 0
        match = self._plain.match
        while True:
            while self._needed(place) > len(self._data) and not self._at_end:
                place = self._refill(place)
            if self._frame_end is not None and self._frame_end > self._read_bytes:
                raise self._cut_off()
            limit = len(self._data) if self._frame_end is None else self._frame_end - self._base
            if self._numbers and self._frame_end is not None:
                place = self._paired(place, limit)
            found = match(self._data, place, limit)
            if found is not None:
                if self._frame_end is None and found.end() + _MARGIN_BYTES > limit and not self._at_end:
                    place = self._refill(place)
                    continue
                place = found.end()
            if place == limit and self._frame_end is not None:
                self._numbers = 0 if found is None else self._numbers_at(found.start(), limit)
                self._frame_end = None
                continue
            if self._data[place : place + 1] == _STOP:
                return Contents(self._dicts, self._lists)
            step = self._special(place)
            if self._frame_end is None:
                self._numbers = 0
            # An operation across a frame's end is read by some unpicklers without its part before it: nobody writes it.
            if (step is None and found is None) or (self._in_frame(place) and not self._in_frame(place + (step or 0))):
                raise self._refused(place)
            place += step or 0

    def _numbers_at(self, begin: int, end: int) -> int:
        """How many of the last two operations from `begin` to `end` are small numbers; 1 where only the last one is."""
        for count, lengths in ((2, (4, 5, 6)), (1, (2, 3))):
            for cut in (end - length for length in lengths):
                if cut < begin or _NUMBERS[count - 1].fullmatch(self._data, cut, end) is None:
                    continue
                before = self._plain.match(self._data, begin, cut)
                if cut == begin or (before is not None and before.end() == cut):
                    return count
        return 0

    def _paired(self, place: int, limit: int) -> int:
        """Behind a pair that the frame before has begun: frames may end between any two operations."""
        found = _PAIRED[self._numbers - 1].match(self._data, place, limit)
        self._numbers = 0
        return place if found is None else found.end()

    def _in_frame(self, place: int) -> bool:
        return self._frame_end is not None and self._base + place <= self._frame_end

    def _needed(self, place: int) -> int:
        """What has to be there of the data: the operation at `place`, and all of the frame that it is in."""
        return max(place + _MARGIN_BYTES, 0 if self._frame_end is None else self._frame_end - self._base)

    def _refill(self, place: int) -> int:
        """Reads on, and drops what is before `place`, which may be behind all that was read; the place it has then."""
        more = self._more()
        kept, skipped = self._data[place:], max(place - len(self._data), 0)
        self._base += place
        self._data = kept + more[skipped:]
        return 0

    def _special(self, place: int) -> Optional[int]:
        """The length of an operation with a text, or of a frame's head; None of another one."""
        data = self._data
        operation = data[place : place + 1]
        if operation == _SHORT_TEXT and place + 1 < len(data):
            return self._text(place + 2, data[place + 1]) + 2
        if operation == _TEXT and place + 5 <= len(data):
            return self._text(place + 5, int.from_bytes(data[place + 1 : place + 5], "little")) + 5
        if operation == _FRAME and self._frame_end is None:
            length = int.from_bytes(data[place + 1 : place + 9], "little")
            self._check_length("a frame", place, length)
            self._frame_end = self._base + place + 9 + length
            return 9
        if operation == _PROTOCOL:
            return 2
        return None

    def _text(self, place: int, length: int) -> int:
        self._check_length("a text", place, length)
        if length < 256:
            self._texts = (self._texts[1], self._data[place : place + length].decode("utf-8", "replace"))
        return length

    def _check_length(self, what: str, place: int, length: int) -> None:
        if length > LONGEST_PIECE_BYTES:
            where = self._base + place
            raise SnapshotError(
                f"{self._name} is no memory snapshot, or damaged: {what} of {length:,} bytes at byte {where:,}"
            )

    def _more(self) -> bytes:
        more = self._stream.read(_CHUNK_BYTES)
        self._at_end = not more
        self._read_bytes += len(more)
        # Each is put into the memo directly after it was made; nothing else is followed by that. A part tells enough.
        part = more[:_COUNTED_BYTES]
        share = len(more) / len(part) if part else 0
        self._dicts += int(share * sum(part.count(b"}" + memo) for memo in _MEMO))
        self._lists += int(share * sum(part.count(b"]" + memo) for memo in _MEMO))
        return more

    def _refused(self, place: int) -> SnapshotError:
        rest = self._data[place : place + _MARGIN_BYTES]
        operation = rest[:1]
        if operation in _CLASSES:
            named = self._class(operation, place)
            return SnapshotError(
                f"{self._name} names {named}: a memory snapshot is numbers and texts alone; refused, nothing of it ran"
            )
        if len(rest) < _LENGTHS.get(operation, 0) or not operation:
            return self._cut_off()
        return SnapshotError(
            f"{self._name} is no memory snapshot, or damaged: it has operation 0x{operation.hex()} "
            f"at byte {self._base + place:,}"
        )

    def _cut_off(self) -> SnapshotError:
        return SnapshotError(f"{self._name} is cut off after {self._read_bytes:,} bytes: copy it again")

    def _class(self, operation: bytes, place: int) -> str:
        if operation in {b"c", b"i"}:
            words = self._data[place + 1 : place + 512].split(b"\n")[:2]
            return ".".join(word.decode("utf-8", "replace") for word in words)
        return ".".join(self._texts) if operation == b"\x93" and all(self._texts) else "a class"


def _plain(size_bytes: int) -> re.Pattern[bytes]:
    """A run of operations of fixed length; each begins with another byte, or has another after it."""
    # An entry of the memo belongs to something that was built, so there are no more of them than there are bytes. It
    # is by this number, and not by what is in it, that the memo grows.
    top, next_to_top = size_bytes >> 24 & 0xFF, 0xFF if size_bytes >> 24 else size_bytes >> 16
    put = b"r.." + _up_to(next_to_top) + _up_to(top)
    get, long_get = b"h.", b"j...."
    numbers = [b"K.", b"J....", b"M..", b"G........"]
    longs = [b"\\x8a" + re.escape(bytes([length])) + b"." * length for length in (6, 5, 7, 8, 4, 9, 3, 2, 1, 0)]
    pairs = [b"K.(?:K.|M..)\\x86", b"M..(?:K.|M..)\\x86"]
    # MEMOIZE, MARK, APPENDS, SETITEMS, SETITEM, EMPTY_DICT, EMPTY_LIST, APPEND, NONE, NEWTRUE, NEWFALSE.
    single = b"[\\x94(eus}\\]aN\\x88\\x89]{1,64}"
    each = [long_get * 3, get * 3, get, long_get, single, longs[0], *pairs, *numbers, *longs[1:], b"q.", put]
    return re.compile(b"(?s:" + b"|".join(each) + b"){1,%d}" % _RUN)


def _up_to(highest: int) -> bytes:
    return b"[\\x00-\\x%02x]" % highest
