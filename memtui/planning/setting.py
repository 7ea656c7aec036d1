"""A number of the program's that is to be found: an argument of its command line, or an environment variable."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import PlanningError

_FORM = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<low>\d{1,9})\.\.(?P<high>\d{1,9})")
_SCRIPT_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class Setting:
    """`name` from `low` to `high`, both of which may be the answer."""

    name: str
    low: int
    high: int


def with_value(
    name: str, words: Sequence[str], environment: Mapping[str, str], value: str
) -> tuple[list[str], dict[str, str]]:
    """The program's words and environment with this value.

    A name in capitals is an environment variable; any other an argument, which is put in the place of the one
    that is there: `--batch-size 8`, `--batch_size=8` or `batch_size=8`; without one it is added at the end.
    """
    if name.isupper():
        return list(words), {**environment, name: value}
    result = list(words)
    for place, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if _plain(option) != _plain(name):
            continue
        if equals:
            result[place] = f"{option}={value}"
            return result, dict(environment)
        if option.startswith("-") and place + 1 < len(words):
            result[place + 1] = value
            return result, dict(environment)
    option = name if name.startswith("-") else f"--{_as_written(name, words)}"
    return [*result, option, value], dict(environment)


def _as_written(name: str, words: Sequence[str]) -> str:
    """The argument with dashes or underscores, as the script that is among the words has it; else as it was given."""
    script = next((word for word in words if word.endswith(".py") and os.path.isfile(word)), None)
    if script is None:
        return name
    with open(script, encoding="utf-8", errors="replace") as file:
        text = file.read(_SCRIPT_CHARACTERS)
    others = (name.replace("_", "-"), name.replace("-", "_"))
    return next((each for each in (name, *others) if re.search(rf"--{re.escape(each)}(?![\w-])", text)), name)


def parse_setting(text: str) -> Setting:
    """The setting of "batch_size=1..256"; raises PlanningError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise PlanningError(f"{text!r} is no range", "write an argument of the program as batch_size=1..256")
    low, high = int(match["low"]), int(match["high"])
    if not 1 <= low <= high:
        raise PlanningError(f"{text!r} has no values", "from a number of 1 or more up to a larger one")
    return Setting(match["name"], low, high)


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
