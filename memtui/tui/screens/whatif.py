"""The page that answers what would change under a lever, over the monitor."""

from __future__ import annotations

from typing import ClassVar, Optional

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from memtui.analysis.whatif.facts import Facts
from memtui.analysis.whatif.panel import Panel, panel
from memtui.tui.look import Look
from memtui.tui.widgets.whatif import WhatIfTable

#: What the batch is multiplied by, and the devices that share.
TIMES = (2, 3, 4, 6, 8, 12, 16, 32)
DEVICES = (2, 4, 8, 16, 32, 64)
_EIGHT = DEVICES.index(8)


class WhatIfScreen(Screen[Optional[str]], inherit_bindings=False):
    """The table, for a batch and a number of devices that keys change; without facts it says the reason.

    Left with "batch" where another batch is to be typed, which the monitor asks for.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,w,enter,ctrl+c", "dismiss", show=False),
        Binding("b", "dismiss('batch')", show=False),
        Binding("up,k", "choose(-1)", show=False),
        Binding("down,j", "choose(1)", show=False),
        Binding("pageup,home", "choose(-100)", show=False),
        Binding("pagedown,end", "choose(100)", show=False),
        Binding("plus,equals_sign", "batch(1)", show=False),
        Binding("minus", "batch(-1)", show=False),
        Binding("right", "devices(1)", show=False),
        Binding("left", "devices(-1)", show=False),
    ]

    def __init__(self, look: Look, title: str, device: str, facts: Optional[Facts], reason: str) -> None:
        super().__init__()
        self.device, self.facts, self.reason = device, facts, reason
        self._times, self._devices = 0, _EIGHT
        self.table = WhatIfTable(look, title, self._panel())

    def compose(self) -> ComposeResult:
        """The table alone."""
        yield self.table

    def _panel(self) -> Panel:
        if self.facts is None:
            return Panel(self.device, reason=self.reason)
        return panel(self.facts, self.device, TIMES[self._times], DEVICES[self._devices])

    def _ask_again(self) -> None:
        self.table.panel = self._panel()
        self.table.again()

    def action_choose(self, by: int) -> None:
        """The row above or below."""
        self.table.choose(self.table.chosen + by)

    def action_batch(self, by: int) -> None:
        """Another batch."""
        self._times = max(0, min(self._times + by, len(TIMES) - 1))
        self._ask_again()

    def action_devices(self, by: int) -> None:
        """Another number of devices."""
        self._devices = max(0, min(self._devices + by, len(DEVICES) - 1))
        self._ask_again()

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves the mark."""
        self.action_choose(1)

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves the mark."""
        self.action_choose(-1)

    async def action_dismiss(self, result: Optional[str] = None) -> None:
        """Back to the monitor."""
        self.dismiss(result)
