"""What the parts of the interface tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


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
