"""Lines of memtui's on a stream that a program may have left in the middle of one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import Optional, TextIO

from memtui.tui.glyphs import detect, plain


class OwnLines:
    """A stream for lines that begin at the beginning of one; without a stream nothing is said.

    `shared` says that another process writes to it too, of which it cannot be known where it has left a pipe or socket.
    """

    def __init__(self, stream: Optional[TextIO], *, shared: bool = False) -> None:
        self._stream = stream
        self.shared = shared

    def say(self, line: str) -> None:
        """Writes `line`, whole and at once; a stream that its owner has closed takes none."""
        stream = self._stream
        if stream is None:
            return
        # In one piece: what the program writes meanwhile comes before it or after it. That its standard error cannot be
        # written to is the program's concern; a log is to go on.
        with contextlib.suppress(*((ValueError, OSError) if self.shared else (ValueError,))):
            stream.write(f"{_beginning(stream, self.shared)}{writable(stream, line)}\n")
            stream.flush()


def writable(stream: Optional[TextIO], text: str) -> str:
    """`text`, in ASCII where the stream has no more than that."""
    if stream is None:
        return text
    if stream.isatty():
        return text if detect(os.environ, stream.encoding).braille else plain(text)
    try:
        text.encode(stream.encoding or "ascii", "strict")
    except (UnicodeEncodeError, LookupError):
        return plain(text)
    return text


def _beginning(stream: TextIO, shared: bool) -> str:
    """What leads to the beginning of a line from wherever the stream is."""
    try:
        descriptor = stream.fileno()
        if stream.isatty():
            return _on_terminal(descriptor)
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # closed, or no descriptor's
        return ""
    with contextlib.suppress(OSError):  # a file that may be written and not read is like a pipe
        if regular:
            return "" if _ends_a_line(descriptor) else "\n"
    # Who reads a pipe has what went through it, and nobody else: an empty line now and then rather than half a line.
    return "\n" if shared else ""


def _on_terminal(descriptor: int) -> str:
    """What puts a terminal's cursor at the beginning of an empty line, wherever the program has left it.

    A progress bar leaves it behind the bar, and nobody but the terminal knows. A line's width of spaces goes over to
    the next line unless the cursor stands at a beginning; from there a return leads to the beginning of an empty line.
    """
    columns = os.get_terminal_size(descriptor).columns
    return " " * columns + "\r" if columns else "\r\n"  # some terminals do not know how wide they are


def _ends_a_line(descriptor: int) -> bool:
    """Whether the next byte of a regular file begins a line; raises OSError where the file cannot be read."""
    appending = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
    place = os.fstat(descriptor).st_size if appending else os.lseek(descriptor, 0, os.SEEK_CUR)
    if place == 0:
        return True
    # The descriptor itself was opened for writing alone.
    reading = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        return os.pread(reading, 1, place - 1) in (b"\n", b"")
    finally:
        os.close(reading)
