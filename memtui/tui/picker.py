"""A list of what can be watched, to pick one of."""

from __future__ import annotations

import os
from typing import ClassVar, Optional

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Static

from memtui.sources.listing import Listed, list_processes

from .look import choose, textual_theme
from .processes import HEADS, RIGHT, cells, obstacle, ordered

_KEYS = "enter watches it · r lists again · q leaves"


class PickerApp(App[Optional[int]], inherit_bindings=False):
    """Ends with the pid that was picked, or None."""

    CSS = """
    Screen { background: $background; }
    #title, #hint, #keys { height: 1; padding: 0 1; }
    #title { text-style: bold; }
    #keys { dock: bottom; color: $text-muted; }
    DataTable { height: 1fr; background: $background; margin: 1 0 0 0; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,ctrl+c", "leave", "leave"),
        Binding("r", "again", "list again"),
    ]

    def __init__(self, theme: Optional[str] = None) -> None:
        colors = choose(theme, os.environ)
        super().__init__(ansi_color=True if colors.mono else None)
        self._colors = colors
        self._found: list[Listed] = []

    def compose(self) -> ComposeResult:
        """A table between a title and the keys."""
        yield Static("Which process is to be watched?", id="title")
        yield Static("looking for processes with PyTorch…", id="hint")
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield Static(_KEYS, id="keys")

    def on_mount(self) -> None:
        """The first look."""
        look = textual_theme(self._colors)
        self.register_theme(look)
        self.theme = look.name
        self.action_again()

    def action_again(self) -> None:
        """Looks for processes, without holding up the keys."""
        self.run_worker(self._look, thread=True, exclusive=True)

    def _look(self) -> None:
        found = ordered(list_processes())
        self.call_from_thread(self._show, found)

    def _show(self, found: list[Listed]) -> None:
        table = self.query_one(DataTable)
        kept = self._picked()
        self._found = found
        table.clear(columns=True)
        for head in HEADS:
            table.add_column(Text(head, justify="right" if head in RIGHT else "left", style="dim"))
        for listed in found:
            style = "dim" if obstacle(listed) else ""
            table.add_row(
                *(
                    Text(cell, justify="right" if head in RIGHT else "left", style=style)
                    for head, cell in zip(HEADS, cells(listed, short=True))
                )
            )
        if kept is not None:
            place = next((place for place, listed in enumerate(found) if listed.pid == kept.pid), 0)
            table.move_cursor(row=place)
        count = sum(not obstacle(listed) for listed in found)
        words = f"{count} of {len(found)} can be watched" if found else "no process with PyTorch loaded, or on a GPU"
        self.query_one("#hint", Static).update(words)
        table.focus()

    def _picked(self) -> Optional[Listed]:
        row = self.query_one(DataTable).cursor_row
        return self._found[row] if 0 <= row < len(self._found) else None

    def on_data_table_row_selected(self, _event: DataTable.RowSelected) -> None:
        """Ends with the row's process; of one that cannot be watched the reason is told."""
        listed = self._picked()
        if listed is None:
            return
        refusal = listed.refusal
        reason = obstacle(listed)
        if reason and (refusal is None or listed.part_of is not None or not listed.own):
            self.notify(f"{listed.pid} cannot be watched: {reason}", severity="warning")
            return
        # One that no agent gets into is shown as the driver and the system see it, with the whole reason.
        self.exit(listed.pid)

    def action_leave(self) -> None:
        """Nothing was picked."""
        self.exit(None)


def pick(theme: Optional[str] = None) -> Optional[int]:
    """The pid that the user picks; None where they leave."""
    return PickerApp(theme).run()
