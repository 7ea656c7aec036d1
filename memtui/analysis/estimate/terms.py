"""The parts of an estimate: terms, the phases they are alive in, and what follows from both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from .accuracy import KnownError, known_error

LAST, FORWARD, LOSS, BLOCKS, END, STEP = (
    "forward: last block",
    "end of forward",
    "backward: loss",
    "backward: last block",
    "end of backward",
    "optimizer step",
)
#: In the order of a step.
PHASES = (LAST, FORWARD, LOSS, BLOCKS, END, STEP)
ALWAYS = frozenset(PHASES)
CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "temporaries", "communication")


@dataclass(frozen=True)
class Term:
    """Bytes on one device with their formula and where it is from; None where they are not known."""

    name: str
    category: str
    bytes: Optional[int]
    formula: str
    source: str
    phases: frozenset[str] = ALWAYS


@dataclass(frozen=True)
class Phase:
    """What is alive at one point of a step; `complete` says that every term that is alive there is known."""

    name: str
    bytes_by_category: dict[str, int]
    complete: bool

    @property
    def bytes(self) -> int:
        """All that is known."""
        return sum(self.bytes_by_category.values())


@dataclass(frozen=True)
class Estimate:
    """Everything that is said: terms, phases from first to last, assumptions, and what sources disagree on."""

    title: str
    setting: str
    parameters: int
    trained: int
    terms: tuple[Term, ...]
    assumptions: tuple[str, ...]
    disagreements: tuple[str, ...]
    shapes_known: bool

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The points of a step in order, after the first step has made the optimizer's state."""
        return tuple(_phase(name, self.terms) for name in PHASES)

    @property
    def peak(self) -> Phase:
        """The highest of the phases, the first of equals: a peak is a maximum, not a sum of what never coincides."""
        return max(self.phases, key=lambda phase: phase.bytes)

    @property
    def least_bytes(self) -> int:
        """The highest of the phases without its activations, which are the least certain."""
        return max(phase.bytes - phase.bytes_by_category["activations"] for phase in self.phases)

    @property
    def error(self) -> KnownError:
        """How far such estimates have been from published figures."""
        return known_error(shapes_known=self.shapes_known)

    @property
    def complete(self) -> bool:
        """False where a term is missing, so that the peak is a lower bound."""
        return all(phase.complete for phase in self.phases)


def category_bytes(terms: Iterable[Term], category: str) -> int:
    """All that is known of one category, whatever the phase."""
    return sum(term.bytes or 0 for term in terms if term.category == category)


def _phase(name: str, terms: Iterable[Term]) -> Phase:
    alive = [term for term in terms if name in term.phases]
    totals = {category: category_bytes(alive, category) for category in CATEGORIES}
    return Phase(name, totals, all(term.bytes is not None for term in alive))
