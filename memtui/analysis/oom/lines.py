"""An answer in lines of plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from .answer import Answer
from .interval import as_printed
from .parse import Found

_NARROWEST, _WIDEST = 40, 100
_INDENT = "  "


def lines(found: Found, answer: Answer, columns: int) -> Iterator[str]:
    """The sentence, the figures, what helps; at most `columns` wide where words allow it, 40 at least."""
    width = min(max(columns, _NARROWEST), _WIDEST)
    yield heading(found)
    yield from _wrapped(answer.sentence, width)
    for note in (*answer.notes, *([f"What would decide it: {answer.deciding}"] if answer.deciding else ())):
        yield from _wrapped(note, width, _INDENT)
    if answer.rows:
        yield ""
        yield from _figures(answer)
    if answer.remedies:
        yield ""
        yield "what helps, in this order" if answer.cause.certain else "what may help"
        yield from _remedies(answer, width)
    for useless in answer.not_helping:
        yield from _wrapped(f"not {useless}", width, _INDENT)


def heading(found: Found) -> str:
    """Where it is from: "rank 3 · GPU 0 · CUDA · line 4,211 · printed 2 times"."""
    message = found.message
    parts = [] if found.rank is None else [f"rank {found.rank}"]
    parts += [] if message.device is None else [f"{'NPU' if message.backend == 'NPU' else 'GPU'} {message.device}"]
    parts += [message.backend, f"line {found.line:,}"]
    return " · ".join(parts + ([f"printed {found.count:,} times"] if found.count > 1 else []))


def _figures(answer: Answer) -> Iterator[str]:
    names = max(len(row.name) for row in answer.rows)
    shown = [(row, row.text or as_printed(row.bytes.middle)) for row in answer.rows]
    sizes = max(len(text) for _, text in shown)
    for row, text in shown:
        derived = "" if row.text else "   derived"
        yield f"{_INDENT}{row.name:<{names}}  {text:>{sizes}}{derived}"


def _remedies(answer: Answer, width: int) -> Iterator[str]:
    for number, remedy in enumerate(answer.remedies, start=1):
        saves = f"; up to {as_printed(remedy.saves_bytes)}" if remedy.saves_bytes else ""
        label = f"{number:>3}  "
        first, *rest = textwrap.wrap(
            f"{remedy.action}{saves}", width - len(label), break_long_words=False, break_on_hyphens=False
        )
        yield label + first
        yield from (" " * len(label) + line for line in rest)
        yield from _wrapped(f"price: {remedy.price}", width, " " * len(label))


def _wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    yield from textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
