"""A number of the program's that is to be found: an argument of its command line, or an environment variable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import PlanningError

_FORM = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<low>\d{1,9})\.\.(?P<high>\d{1,9})")


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
    dashes = "" if name.startswith("-") else "--"
    return [*result, f"{dashes}{name}", value], dict(environment)


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
