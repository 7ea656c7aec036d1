"""What the memory at one instant of a recorded step is made of, by tensor, call site or module."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable, Literal, Optional

from .recorded import Block, StepTimeline
from .text import clean, phase_words

#: How blocks can be put together. `alike` is by tensor, the same one of every layer taken as one; `tree` is by module
#: with what its parts hold added to it, so that its rows do not add up; all others do.
By = Literal["alike", "tensor", "site", "module", "tree"]
GROUPINGS: tuple[By, ...] = ("alike", "tensor", "site", "module", "tree")

#: A layer's number in a tensor's name.
_NUMBER = re.compile(r"(?<![^.])\d+(?![^. ])")
_DIGITS = re.compile(r"(\D*)(\d{0,18})")
#: Frames of torch between a module's call and its forward: they say nothing.
_CALLS = frozenset(("_call_impl", "_wrapped_call_impl"))
UNKNOWN_SITE = "call site unknown"
OLDER_SITE = "from before this step"
NO_MODULE = "outside the model"
ROOT_MODULE = "the model itself"
REST = "in no block that was seen"


@dataclass(frozen=True)
class Group:
    """Blocks taken together. `parts` are (category, bytes) in the order of a bar; times are since the step began."""

    label: str
    size_bytes: int
    count: int  # of blocks
    parts: tuple[tuple[str, int], ...]
    phase: str = ""  # of birth, of most of the bytes; empty for what was there before the step
    born_us: Optional[int] = None  # the first of them; None where it was there before the step
    died_us: Optional[int] = None  # the last of them; None where it was still there at the end
    site: tuple[str, ...] = ()  # of the largest block, the innermost first
    sites: int = 0  # how many there are
    module: str = ""  # where all are in one
    depth: int = 0  # in a tree

    @property
    def category(self) -> str:
        """What most of it is."""
        return max(self.parts, key=lambda part: part[1])[0] if self.parts else "unattributed"


def groups(timeline: StepTimeline, instant: int, by: By) -> tuple[Group, ...]:
    """What is allocated at an instant, the largest first; but for a tree all add up to `totals[instant]`."""
    made = _Maker(timeline)
    alive = timeline.alive(instant)
    if by == "tree":
        return made.tree(alive)
    held: defaultdict[object, list[Block]] = defaultdict(list)
    key = made.key(by)
    for block in alive:
        held[key(block)].append(block)
    found = [made.group(made.label(by, blocks[0]), blocks) for blocks in held.values()]
    if timeline.rest_bytes:
        found.append(made.rest())
    return tuple(sorted(found, key=_largest_first))


def _largest_first(group: Group) -> tuple[int, list[tuple[str, int]]]:
    # Layer 2 before layer 10 where they are equally large.
    return -group.size_bytes, [(text, int(number or 0)) for text, number in _DIGITS.findall(group.label)]


class _Maker:
    def __init__(self, timeline: StepTimeline) -> None:
        self.timeline = timeline
        self.recorded = timeline.recorded
        self._alike: dict[int, str] = {}

    def key(self, by: By) -> Callable[[Block], object]:
        """What blocks of one group have in common: also the category, so that a row is of one colour."""
        if by == "module":
            return lambda block: block.module
        if by == "site":
            return lambda block: (*self._origin(block), block.category)
        if by == "alike":
            return lambda block: (
                self._alike_name(block.name) if block.name >= 0 else self._origin(block),
                block.category,
            )
        return lambda block: (block.name if block.name >= 0 else self._origin(block), block.category)

    def _origin(self, block: Block) -> tuple[int, str]:
        """The call site; where there is none, as of what autograd allocates, at least the phase."""
        if block.site >= 0:
            return block.site, ""
        return -1, OLDER_SITE if block.born < 0 else self.timeline.phase_of_event(block.born)

    def label(self, by: By, block: Block) -> str:
        if by == "module":
            return self._module(block.module)
        if by == "alike" and block.name >= 0:
            return clean(self._alike_name(block.name), 200)
        if by == "tensor" and block.name >= 0:
            return clean(self.recorded.names[block.name], 200)
        site, phase = self._origin(block)
        if site >= 0:
            return short_site(self.site(site)) or UNKNOWN_SITE
        if block.born < 0 or not phase:
            return phase or UNKNOWN_SITE
        return f"{phase_words(phase, after_in=True)}, by no line of Python"

    def _alike_name(self, name: int) -> str:
        held = self._alike.get(name)
        if held is None:
            held = self._alike[name] = _NUMBER.sub("*", self.recorded.names[name])
        return held

    def _module(self, module: int) -> str:
        if module < 0:
            return NO_MODULE
        return clean(self.timeline.modules[module], 200) or ROOT_MODULE

    def site(self, site: int) -> tuple[str, ...]:
        if site < 0:
            return ()
        lines = (clean(line.strip(), 300) for line in self.recorded.sites[site].split("\n"))
        return tuple(line for line in lines if line)

    def group(self, label: str, blocks: Iterable[Block], depth: int = 0) -> Group:
        timeline = self.timeline
        parts: defaultdict[int, int] = defaultdict(int)
        births: defaultdict[str, int] = defaultdict(int)
        born: Optional[int] = None
        died: Optional[int] = -1
        largest: Optional[Block] = None
        sites: set[int] = set()
        modules: set[int] = set()
        count = size = 0
        for block in blocks:
            count += 1
            size += block.size_bytes
            parts[block.category] += block.size_bytes
            sites.add(block.site)
            modules.add(block.module)
            births["" if block.born < 0 else timeline.phase_of_event(block.born)] += block.size_bytes
            born = block.born if born is None or block.born < born else born
            died = None if died is None or block.died is None else max(died, block.died)
            if largest is None or block.size_bytes > largest.size_bytes:
                largest = block
        phase = max(births, key=births.__getitem__, default="")
        return Group(
            label=label,
            size_bytes=size,
            count=count,
            parts=tuple((timeline.categories[place], held) for place, held in sorted(parts.items())),
            phase=phase,
            born_us=None if born is None or born < 0 else timeline.time_us(born + 1),
            died_us=None if died is None or died < 0 else timeline.time_us(died + 1),
            site=() if largest is None else self.site(largest.site),
            sites=len(sites),
            module=self._module(next(iter(modules))) if len(modules) == 1 and -1 not in modules else "",
            depth=depth,
        )

    def rest(self) -> Group:
        size = self.timeline.rest_bytes
        return Group(REST, size, 0, (("unattributed", size),))

    # Modules with what is in them

    def tree(self, alive: list[Block]) -> tuple[Group, ...]:
        """Each module after the one it is in, the largest first; the parents' bytes include their children's."""
        within: defaultdict[tuple[str, ...], list[Block]] = defaultdict(list)
        outside: list[Block] = []
        paths: dict[int, tuple[str, ...]] = {}
        for block in alive:
            if block.module < 0:
                outside.append(block)
                continue
            path = paths.get(block.module)
            if path is None:
                name = clean(self.timeline.modules[block.module], 200)
                path = paths[block.module] = tuple(name.split(".")) if name else ()
            for length in range(len(path) + 1):
                within[path[:length]].append(block)
        made = {path: self.group(path[-1] if path else ROOT_MODULE, held, len(path)) for path, held in within.items()}
        children: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for path in made:
            if path:
                children[path[:-1]].append(path)

        def branch(path: tuple[str, ...]) -> list[Group]:
            below = sorted(children[path], key=lambda child: _largest_first(made[child]))
            return [made[path], *(group for child in below for group in branch(child))]

        tops = [branch(())] if made else []
        if outside:
            tops.append([self.group(NO_MODULE, outside)])
        if self.timeline.rest_bytes:
            tops.append([self.rest()])
        return tuple(group for top in sorted(tops, key=lambda top: _largest_first(top[0])) for group in top)


def short_site(lines: tuple[str, ...], most: int = 4) -> str:
    """A call site in one line: files without their folders, the innermost first, torch's own calls between left out."""
    shown = []
    for line in lines:
        where, _, function = line.partition(" ")
        if function in _CALLS:
            continue
        shown.append(f"{where.rpartition('/')[2]} {function}".rstrip())
        if len(shown) == most:
            break
    return " ← ".join(shown)
