"""An estimate as lines of text: terms with their formulas, phases, the peak, and what to know about it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from memtui.analysis.units import UNKNOWN, number, size, unit_of

from .accuracy import KnownError
from .device import Device, Fit, fit
from .levers import Lever
from .terms import CATEGORIES, Estimate, Term

_NAME, _BYTES, _SOURCE = 33, 11, 32
#: From here on a source stands beside its formula; below it is a number in brackets, with a list.
_WIDE = 120
_NARROWEST = 80
_MOST_LEVERS = 6
#: Headings of the phases' table.
_SHORT = {
    "parameters": "params",
    "gradients": "grads",
    "optimizer state": "state",
    "activations": "activ.",
    "temporaries": "temp.",
    "communication": "comm.",
}


def lines(estimate: Estimate, width: int, device: Device, helpful: Sequence[Lever] = ()) -> Iterator[str]:
    """Everything there is to say in at most `width` columns, of which 80 are taken anyhow."""
    width = max(width, _NARROWEST)
    yield from _wrapped("estimate  ", estimate.title, width)
    yield from _wrapped("          ", estimate.setting, width)
    yield from _wrapped("          ", _error_words(estimate), width)
    yield ""
    yield from _terms(estimate, width)
    yield ""
    yield from _phases(estimate, width)
    yield ""
    yield from _verdict(estimate, width, device)
    if helpful:
        yield ""
        yield "what would lower the peak"
        for lever in helpful[:_MOST_LEVERS]:
            less = size(estimate.peak.bytes - lever.peak_bytes)
            then = ("≥ " if lever.lower_bound else "") + size(lever.peak_bytes)
            figures = f"  {lever.words:<33}{then:>{_BYTES + 2}}{f'-{less}':>13}  "
            yield from _wrapped(figures, lever.price, width)
    for heading, sentences in (
        ("taken for granted", estimate.assumptions),
        ("where sources disagree", estimate.disagreements),
    ):
        if sentences:
            yield ""
            yield heading
            for sentence in sentences:
                yield from _wrapped("  - ", sentence, width)


def _error_words(estimate: Estimate) -> str:
    """What an estimate is, and how far from the truth such estimates have been."""
    error = estimate.error
    basis = "from shapes alone" if estimate.shapes_known else "from the number of parameters alone"
    return (
        f"{basis}, nothing was run. On {error.rows} published peaks the error of such estimates was "
        f"{100 * error.median:.0f} % in the median, up to {100 * error.ninetieth:.0f} % in nine of ten, "
        f"{100 * error.worst:.0f} % in the worst."
    )


def _verdict(estimate: Estimate, width: int, device: Device) -> Iterator[str]:
    """The peak with its phase, what lies outside PyTorch, and whether it fits."""
    peak = estimate.peak
    at_least = "" if estimate.complete else "≥ "
    yield f"{'peak':<16}  {at_least}{size(peak.bytes)} (estimate), {_place(peak.name)}"
    if device.context_bytes is None:
        context = f"{UNKNOWN} (CUDA's context and libraries, often 0.3 to 2 GiB: give --context; not in the peak)"
    else:
        context = f"{size(device.context_bytes)} ({device.context_source})"
    yield from _wrapped(f"{'outside PyTorch':<16}  ", context, width)
    found = fit(peak.bytes, estimate.least_bytes, device, estimate.error, complete=estimate.complete)
    if found is not None:
        yield from _wrapped(f"{device.name:<16}  ", _fit_words(found, at_least, estimate.error), width)


def _fit_words(found: Fit, at_least: str, error: KnownError) -> str:
    spare = found.spare_bytes
    rest = f"{size(spare)} to spare" if spare >= 0 else f"{size(-spare)} too much"
    words = f"{found.answer}: {at_least}{size(found.needed_bytes)} needed, {rest}"
    if found.answer == "cannot be told":
        return f"{words}; the known error is {100 * error.ninetieth:.0f} % either way"
    return words


def _place(phase: str) -> str:
    return f"at the {phase}" if phase.startswith("end") else f"in the {phase}" if "step" in phase else f"in {phase}"


def _terms(estimate: Estimate, width: int) -> Iterator[str]:
    sources: dict[str, int] = {}
    for category in CATEGORIES:
        terms = [term for term in estimate.terms if term.category == category]
        if terms:
            yield category
            for term in terms:
                yield from _term(term, width, sources.setdefault(term.source, len(sources) + 1))
            if len(terms) > 1:
                yield f"  {_total(category):<{_NAME - 2}} {_sum(terms):>{_BYTES}}"
    if width < _WIDE:
        yield ""
        listed = "; ".join(f"[{place}] {source}" for source, place in sources.items())
        yield from _wrapped("sources  ", listed, width)


def _total(category: str) -> str:
    return "together, not all at once" if category == "temporaries" else "together"


def _sum(terms: list[Term]) -> str:
    known = sum(term.bytes or 0 for term in terms)
    return size(known) if all(term.bytes is not None for term in terms) else f"≥ {size(known)}"


def _term(term: Term, width: int, place: int) -> Iterator[str]:
    wide = width >= _WIDE
    source = term.source if wide else f"[{place}]"
    room = width - _NAME - _BYTES - 4 - (_SOURCE if wide else 4)
    formulas = textwrap.wrap(term.formula, room) or [""]
    notes = textwrap.wrap(source, _SOURCE - 2) if wide else [source]
    names = textwrap.wrap(term.name, _NAME - 2)
    for row in range(max(len(formulas), len(notes), len(names))):
        name, formula, note = (part[row] if row < len(part) else "" for part in (names, formulas, notes))
        bytes_ = size(term.bytes) if row == 0 else ""
        yield f"  {name:<{_NAME - 2}} {bytes_:>{_BYTES}}  {formula:<{room}} {note}".rstrip()


def _phases(estimate: Estimate, width: int) -> Iterator[str]:
    unit = unit_of(estimate.peak.bytes)
    shown = [name for name in CATEGORIES if any(phase.bytes_by_category[name] for phase in estimate.phases)]
    heads = [_SHORT[name] for name in shown] + ["total"]
    yield f"{f'what is alive, {unit}':<22}" + "".join(f" {head:>7}" for head in heads)
    for phase in estimate.phases:
        cells = [number(phase.bytes_by_category[name], unit) for name in shown]
        total = ("" if phase.complete else "≥") + number(phase.bytes, unit)
        mark = ">" if phase.name == estimate.peak.name else " "
        yield f"{mark} {phase.name:<20}" + "".join(f" {cell:>7}" for cell in (*cells, total))


def _wrapped(first: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)
