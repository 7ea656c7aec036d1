"""One out-of-memory error on a page: the cause, the figures, who held the memory, and what would have helped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Optional

from memtui.analysis import units
from memtui.analysis.bar import band
from memtui.analysis.oom.story import Story, gain_text
from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, cells, shorten

from .bar import SHORT, shares
from .lines import Lines

_CHIP = " OUT OF MEMORY "
_BACK, _MORE, _TURN = "q, escape: back  ", "↑ ↓: more   ", "← →: others   "
#: Lines of text longer than this are hard to follow with the eye.
_LONGEST = 116
#: Of a screen that has room for gaps, and for a price on a line of its own.
_TALL = 32
#: Narrower than this only the way out is named; from _COLUMNS_FROM on, what a remedy saves has a column of its own.
_NARROW, _COLUMNS_FROM = 60, 100
_NOTHING = (
    "Nothing has run out of memory here. When an allocation fails, this page names the cause, who held the memory at "
    "that very instant, and what would have helped."
)
_NOT_COUNTED = "No allocation has failed in the time that is shown, as far as counters tell."
_ELSEWHERE = "memtui explain reads the error messages of a log, or one that is pasted into it."


class ExhaustedPage(Lines):
    """The page, which can be scrolled; without a story it says so. `place` is (number, how many there are).

    `absent` says why messages of errors are never there.
    """

    def __init__(
        self, look: Look, story: Optional[Story], place: tuple[int, int], retries: int, absent: str = ""
    ) -> None:
        super().__init__(look, id="page")
        self.story, self.place, self.retries, self.absent = story, place, retries, absent
        self.first = 0

    def show(self, story: Optional[Story], place: tuple[int, int], *, stay: bool = False) -> None:
        """Another error, from its top; or the same one among others, where it was."""
        self.story, self.place, self.first = story, place, self.first if stay else 0
        self._again()

    def scroll(self, lines: int) -> None:
        """Moves the text up by `lines`, or down."""
        most = len(self._body(self.size.width, self.size.height)) - (self.size.height - 1)
        self.first = max(0, min(self.first + lines, most))
        self._again()

    def _again(self) -> None:
        self.take_changes()
        self.refresh()

    def draw(self, width: int, height: int) -> list[Row]:
        """The title, and of the rest what is in view."""
        body = self._body(width, height)
        title = self._title(width, more=len(body) > height - 1)
        return [title, *body[self.first : self.first + height - 1]]

    # The parts, from top to bottom

    def _body(self, width: int, height: int) -> list[Row]:
        story, gap = self.story, [Line().row(width)] if height >= _TALL else []
        if story is None:
            return [Line().row(width), *self._nothing(width)]
        rows = [*gap, *self._sentence(story, width)]
        rows += [*self._figures(story, width), *gap]
        rows += [*self._held(story, width), *gap]
        if story.answer.remedies:
            rows += [self._head("would have helped, most first" if story.answer.cause.certain else "may help", width)]
            rows += [row for number in range(len(story.answer.remedies)) for row in self._remedy(story, number, width)]
        for useless in story.answer.not_helping:
            rows += self._wrapped(f"not {useless}", roles.DIM, width)
        rows += gap
        for head, lines in self._lists(story):
            if lines:
                rows += [self._head(head, width), *(self._entry(line, width) for line in lines), *gap]
        for note in [*self._notes(story), *([self.absent] if self.absent else [])]:
            rows += self._wrapped(note, roles.DIM, width)
        while rows and not rows[-1].text.strip():
            rows.pop()
        return rows

    def _title(self, width: int, *, more: bool) -> Row:
        """Which error, when and where; the keys on the right, as many as there is room for."""
        number, count = self.place
        line, heading = Line().add(" ", " "), "out of memory"
        if self.story is not None:
            line.add(f"{_CHIP}{number:,} of {count:,} " if count > 1 else _CHIP, roles.BAD_CHIP)
            heading = self.look.text(self.story.heading)
        hints = [_TURN if count > 1 else "", _MORE if more else ""]
        if line.width + len(cells(heading)) + sum(map(len, hints)) + len(_BACK) + 3 > width:
            hints = [each.partition(":")[0] + "  " if each else "" for each in hints]
        hint = self.look.text("".join(hints if width >= _NARROW else []) + _BACK)
        room = max(0, width - line.width - len(hint) - 3)
        line.add(" ", " ").add(shorten(heading, room, self.look.glyphs.ellipsis), roles.BRIGHT)
        return line.pad(width - len(hint)).add(hint, roles.DIM).row(width)

    def _sentence(self, story: Story, width: int) -> list[Row]:
        """The cause stands out; what the figures say of it goes on behind."""
        cause, _, rest = story.answer.sentence.partition(": ")
        role = roles.BAD if story.answer.cause.certain else roles.WARNING
        rows = []
        for number, piece in enumerate(self._pieces(f"{cause}: {rest}", width - 4)):
            line = Line().add("  ", " ")
            if not number and piece.startswith(cause):
                line.add(piece[: len(cause)], role).add(piece[len(cause) :], roles.BRIGHT)
            else:
                line.add(piece, roles.BRIGHT)
            rows.append(line.row(width))
        return rows

    def _figures(self, story: Story, width: int) -> list[Row]:
        rows, line = [], Line().add("  ", " ")
        raised = story.raised.partition(" at ")[::2]
        for entry in (*story.figures, *([(f"{raised[0]} at", raised[1])] if story.raised else [])):
            name, text = map(self.look.text, entry)
            if line.width > 2 and line.width + len(name) + len(text) + 1 > width - 1:
                rows.append(line.row(width))
                line = Line().add("  ", " ")
            line.add(f"{name} ", roles.DIM).add(text, roles.TEXT).add("   ", " ")
        return [*rows, line.row(width)]

    def _held(self, story: Story, width: int) -> list[Row]:
        """The device as a bar, with the bytes of each band; and what one like this step was made of."""
        rows: list[Row] = []
        if story.bands:
            sizes = [each.figure.value or 0 for each in story.bands]
            line = Line().add("  ", " ").add("device ", roles.DIM).add(units.size(sum(sizes)) + " ", roles.BRIGHT)
            line.add(self.look.glyphs.bar_left, roles.AXIS)
            for each, count in zip(story.bands, shares(sizes, width - line.width - 3)):
                line.add(self._letter(each.letter) * count, roles.fill(each.key))
            rows.append(line.add(self.look.glyphs.bar_right, roles.AXIS).row(width))
            rows += self._legend([(each.key, each.figure.value or 0) for each in story.bands], width, story.at_least)
        if story.held_note and not self.absent:
            rows += self._wrapped(story.held_note, roles.DIM, width)
        return rows + (self._legend(list(story.like), width) if story.like else [])

    def _legend(self, held: list[tuple[str, int]], width: int, at_least: tuple[str, ...] = ()) -> list[Row]:
        entries = []
        for key, size in held:
            found = band(key, size)
            label = SHORT.get(key, found.label) if width < _COLUMNS_FROM else found.label
            shown = f"{'≥' if key in at_least else ''}{units.size(size)}"
            entries.append((key, self._letter(found.letter), self.look.text(label), self.look.text(shown)))
        if not entries:
            return []
        widest = max(len(label) for _, _, label, _ in entries)
        column = 2 + widest + 1 + 10 + 2
        count = max(1, (width - 3) // column)
        rows = []
        for start in range(0, len(entries), count):
            line = Line().add("  ", " ")
            for key, letter, label, text in entries[start : start + count]:
                line.add(letter, roles.ink(key)).add(" ", " ").add(label, roles.DIM)
                line.pad(line.width + widest - len(label) + 11 - len(text)).add(text, roles.TEXT).add("  ", " ")
            rows.append(line.row(width))
        return rows

    def _letter(self, letter: str) -> str:
        shown = self.look.text(letter)
        return shown if len(shown) == 1 else "?"

    def _remedy(self, story: Story, number: int, width: int) -> Iterator[Row]:
        """Its number, what to do, what that saves, and its price."""
        remedy = story.answer.remedies[number]
        gain = gain_text(remedy.saves_bytes).removeprefix("; ")
        beside = width >= _COLUMNS_FROM
        action = remedy.action if beside or not gain else f"{remedy.action}; {gain}"
        end = min(width - 2, _LONGEST + 24)
        room = end - 4 - (18 if beside else 0)
        price, pieces = f"price: {remedy.price}", self._pieces(action, room)
        shown = str(number + 1)
        for place, piece in enumerate(pieces):
            line = Line().pad(4 - len(shown)).add(shown, roles.TITLE).pad(6).add(piece, roles.TEXT)
            if place == len(pieces) - 1 and len(cells(piece)) + len(cells(price)) + 3 <= room:
                line.add("   ", " ").add(self.look.text(price), roles.DIM)
                price = ""
            if not place and beside and gain:
                line.pad(end - len(gain)).add(self.look.text(gain), roles.PREDICTED)
            yield line.row(width)
            shown = ""
        for piece in self._pieces(price, room) if price else ():
            yield Line().pad(6).add(piece, roles.DIM).row(width)

    def _lists(self, story: Story) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "what pins the holes", story.pins
        yield f"largest call sites {story.sites_note}".rstrip(), story.sites
        yield "other processes", story.others

    def _notes(self, story: Story) -> Iterator[str]:
        answer = story.answer
        yield from answer.notes
        if answer.deciding:
            yield f"What would decide it: {answer.deciding}"
        if story.settings:
            yield f"allocator settings: {story.settings}"
        if not story.sites and story.sites_note and not self.absent:
            yield story.sites_note
        yield from self._retried()

    def _retried(self) -> Iterator[str]:
        if self.retries:
            times = "once" if self.retries == 1 else f"{self.retries:,} times"
            yield f"{times} an allocation succeeded only after PyTorch had given back its cache: 2 lists them"

    def _nothing(self, width: int) -> list[Row]:
        first = [_NOT_COUNTED, self.absent] if self.absent else [_NOTHING]
        texts = [*first, *self._retried(), _ELSEWHERE]
        return [row for text in texts for row in [*self._wrapped(text, roles.TEXT, width), Line().row(width)]]

    # Lines of text

    def _head(self, text: str, width: int) -> Row:
        return Line().pad(2).add(self.look.text(text), roles.TITLE).row(width)

    def _entry(self, text: str, width: int) -> Row:
        shown = shorten(self.look.text(text), width - 6, self.look.glyphs.ellipsis)
        return Line().pad(4).add(shown, roles.TEXT).row(width)

    def _wrapped(self, text: str, role: str, width: int) -> list[Row]:
        return [Line().pad(2).add(piece, role).row(width) for piece in self._pieces(text, width - 4)]

    def _pieces(self, text: str, width: int) -> list[str]:
        width = max(20, min(_LONGEST, width))
        return textwrap.wrap(self.look.text(text), width, break_on_hyphens=False)
