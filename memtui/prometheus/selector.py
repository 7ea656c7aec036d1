"""Which series are meant: label matchers, as PromQL has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)\s*"""
)
_LONGEST = 4_000
_EXAMPLE = 'run="NAME",instance=~"node1.*"'
#: Labels that every series of a target has; the others are of ranks.
_OF_TARGETS = frozenset(("job", "instance"))
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


@dataclass(frozen=True)
class Selector:
    """Label matchers in the order in which they were given, each as it is written."""

    matchers: tuple[tuple[str, str, str], ...] = ()  # label, operator, quoted value

    def of_ranks(self, name: str, *more: str) -> str:
        """The series of a metric, or (with "~" in front) of those whose names match, that are meant; and `more`."""
        named = f'__name__=~"{name[1:]}"' if name.startswith("~") else ""
        inside = [named] if named else []
        inside += ["".join(matcher) for matcher in self.matchers]
        inside += more
        return f"{'' if named else name}{{{','.join(inside)}}}"

    def of_targets(self, name: str, *more: str) -> str:
        """The same by what every series of a target has, whichever rank's or device's."""
        kept = tuple(each for each in self.matchers if each[0] in _OF_TARGETS)
        return Selector(kept).of_ranks(name, *more)

    @property
    def text(self) -> str:
        """As it would be written in PromQL."""
        return "{" + ",".join("".join(matcher) for matcher in self.matchers) + "}" if self.matchers else ""


def parse_selector(text: str) -> Selector:
    """The selector of `run="gpt-7b",instance=~"node1.*"`, braces optional; raises ValueError.

    What stands in quotes is the server's to judge.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"a selector has at most {_LONGEST:,} characters")
    inside = text.strip()
    if inside.startswith("{"):
        if not inside.endswith("}"):
            raise ValueError("the selector's brace is not closed")
        inside = inside[1:-1]
    found: list[tuple[str, str, str]] = []
    place = 0
    while inside[place:].strip():
        match = _MATCHER.match(inside, place)
        if match is None or (match.end() < len(inside) and inside[match.end()] != ","):
            where = inside[place:].strip()[:60]
            raise ValueError(f'the selector cannot be understood at {where!r}: write run="NAME",instance=~"node1.*"')
        if match[1] == "__name__":
            raise ValueError("the selector names labels of memtui's series (run, rank, job, instance), not series")
        found.append((match[1], match[2], match[3]))
        place = match.end() + 1
    return Selector(tuple(found))


def equal(label: str, value: str) -> str:
    """A matcher for this value."""
    return f'{label}="{_quoted(value)}"'


def one_of(label: str, values: Iterable[str]) -> str:
    """A matcher for any of these values."""
    alternatives = "|".join(_SPECIAL.sub(lambda found: f"\\{found[0]}", value) for value in values)
    return f'{label}=~"{_quoted(alternatives)}"'


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
