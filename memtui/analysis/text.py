"""Text that comes from the monitored process or its machine, made harmless and short."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from memtui.session.steps import step_number

#: Terminal sequences: CSI, OSC and other strings, two-character escapes. A lone ESC goes with the control characters.
_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
#: Marks that reorder what follows: an argument could make the line around it read as something else.
_REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_WIDEST = 4_096


def clean(text: str, limit: int = _WIDEST) -> str:
    """`text` in one line without anything a terminal acts on, at most `limit` characters.

    Terminal sequences and marks that reorder text go; control characters, line ends, private and unassigned ones
    become "�" or a space. Markup is not escaped: that is the business of who draws it.
    """
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text  # as nearly all is
    text = _REORDERING.sub("", _SEQUENCES.sub("", text[: 4 * limit]))
    text = "".join(map(_harmless, text))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _harmless(character: str) -> str:
    if character in "\t\n\r\v\f\x85\u2028\u2029":
        return " "
    category = unicodedata.category(character)
    if category in {"Cc", "Cs", "Co", "Cn"}:
        return "�"
    return "" if category == "Cf" else character


#: Phases as they stand in a sentence, after "in" or alone.
_PHASES = {
    "between": "between steps",
    "optimizer": "the optimizer step",
    "startup": "start-up",
    "checkpoint": "checkpoint saving or loading",
}


def phase_words(phase: str, *, after_in: bool = False) -> str:
    """A phase for a sentence: "backward", "between steps"; `after_in` puts the "in" in front where it belongs."""
    words = _PHASES.get(phase) or clean(phase, 40) or "phase unknown"
    return words if not after_in or phase in ("", "between") else f"in {words}"


def place_words(phase: str, completed: int) -> str:
    """Where in the training something was: "in backward, step 3", where two steps were completed before.

    Between steps the next one is named, whether or not an optimizer of several has yet to follow.
    """
    if phase == "startup":
        return f"in {phase_words(phase)}"
    number = f"step {step_number(completed):,}"
    return f"before {number}'s forward" if phase == "between" else f"{phase_words(phase, after_in=True)}, {number}"


def command(argv: Iterable[str], limit: int = 200) -> str:
    """A command line for people: cleaned words, an interpreter in front left out, the script without its folder."""
    words = [clean(word, limit) for word in argv]
    if len(words) > 1 and re.fullmatch(r"(.*/)?(python|pypy)[\d.]*t?", words[0]):
        words = words[1:]
    if words and "/" in words[0]:
        words[0] = words[0].rstrip("/").rpartition("/")[2]
    line = " ".join(word if word else "''" for word in words)
    return line if len(line) <= limit else line[: limit - 1] + "…"
