"""Of which rank a page about several is, and how the others ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from memtui.session.members import Member, first_failed, newest

from .ends import end_words


def reported(members: Iterable[Member], has_figures: Callable[[Member], bool]) -> Optional[Member]:
    """The rank that failed first; the first with figures where none failed, or that one has none; None without any."""
    current = _current(list(members))
    failed = first_failed(current)
    candidates = ([] if failed is None else [failed]) + [*current]
    return next((each for each in candidates if has_figures(each)), None)


def rank_lines(
    members: Sequence[Member], shown: Member, other: Callable[[Member], str] = lambda _member: ""
) -> tuple[str, ...]:
    """Which rank of how many is shown and why, then how each other one ended; `other` says where more is of it."""
    current = _current(members)
    count, first = max(len(current), shown.world_size or 0), first_failed(current)
    which = f"This is {shown.name} of {count:,}"
    if first is None:
        why = ": none of them failed" if all(each.over for each in current) else ""
    elif first is shown:
        why = ", which failed first" if shown.failed else ", which ran out of memory first"
    else:
        why = f"; {first.name} failed first, and there are no figures of it"
    lines = [f"{which}{why}"]
    for each in current:
        if each is not shown:
            end = end_words(each.session) if each.over else "had not ended when watching did"
            lines.append(" · ".join(part for part in (f"{each.name}: {end}", other(each)) if part))
    return tuple(lines)


def _current(members: Sequence[Member]) -> Sequence[Member]:
    """The newest lives; all where nobody has numbered them."""
    return newest(members) or members
