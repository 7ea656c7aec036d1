"""How the screen looks now: a theme, a set of characters, and the escape sequences that they come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import Theme

from . import palette
from .glyphs import Glyphs, plain
from .palette import Colors
from .rows import Row, Span, runs
from .styles import styles as styles_of

_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}


class Code(NamedTuple):
    """A style in parts of an escape sequence: attributes ("1;3"), foreground, background; empty is the terminal's."""

    attributes: str
    foreground: str
    background: str

    @property
    def blank(self) -> tuple[str, bool]:
        """What of it a space shows: the background, and whether it is reversed."""
        return self.background, "7" in self.attributes

    def after(self, before: Code | None) -> str:
        """The sequence that leads to this style from another, as short as may be; None is an unknown state."""
        if before == self:
            return ""
        if before is None or before.attributes != self.attributes or not self.foreground or not self.background:
            return "\x1b[" + ";".join(("0", *(part for part in self if part))) + "m"
        parts = []
        if before.foreground != self.foreground:
            parts.append(self.foreground)
        if before.background != self.background:
            parts.append(self.background)
        return "\x1b[" + ";".join(parts) + "m"


@dataclass(frozen=True)
class Look:
    """A theme and its characters, ready to draw with."""

    colors: Colors
    glyphs: Glyphs
    color_system: str = "truecolor"
    styles: Mapping[str, Style] = field(default_factory=dict, compare=False, repr=False)
    codes: Mapping[str, Code] = field(default_factory=dict, compare=False, repr=False)

    def text(self, text: str) -> str:
        """Text in characters that the terminal has."""
        return text if self.glyphs.braille else plain(text)

    def strip(self, row: Row) -> Strip:
        """A row for Textual's compositor."""
        width = len(row.text)
        return Strip([Segment(text, self.styles[role]) for text, role in runs(row, 0, width)], width)

    def sequence(self, rows: list[tuple[Span, Row]]) -> str:
        """What a terminal must be sent to show these cells; each span's `y` and columns are the screen's.

        A row comes with the screen column of its first cell in `Span.start` already taken off: see `Lines.placed`.
        """
        parts: list[str] = []
        current: Code | None = None
        for span, row in rows:
            parts.append(f"\x1b[{span.y + 1};{span.start + 1}H")
            for text, role in runs(row, 0, len(row.text)):
                code = self.codes[role]
                # A space shows no foreground: between columns of the chart that saves most of the bytes.
                if code is not current and not (current and text.isspace() and code.blank == current.blank):
                    parts.append(code.after(current))
                    current = code
                parts.append(text)
        parts.append("\x1b[0m")
        return "".join(parts)

    def raised(self) -> Look:
        """The same on the background of dialogs."""
        return make(replace(self.colors, background=self.colors.surface), self.glyphs, self.color_system)


def make(colors: Colors, glyphs: Glyphs, color_system: str | None = "truecolor") -> Look:
    """A look for a terminal with a colour system as rich names them; None is a terminal without colours."""
    if color_system in (None, "none") and not colors.mono:
        colors = palette.MONO
    if color_system == "standard" and not colors.mono:
        colors = palette.SIXTEEN
    styles = styles_of(colors)
    system = _SYSTEMS.get(color_system or "", ColorSystem.STANDARD)
    codes = {role: _code(style, system) for role, style in styles.items()}
    return Look(colors, glyphs, color_system or "none", styles, codes)


def _code(style: Style, system: ColorSystem) -> Code:
    def part(color: Color | None, *, foreground: bool) -> str:
        return "" if color is None else ";".join(color.downgrade(system).get_ansi_codes(foreground))

    attributes = [
        number
        for number, wanted in (
            ("1", style.bold),
            ("2", style.dim),
            ("3", style.italic),
            ("4", style.underline),
            ("7", style.reverse),
        )
        if wanted
    ]
    return Code(";".join(attributes), part(style.color, foreground=True), part(style.bgcolor, foreground=False))


def textual_theme(colors: Colors) -> Theme:
    """The theme of what Textual draws itself: the command palette, dialogs, scroll bars."""
    if colors.mono:
        default = "ansi_default"
        return Theme(
            name=colors.name,
            primary=default,
            secondary=default,
            warning=default,
            error=default,
            success=default,
            accent=default,
            foreground=default,
            background=default,
            surface=default,
            panel=default,
            boost=default,
            ansi=True,
            variables={
                "ansi-background": default,
                "ansi-foreground": default,
                "border": default,
                "border-blurred": default,
                "block-cursor-foreground": default,
                "block-cursor-background": default,
                "block-cursor-text-style": "bold reverse",
                "input-cursor-background": default,
                "input-cursor-foreground": default,
                "input-cursor-text-style": "reverse",
                "input-selection-background": default,
                "input-selection-foreground": default,
                "screen-selection-background": default,
                "screen-selection-foreground": default,
            },
        )
    return Theme(
        name=colors.name,
        primary=colors.accent,
        secondary=colors.reserved,
        accent=colors.accent,
        warning=colors.warning,
        error=colors.bad,
        success=colors.good,
        foreground=colors.text,
        background=colors.background,
        surface=colors.surface,
        panel=colors.surface,
        dark=colors.dark,
    )


def choose(wanted: str | None, environment: Mapping[str, str]) -> Colors:
    """The theme to begin with: NO_COLOR, else what was asked for, else what COLORFGBG says safely, else dark.

    Raises ValueError for a name that is no theme.
    """
    if environment.get("NO_COLOR"):
        return palette.MONO
    if wanted and wanted != "auto":
        if wanted not in palette.BY_NAME:
            raise ValueError(f"no theme {wanted!r}: " + ", ".join(colors.name for colors in palette.THEMES))
        return palette.BY_NAME[wanted]
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    # 7 and 15 are the two whites; other values are read differently by different terminals.
    return palette.LIGHT if background in ("7", "15") else palette.DARK
