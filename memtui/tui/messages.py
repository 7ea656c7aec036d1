"""What the parts of the interface tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from textual.message import Message

if TYPE_CHECKING:
    from memtui.snapshots.answers import Answer, Mark, Overview


@dataclass
class ChartPointed(Message):
    """A place in the chart was clicked."""

    time_ns: int


@dataclass
class ChartZoomed(Message):
    """The wheel was turned over the chart: out where `steps` is positive."""

    steps: int

    def can_replace(self, message: Message) -> bool:
        """A wheel turned fast sends many of these; the screen takes them one by one, so none replaces another."""
        return False


@dataclass
class RowPointed(Message):
    """A figure was clicked: its glossary entry is wanted."""

    row: int


@dataclass
class TabPointed(Message):
    """A tab's name was clicked."""

    name: str


class TabTurned(Message):
    """A tab is to show its contents in another way."""

    def can_replace(self, message: Message) -> bool:
        """What is shown is drawn once however many keys were pressed."""
        return isinstance(message, TabTurned)


@dataclass
class SnapshotOpened(Message):
    """A device of a snapshot has been read; it is to be looked at from an instant, beside a mark if there is one."""

    overview: Overview
    number: int
    mark: Optional[Mark]


@dataclass
class InstantAnswered(Message):
    """What was there at an instant of an overview is known."""

    overview: Overview
    answer: Answer


@dataclass
class SnapshotFailed(Message):
    """Reading a snapshot, or asking it, went wrong."""

    error: Exception


class SnapshotTurned(Message):
    """A part of a snapshot's screen is to show something else."""

    def can_replace(self, message: Message) -> bool:
        """What is shown is drawn once however many keys were pressed."""
        return isinstance(message, SnapshotTurned)
