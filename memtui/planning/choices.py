"""Settings of a program that are put beside each other: an argument or a variable, with several values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import PlanningError
from .setting import with_value

_FORM = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<values>.+)", re.DOTALL)
_EXAMPLE = "write an argument of the program as batch_size=8,16"


@dataclass(frozen=True)
class Choice:
    """`name` with each of `values`, as they are written."""

    name: str
    values: tuple[str, ...]


def parse_choices(texts: Sequence[str]) -> list[Choice]:
    """The choices of "batch_size=8,16" and others; raises PlanningError."""
    choices: list[Choice] = []
    for text in texts:
        match = _FORM.fullmatch(text)
        values = tuple(match["values"].split(",")) if match else ()
        if match is None or not all(values):
            raise PlanningError(f"{text!r} names no values", _EXAMPLE)
        if any(match["name"] == choice.name for choice in choices):
            raise PlanningError(f"{match['name']} is compared twice", "name all its values at once")
        choices.append(Choice(match["name"], tuple(dict.fromkeys(values))))
    return choices


def combinations(choices: Sequence[Choice]) -> list[dict[str, str]]:
    """Every combination, by name; the last choice changes first. Of no choices it is the one without any."""
    names = [choice.name for choice in choices]
    return [dict(zip(names, values)) for values in itertools.product(*(choice.values for choice in choices))]


def applied(settings: Mapping[str, str], words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The program's words with these settings, and the variables that are among them."""
    changed, variables = list(words), dict[str, str]()
    for name, value in settings.items():
        changed, variables = with_value(name, changed, variables, value)
    return changed, variables
