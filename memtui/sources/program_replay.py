"""Printing what a program wrote to its own terminal on the real one, when the interface has gone."""

from __future__ import annotations

import contextlib
import os
import re
from typing import NamedTuple

from memtui.sources.program import ExitStatus, read_exit
from memtui.sources.program_connection import ProgramConnection
from memtui.supervisor import messages
from memtui.supervisor.messages import Kind

#: Questions to a terminal. Answered a second time, now, the answers would be typed into the user's shell.
_QUERIES = re.compile(
    rb"\x1b\[[>=]?[0-9;]*c"  # attributes
    rb"|\x1b\[\??[0-9;]*n"  # status, cursor position
    rb"|\x1b\[\?[0-9;]*\$p|\x1b\[[0-9;]*\$p"  # modes
    rb"|\x1b\[>[0-9;]*q|\x1b\[\?u|\x1bZ|\x05"  # version, keyboard, identification, answerback
    rb"|\x1b\[(?:1[1-9]|2[01])(?:;[0-9]*)*t"  # window
    rb"|\x1bP[+$][qQ][^\x1b\x07]*(?:\x1b\\|\x07)"  # capabilities, settings
    rb"|\x1b\](?:4;[0-9]+|1[0-9]|52;[a-z]*);\?(?:\x1b\\|\x07)"  # colours, clipboard
)

_PRIVATE_MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")

#: Left on, these make a shell unusable: mouse reports, focus reports, bracketed paste, the other screen.
_CLEARED = frozenset({b"1", b"47", b"1000", b"1002", b"1003", b"1004", b"1005", b"1006", b"1015", b"1047", b"1049"})

#: A traceback and its message.
_LAST_WORDS_BYTES = 65_536


def for_terminal(output: bytes) -> bytes:
    """The output without its questions to the terminal, and with the modes it left on switched off after it."""
    kept = _QUERIES.sub(b"", output)
    modes: dict[bytes, bytes] = {}
    for numbers, action in _PRIVATE_MODE.findall(kept):
        for number in numbers.split(b";"):
            modes[number] = action
    tail = [b"\x1b[?%sl" % number for number, action in modes.items() if number in _CLEARED and action == b"h"]
    if modes.get(b"25") == b"l":
        tail.append(b"\x1b[?25h")
    if b"\x1b[" in kept:
        tail.append(b"\x1b[m")
    return kept + b"".join(tail)


class Replayed(NamedTuple):
    """How a program ended, None where it still runs, and what it wrote last."""

    status: ExitStatus | None
    last_words: bytes


def replay_to(pid: int, fd: int, *, error_fd: int = 2) -> Replayed:
    """Print the retained output of program `pid` on `fd`, and say on `error_fd` how much of it is no longer there.

    Its exit status then counts as collected. Raises ProgramError.
    """
    pieces: list[bytes] = []
    status: ExitStatus | None = None
    with ProgramConnection(pid) as connection:
        position = connection.hello.history_start
        lost = position
        hello = connection.hello
        while status is None if hello.exited else position < hello.history_end:
            received = connection.receive()
            if received is None:
                break
            for kind, payload in received:
                if kind == Kind.OUTPUT:
                    offset, data = messages.read_output(payload)
                    lost += offset - position
                    position = offset + len(data)
                    pieces.append(data)
                elif kind == Kind.EXIT:
                    status = read_exit(payload)
        if status is not None:
            with contextlib.suppress(OSError):
                connection.send(messages.write(Kind.COLLECTED))
    output = b"".join(pieces)
    if lost:
        # The cut may be within a character, a colour or a line.
        output = output[output.find(b"\n") + 1 :]
        _write(error_fd, b"memtui: the first %d KiB of the output are no longer kept\n" % (lost // 1024))
    _write(fd, for_terminal(output))
    return Replayed(status, output[-_LAST_WORDS_BYTES:])


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
