"""The rows of a snapshot's tables: by line, by category, the largest blocks, segments, what is different."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from memtui.analysis import units
from memtui.analysis.text import clean
from memtui.snapshots.answers import Answer
from memtui.snapshots.instant import Live
from memtui.snapshots.model import FREE, LIVE, Segment
from memtui.snapshots.queries import Difference, Group, Opened
from memtui.snapshots.stacks import Stack, Stacks
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, clip

from .stackcolors import letter, tenant

#: A detail: (role, text).
Detail = tuple[str, str]
#: From this width on tables have bars.
_BAR_FROM = 90
_CATEGORY_SITES = 10
_SEGMENT_BLOCKS = 12
#: Cells of a segment's strip, by state: (role, character without colours).
_STRIP = {LIVE: "#", FREE: "."}


class Rows:
    """A table: its heads, its rows, and what stands below a row that is opened."""

    nothing = "nothing is live here"

    def __len__(self) -> int:
        raise NotImplementedError

    def head(self, width: int, look: Look) -> Row:
        """The names of the columns."""
        raise NotImplementedError

    def row(self, place: int, marked: bool, width: int, look: Look) -> Row:
        """One row; a marked one is drawn as such."""
        raise NotImplementedError

    def details(self, place: int) -> list[Detail]:
        """What is to be said of a row that is opened."""
        raise NotImplementedError


class Groups(Rows):
    """Live memory by something: a bar and a share each."""

    def __init__(self, answer: Answer, groups: Sequence[Group], *, sites: bool) -> None:
        self.answer, self.groups, self.sites = answer, groups, sites
        self.rest_bytes = 0 if sites else answer.at.rest_bytes

    def __len__(self) -> int:
        return len(self.groups) + bool(self.rest_bytes)

    def head(self, width: int, look: Look) -> Row:
        """The names of the columns."""
        name = "line that allocated it" if self.sites else "what the stacks tell"
        return _head(width, "blocks", name)

    def row(self, place: int, marked: bool, width: int, look: Look) -> Row:
        """Bytes, share, blocks, name."""
        at = self.answer.at
        if place == len(self.groups):
            line = _begun("", self.rest_bytes, at.allocated_bytes, 0, marked, width, look)
            return _named(line.add("".rjust(9), roles.DIM), "rounding and rest", marked, width, look)
        group = self.groups[place]
        largest = (
            max(each.size_bytes for each in self.groups[:1] if self.sites) if self.sites else _largest(self.groups)
        )
        line = _begun(group.stack.category, group.size_bytes, at.allocated_bytes, largest, marked, width, look)
        line.add(f"{group.blocks:,}".rjust(9), _quiet(marked))
        return _named(line, group.name, marked, width, look)

    def details(self, place: int) -> list[Detail]:
        """Of a line the stack that holds most, of a category its lines."""
        if place == len(self.groups):
            return [(roles.DIM, "what the allocator rounds up, and what events that are not there would have told")]
        group = self.groups[place]
        if self.sites:
            return stack_details(group.stack)
        found = [each for each in self.answer.sites if each.stack.category == group.name]
        told = [(roles.TEXT, f"{units.size(each.size_bytes):>10}  {each.name}") for each in found[:_CATEGORY_SITES]]
        if len(found) > _CATEGORY_SITES:
            told.append((roles.DIM, f"and {len(found) - _CATEGORY_SITES:,} more lines: tab 1"))
        return told


class Largest(Rows):
    """Live blocks, the largest first."""

    def __init__(self, answer: Answer, opened: Opened) -> None:
        self.at, self.opened = answer.at, opened

    def __len__(self) -> int:
        return len(self.at.live)

    def head(self, width: int, look: Look) -> Row:
        """The names of the columns."""
        return _head(width, "since", "line that allocated it")

    def row(self, place: int, marked: bool, width: int, look: Look) -> Row:
        """Bytes, share, when it was allocated, where."""
        each = self.at.live[place]
        largest = self.at.live[0].size_bytes
        line = _begun(each.stack.category, each.size_bytes, self.at.allocated_bytes, largest, marked, width, look)
        line.add(look.text(self._since(each)).rjust(9), _quiet(marked))
        return _named(line, each.stack.site, marked, width, look)

    def _since(self, each: Live) -> str:
        if each.event is None:
            return "before"
        time_us = self.opened.course.time_us(each.event)
        return f"{each.event:,}" if time_us is None else units.moment(time_us)

    def details(self, place: int) -> list[Detail]:
        """Where it is, and the whole stack."""
        each = self.at.live[place]
        born = "allocated before the first event" if each.event is None else f"allocated by event {each.event:,}"
        return [(roles.DIM, f"{each.size_bytes:,} B at 0x{each.address:x}, {born}"), *stack_details(each.stack)]


class Changes(Rows):
    """What is live now that was not at the mark, and the other way round."""

    nothing = "nothing is different"

    def __init__(self, changes: Sequence[Difference], answer: Answer) -> None:
        self.changes = changes
        self.stacks = {group.name: group.stack for group in answer.sites}

    def __len__(self) -> int:
        return len(self.changes)

    def head(self, width: int, look: Look) -> Row:
        """The names of the columns."""
        line = Line().add("   " + "change".rjust(11) + "now".rjust(11) + "blocks".rjust(16), roles.DIM)
        return line.add("  line that allocated it", roles.DIM).row(width)

    def row(self, place: int, marked: bool, width: int, look: Look) -> Row:
        """The change, what there is now, blocks then and now, where."""
        each = self.changes[place]
        stack = self.stacks.get(each.name)
        line = _lettered("" if stack is None else stack.category, marked, look)
        sign = "+" if each.change_bytes > 0 else "−" if each.change_bytes < 0 else ""
        text = look.text(sign + units.size(abs(each.change_bytes))).rjust(11)
        line.add(text, roles.SELECTED if marked else roles.BRIGHT).add(
            units.size(each.after_bytes).rjust(11), _text(marked)
        )
        line.add(f"{each.before_blocks:,} to {each.after_blocks:,}".rjust(16), _quiet(marked))
        return _named(line, each.name, marked, width, look)

    def details(self, place: int) -> list[Detail]:
        """The stack that holds most of it now."""
        stack = self.stacks.get(self.changes[place].name)
        return stack_details(stack) if stack else [(roles.DIM, "nothing of it is live here")]


class Segments(Rows):
    """The allocator's segments when the snapshot was taken: a strip of blocks each.

    First those that live blocks keep from the driver, the most free memory first; then full ones, then free ones.
    """

    nothing = "this snapshot holds no segments of this device"

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = sorted(segments, key=_order)
        self._stacks = Stacks()

    def __len__(self) -> int:
        return len(self.segments)

    def head(self, width: int, look: Look) -> Row:
        """The names of the columns."""
        line = Line().add(" " + "size".rjust(11) + "live".rjust(7) + "largest free".rjust(14), roles.DIM)
        strip = "at the end of the snapshot: letters what stacks tell, ~ waits for a stream, . free"
        line.add("  " + clip(strip, self._cells(width), look.glyphs.ellipsis), roles.DIM)
        return line.pad(self._after(width), " ").add("  segment", roles.DIM).row(width)

    def row(self, place: int, marked: bool, width: int, look: Look) -> Row:
        """Its size, how much of it is live, its blocks, and what kind it is."""
        segment = self.segments[place]
        live = sum(block.size_bytes for block in segment.blocks if block.state == LIVE)
        free = max((block.size_bytes for block in segment.blocks if block.state == FREE), default=0)
        line = Line().add(" ", " ").add(units.size(segment.size_bytes).rjust(11), _text(marked))
        line.add(units.percent(live, segment.size_bytes).rjust(7), _quiet(marked))
        line.add((units.size(free) if free else "none").rjust(14), _quiet(marked)).add("  ", _quiet(marked))
        self._strip(line, segment, self._cells(width), look)
        return _named(line, self._kind(segment), marked, width, look)

    def _strip(self, line: Line, segment: Segment, across: int, look: Look) -> None:
        place = begun = 0
        for column in range(across):
            middle = segment.size_bytes * (2 * column + 1) // (2 * across)
            while place + 1 < len(segment.blocks) and begun + segment.blocks[place].size_bytes <= middle:
                begun += segment.blocks[place].size_bytes
                place += 1
            block = segment.blocks[place] if place < len(segment.blocks) else None
            if block is None or block.state == FREE:
                line.add(".", roles.fill("device_free"))
            elif block.state == LIVE:
                category = self._stack(block.frames).category if block.frames else ""
                line.add(
                    letter(category) if category else "#", roles.fill(tenant(category) if category else "allocated")
                )
            else:
                line.add("~", roles.fill("active_pending_free"))

    def _stack(self, frames: Sequence[object]) -> Stack:
        return self._stacks.stack(frames)  # type: ignore[arg-type]

    @staticmethod
    def _kind(segment: Segment) -> str:
        parts = [segment.kind, "expandable" if segment.expandable else ""]
        parts.append(f"stream {segment.stream:#x}" if segment.stream else "")
        parts.append(f"pool {segment.pool_id}" if segment.pool_id != (0, 0) else "")
        return " ".join(part for part in parts if part) or f"0x{segment.address:x}"

    @staticmethod
    def _after(width: int) -> int:
        return 35 + Segments._cells(width)

    @staticmethod
    def _cells(width: int) -> int:
        return max(8, width - 35 - (18 if width < 110 else 30))

    def details(self, place: int) -> list[Detail]:
        """Its largest blocks."""
        segment = self.segments[place]
        count = len(segment.blocks)
        blocks = "1 block" if count == 1 else f"{count:,} blocks, the largest first"
        told = [(roles.DIM, f"at 0x{segment.address:x}, {blocks}")]
        for block in sorted(segment.blocks, key=lambda each: -each.size_bytes)[:_SEGMENT_BLOCKS]:
            where = self._stack(block.frames).site if block.frames and block.state == LIVE else ""
            state = {LIVE: "live", FREE: "free"}.get(block.state, "waits for a stream")
            told.append((roles.TEXT, f"{units.size(block.size_bytes):>10}  {state}  {where}".rstrip()))
        return told


def _order(segment: Segment) -> tuple[int, int, int]:
    free = sum(block.size_bytes for block in segment.blocks if block.state == FREE)
    if free == segment.size_bytes:
        return 2, -free, segment.address
    return (0, -free, segment.address) if free else (1, -segment.size_bytes, segment.address)


def stack_details(stack: Stack) -> list[Detail]:
    """A stack's calls, from the innermost; the program's own stand out."""
    if not stack.frames:
        return [(roles.DIM, f"{stack.site}: there is no stack")]
    return [(roles.TEXT if frame.near == 0 else roles.DIM, frame.text) for frame in stack.frames]


def fitting(details: list[Detail], room: int) -> list[Detail]:
    """As many as there is room for: torch's and Python's own go first, then the outermost."""
    if len(details) <= room:
        return details
    own = [each for each in details if each[0] != roles.DIM]
    kept = own if 0 < len(own) < len(details) else details
    if len(kept) >= room:
        kept = kept[: max(0, room - 1)]
    return [*kept, (roles.DIM, f"and {len(details) - len(kept):,} more calls or lines")][:room]


def _head(width: int, third: str, name: str) -> Row:
    line = Line().add("   " + "bytes".rjust(11) + "share".rjust(7), roles.DIM)
    if width >= _BAR_FROM:
        line.add(" " * (2 + _bar_width(width)), roles.DIM)
    return line.add(third.rjust(9) + "  " + name, roles.DIM).row(width)


def _begun(category: str, held: int, total: int, largest: int, marked: bool, width: int, look: Look) -> Line:
    """A row up to its bar."""
    line = _lettered(category, marked, look)
    line.add(units.size(held).rjust(11), _text(marked))
    line.add((units.percent(held, total) if total > 0 else "").rjust(7), _quiet(marked))
    if width >= _BAR_FROM:
        across = _bar_width(width)
        length = max(0, min(across, (2 * held * across + largest) // (2 * largest))) if largest > 0 else 0
        line.add("  ", _quiet(marked))
        if look.colors.mono or not look.glyphs.braille:
            line.add(letter(category) * length, roles.fill(tenant(category)))
        else:  # lower than its line, so that the bars of two lines are two
            line.add("▆" * length, roles.pair(tenant(category), ""))
        line.add(" " * (across - length), _quiet(marked))
    return line


def _lettered(category: str, marked: bool, look: Look) -> Line:
    line = Line().add(" ", " ")
    if category:
        line.add(look.text(letter(category)), roles.ink(tenant(category)))
    return line.pad(2).add(" ", _quiet(marked))


def _named(line: Line, name: str, marked: bool, width: int, look: Look) -> Row:
    line.add("  ", _quiet(marked))
    shown = clip(look.text(clean(name, 400)), max(1, width - line.width - 1), look.glyphs.ellipsis)
    return line.add(shown, _text(marked)).pad(width - 1, _text(marked)).row(width)


def _largest(groups: Sequence[Group]) -> int:
    return max((group.size_bytes for group in groups), default=0)


def _bar_width(width: int) -> int:
    return 12 if width < 150 else 24


def _text(marked: bool) -> str:
    return roles.SELECTED if marked else roles.TEXT


def _quiet(marked: bool) -> str:
    return roles.SELECTED if marked else roles.DIM


def rows_of(tab: str, answer: Answer, opened: Opened, segments: Segments) -> Optional[Rows]:
    """The table of a tab; None where there is none."""
    if tab == "segments":
        return segments
    if tab == "live":
        return Groups(answer, answer.sites, sites=True)
    if tab == "categories":
        return Groups(answer, answer.categories, sites=False)
    if tab == "largest":
        return Largest(answer, opened)
    return None if answer.changes is None else Changes(answer.changes, answer)
