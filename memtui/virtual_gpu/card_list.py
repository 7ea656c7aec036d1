"""The table of cards as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from memtui.virtual_gpu.card import GIB, MIB, Card, Figure

_UNKNOWN = "–"
_MARKS = {"measured": "m", "cited": "c", "derived": "d", "given": "g", "unknown": ""}
_LEGEND = (
    "memory: what torch calls the total.  context: what a process takes besides its tensors.",
    "m measured here, c cited, d derived, – unknown.",
)
_EAGER_LEGEND = "≤ with all kernels loaded at once, as by torch before 1.13; today's is less."
_UNIFIED_LEGEND = "Jetson: the memory is the computer's, and what other programs use of it is missing as well."
_HEADINGS = ("", "memory GiB", "cc", "SMs", "context MiB", "as torch names it")
_GAP = "  "


def list_lines(listed: Iterable[Card], width: int) -> list[str]:
    """One line for each card under its group's name, in their order, and a legend; none longer than `width` columns.

    Torch's names for them are left out where they do not fit.
    """
    shown = tuple(listed)
    rows = _rows(shown)
    widths = [max(map(len, column)) for column in zip(*rows)]
    full_width = sum(widths) + len(_GAP) * (len(widths) - 1)
    columns = len(_HEADINGS) if full_width <= width else len(_HEADINGS) - 1
    lines = [_line(row[:columns], widths)[:width].rstrip() for row in rows]
    return [*lines, "", *_legend(shown, width)]


def _rows(shown: tuple[Card, ...]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    group = None
    for card in shown:
        if card.group != group:
            group = card.group
            if rows:
                rows.append(("",) * len(_HEADINGS))
            rows.append((group, *_HEADINGS[1:]))
        rows.append(_cells(card))
    return rows


def _legend(shown: tuple[Card, ...], width: int) -> list[str]:
    sentences = list(_LEGEND)
    if any(card.context_bytes is None and card.eager_context.value_bytes is not None for card in shown):
        sentences.append(_EAGER_LEGEND)
    if any(card.unified_memory for card in shown):
        sentences.append(_UNIFIED_LEGEND)
    return [line for sentence in sentences for line in textwrap.wrap(sentence, width)]


def _cells(card: Card) -> tuple[str, ...]:
    return (
        card.name,
        _marked(f"{card.total_bytes / GIB:.1f}", card.total),
        "{}.{}".format(*card.compute_capability),
        str(card.multiprocessors),
        _context(card),
        card.full_name,
    )


def _context(card: Card) -> str:
    if card.context_bytes is not None:
        return _marked(f"{card.context_bytes / MIB:,.0f}", card.context)
    eager_bytes = card.eager_context.value_bytes
    return _UNKNOWN + "  " if eager_bytes is None else _marked(f"≤ {eager_bytes / MIB:,.0f}", card.eager_context)


def _marked(text: str, figure: Figure) -> str:
    return f"{text} {_MARKS[figure.kind]}"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cells[0].ljust(widths[0]), *(cell.rjust(column) for cell, column in zip(cells[1:5], widths[1:5]))]
    return _GAP.join((*padded, *cells[5:]))
