"""The instants of a step at which its peak can be, whatever is changed about it."""

from __future__ import annotations

from collections.abc import Iterable
from operator import ge
from typing import NamedTuple, Optional

from memtui.analysis.composition import GROWING, growing
from memtui.analysis.recorded import StepTimeline
from memtui.wire.frames import CATEGORIES

Sizes = tuple[int, ...]  # bytes, in the order of CATEGORIES
#: Of a recorded step's peak: what differs by less is not told apart, or thousands of instants would be kept.
_FINENESS = 2048
_REST = CATEGORIES.index("unattributed")


class Moment(NamedTuple):
    """What was allocated at one instant, by category."""

    phase: str
    sizes: Sizes

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.sizes)

    def with_sizes(self, **sizes: int) -> Moment:
        """The same instant with other bytes in some categories."""
        return self._replace(sizes=tuple(sizes.get(key, held) for key, held in zip(CATEGORIES, self.sizes)))

    def size(self, key: str) -> int:
        """Bytes of one category."""
        return self.sizes[CATEGORIES.index(key)]


class Life(NamedTuple):
    """A piece of memory between two events: `born` is -1 for before the step, `died` None for after it."""

    born: int
    died: Optional[int]
    size_bytes: int
    category: str


def moment(phase: str, categories: dict[str, int]) -> Moment:
    """Of a classification; a category that is not known is unattributed."""
    sizes = [categories.get(key, 0) for key in CATEGORIES]
    sizes[_REST] += sum(held for key, held in categories.items() if key not in CATEGORIES)
    return Moment(phase, tuple(sizes))


def lives(timeline: StepTimeline) -> list[Life]:
    """The blocks of a recorded step."""
    return [
        Life(block.born, block.died, block.size_bytes, timeline.categories[block.category]) for block in timeline.blocks
    ]


def of_lives(found: Iterable[Life], timeline: StepTimeline) -> tuple[Moment, ...]:
    """The instants before memory is freed, and the last; without those that others are above in every category."""
    now = [0] * len(CATEGORIES)
    now[_REST] = timeline.rest_bytes
    changes: list[tuple[int, bool, int, int]] = []  # event, whether it frees (after what is made), bytes, category
    for life in found:
        place = CATEGORIES.index(life.category) if life.category in CATEGORIES else _REST
        if life.born < 0:
            now[place] += life.size_bytes
        else:
            changes.append((life.born, False, life.size_bytes, place))
        if life.died is not None:
            changes.append((life.died, True, -life.size_bytes, place))
    changes.sort()
    seen: dict[Moment, None] = {}
    rose, phase = True, timeline.phase_of_event(0)
    for event, frees, size, place in changes:
        if frees and rose:
            seen[Moment(phase, tuple(now))] = None
        if not frees:
            phase = timeline.phase_of_event(event)
        rose = not frees
        now[place] += size
    seen[Moment(phase, tuple(now))] = None
    return highest(seen, timeline.totals[timeline.peak] // _FINENESS)


def highest(moments: Iterable[Moment], slack_bytes: int = 0) -> tuple[Moment, ...]:
    """Those that no other of their kind is above in every category: one of them is the peak under any change.

    Two kinds are told apart, the optimizer's step and all else: temporaries are of another nature there. One that is
    above another by less than `slack_bytes` in a category is not kept for that.
    """
    # First among those with the same of what does not grow: there are many of them, and few are left.
    alike: dict[object, list[Moment]] = {}
    for each in moments:
        fixed = tuple(held for key, held in zip(CATEGORIES, each.sizes) if key not in GROWING)
        alike.setdefault((each.phase, fixed), []).append(each)
    left = [each for group in alike.values() for each in _not_below(group, slack_bytes)]
    kinds = ([each for each in left if (each.phase == "optimizer") is kind] for kind in (False, True))
    return tuple(each for kind in kinds for each in _not_below(kind, slack_bytes))


def _not_below(moments: list[Moment], slack_bytes: int) -> list[Moment]:
    kept: list[Moment] = []
    for each in sorted(moments, key=lambda moment: -moment.total):
        least = tuple(held - slack_bytes for held in each.sizes)
        if not any(all(map(ge, other.sizes, least)) for other in reversed(kept)):
            kept.append(each)
    return kept


def parts(each: Moment) -> tuple[int, int]:
    """Bytes that stay whatever the batch, and bytes that grow with it."""
    grows = sum(each.size(key) for key in growing(each.phase))
    return each.total - grows, grows


def grown(each: Moment, times: float) -> Moment:
    """The same instant with a batch so many times as large."""
    return each.with_sizes(**{key: round(each.size(key) * times) for key in growing(each.phase)})


def most_times(moments: Iterable[Moment], room_bytes: int, holes_bytes: int = 0) -> Optional[float]:
    """How many times the batch may be at most, for `room_bytes`, of which `holes_bytes` times as many go to nothing.

    0 where what does not grow has no room already; None where nothing grows.
    """
    times: list[float] = []
    for each in moments:
        stays, grows = parts(each)
        if stays > room_bytes:
            return 0.0
        if grows > 0:
            times.append((room_bytes - stays) / (grows + holes_bytes))
    return min(times, default=None)
