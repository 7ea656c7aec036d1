"""`memtui explain`: why a program ran out of memory, from the message that PyTorch printed."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
from dataclasses import asdict
from typing import Any, BinaryIO, Optional

from memtui.analysis.oom.answer import Answer, explain
from memtui.analysis.oom.interval import Interval
from memtui.analysis.oom.lines import lines
from memtui.analysis.oom.parse import Found, by_rank, find_messages
from memtui.analysis.oom.progress import Progress
from memtui.analysis.text import clean
from memtui.cli import CommandError

from .ownline import writable

_PLAIN_WIDTH = 80
#: More answers than these are a log to be searched, not to be read; --json has all.
_SHOWN = 16


def run_explain(options: argparse.Namespace) -> int:
    """Prints an answer for each message; raises CommandError, with one line, where there is none."""
    progress = Progress()
    found = by_rank(_read(options.file, progress))
    answers = [(each, explain(each.message, course=progress.course(each.rank))) for each in found]
    if options.json:
        print(json.dumps({"kind": "explanation", "answers": [_document(*each) for each in answers]}, indent=2))
        return 0
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH
    for place, (each, answer) in enumerate(answers[:_SHOWN]):
        if place:
            print()
        for line in lines(each, answer, columns):
            print(writable(sys.stdout, line))
    if len(answers) > _SHOWN:
        print(f"\n{len(answers) - _SHOWN:,} more messages: memtui explain --json has all of them")
    return 0


def _read(name: Optional[str], progress: Progress) -> list[Found]:
    """The messages of a file, or of standard input; raises CommandError where there are none."""
    piped = name in (None, "-")
    shown = "standard input" if piped else clean(str(name), 200)
    try:
        if piped:
            found = find_messages(_standard_input(), progress.add)
        elif pathlib.Path(str(name)).is_char_device():
            raise CommandError(f"{shown} is a device, not a text: name a file, or pipe the text in")
        else:
            with open(str(name), "rb") as stream:
                found = find_messages(stream, progress.add)
    except OSError as error:
        raise CommandError(f"cannot read {shown}: {error.strerror or error}") from None
    if not found:
        raise CommandError(
            f"no out-of-memory message of PyTorch in {shown}: it looks for lines as "
            '"CUDA out of memory. Tried to allocate …", of other devices and of a host too'
        )
    return found


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise CommandError("no standard input: name a file")
    if sys.stdin.isatty():
        print("paste the message, then press Ctrl-D on an empty line", file=sys.stderr, flush=True)
    return sys.stdin.buffer


def _document(found: Found, answer: Answer) -> dict[str, Any]:
    message, cause = found.message, answer.cause
    return {
        "rank": found.rank,
        "device": message.device,
        "backend": message.backend,
        "format": message.format,
        "line": found.line,
        "printed": found.count,
        "complete": message.complete,
        "cause": cause.kind,
        "possible": cause.possible,
        "likely": cause.likely,
        "sentence": answer.sentence,
        "would_decide": answer.deciding or None,
        "notes": answer.notes,
        "figures": {
            name: {"printed": figure.text, "bytes": _bounds(figure.interval)}
            for name, figure in message.figures.items()
        },
        "processes": [
            {"pid": each.pid, "printed": each.size.text, "bytes": _bounds(each.size.interval)}
            for each in message.processes
        ],
        "held": [{"name": row.name, "bytes": _bounds(row.bytes)} for row in answer.rows],
        "remedies": [asdict(remedy) for remedy in answer.remedies],
        "not_helping": answer.not_helping,
    }


def _bounds(interval: Optional[Interval]) -> Optional[tuple[int, int]]:
    """The lowest and the highest bytes that print so."""
    return None if interval is None else (interval.low, interval.high)
