"""The characters that pictures are made of, in Unicode and in ASCII."""

from __future__ import annotations

import locale
from collections.abc import Mapping
from dataclasses import dataclass

#: A letter a phase; "between" has none, so that steps are told apart.
PHASE_LETTERS = {
    "startup": "s",
    "forward": "f",
    "backward": "b",
    "optimizer": "o",
    "evaluation": "e",
    "checkpoint": "c",
    "compilation": "m",
}


@dataclass(frozen=True)
class Corners:
    """A line that goes along columns and steps up or down between them."""

    across: str
    up: str  # the lower end of a rise: comes from the left, goes up
    up_end: str  # its upper end: comes from below, goes right
    down: str
    down_end: str
    upright: str


@dataclass(frozen=True)
class Glyphs:
    """One set of characters; all are one cell wide."""

    name: str
    braille: bool
    area: str  # a full cell, where there is no braille
    envelope: str
    held: str  # the height of a column that nothing was read in, where there is no braille
    reserved: Corners
    device: Corners
    capacity: str
    forecast: str
    axis: str
    tick: str
    corner: str
    cursor: str
    bar_left: str
    bar_right: str
    dot: str
    dash: str
    ellipsis: str
    marker: str
    empty_phase: str

    def phase(self, name: str) -> str:
        """The character of a phase in the strip under the chart."""
        return self.empty_phase if name == "between" else PHASE_LETTERS.get(name, name[:1] or " ")


UNICODE = Glyphs(
    name="unicode",
    braille=True,
    area="⣿",
    envelope="⡪",
    held="⠒",
    reserved=Corners("━", "┛", "┏", "┓", "┗", "┃"),
    device=Corners("─", "┘", "┌", "┐", "└", "│"),
    capacity="┈",
    forecast="╌",
    axis="│",
    tick="┤",
    corner="└",
    cursor="│",
    bar_left="▐",
    bar_right="▌",
    dot="·",
    dash="–",
    ellipsis="…",
    marker="▸",
    empty_phase="·",
)

ASCII = Glyphs(
    name="ascii",
    braille=False,
    area="#",
    envelope=":",
    held="_",
    reserved=Corners("=", "+", "+", "+", "+", "|"),
    device=Corners("-", "+", "+", "+", "+", "|"),
    capacity="~",
    forecast=".",
    axis="|",
    tick="+",
    corner="+",
    cursor="|",
    bar_left="[",
    bar_right="]",
    dot="|",
    dash="-",
    ellipsis="...",
    marker=">",
    empty_phase=".",
)

#: What the sentences of the analysis contain beyond ASCII, in characters that every terminal has.
_PLAIN = str.maketrans(
    {"·": "|", "–": "-", "—": "-", "−": "-", "…": "...", "≥": ">=", "≤": "<=", "→": "->", "←": "<-", "↑": "^", "↓": "v"}
    | {"×": "x", "°": "", "±": "+-", "µ": "u", "▸": ">", "’": "'", "“": '"', "”": '"', "≈": "~", "\u202f": " "}
)


def plain(text: str) -> str:
    """Text in ASCII: what has no likeness there becomes a question mark."""
    if text.isascii():
        return text
    return text.translate(_PLAIN).encode("ascii", "replace").decode("ascii")


def detect(environment: Mapping[str, str], encoding: str | None) -> Glyphs:
    """ASCII where standard output is not Unicode or the locale is C without UTF-8; else Unicode.

    Python's own encoding is not enough: it coerces the C locale to UTF-8, which says nothing of the terminal.
    """
    if not (encoding or "").lower().replace("-", "").startswith("utf8"):
        return ASCII
    name = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    # What Python sets LC_CTYPE to when it coerces (PEP 538); the person's own setting is in LANG then.
    if name.upper() in ("C.UTF-8", "C.UTF8", "UTF-8") and environment.get("LANG", "") in ("", "C", "POSIX"):
        name = environment.get("LANG") or name
    if name in ("C", "POSIX"):
        return ASCII
    return UNICODE


def stdout_encoding(declared: str | None) -> str:
    """The encoding of standard output, else the locale's."""
    return declared or locale.getpreferredencoding(False)
