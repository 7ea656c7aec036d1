"""What is live as a tree of calls, from the outermost: a flame view's boxes."""

from __future__ import annotations

from dataclasses import dataclass

from .instant import Instant
from .stacks import Frame, Stack


@dataclass(frozen=True, eq=False)
class Flame:
    """A box: calls, outermost first, that all of its bytes share, and what they lead to, the largest first.

    `category` is that of most of its bytes. Of the outermost box `calls` is empty.
    """

    calls: tuple[Frame, ...]
    size_bytes: int
    blocks: int
    category: str
    inside: tuple[Flame, ...]

    @property
    def label(self) -> str:
        """The innermost of the nearest calls: the program's own before a library's before torch's."""
        return min(reversed(self.calls), key=lambda call: call.near).text if self.calls else "all"


class _Node:
    """A call while the tree grows."""

    __slots__ = ("blocks", "call", "categories", "inside", "size_bytes")

    def __init__(self, call: Frame) -> None:
        self.call = call
        self.size_bytes = self.blocks = 0
        self.inside: dict[Frame, _Node] = {}
        self.categories: dict[str, int] = {}

    def add(self, size_bytes: int, blocks: int, category: str) -> None:
        self.size_bytes += size_bytes
        self.blocks += blocks
        self.categories[category] = self.categories.get(category, 0) + size_bytes


def flame(at: Instant) -> Flame:
    """The tree of an instant; what has no stack is a box of its own, and a rest is in none."""
    root = _Node(Frame("all", 0, ""))
    for stack, size_bytes, blocks in _by_stack(at):
        node = root
        node.add(size_bytes, blocks, stack.category)
        for call in reversed(stack.frames or (Frame(stack.site, 0, ""),)):
            node = node.inside.setdefault(call, _Node(call))
            node.add(size_bytes, blocks, stack.category)
    return _made(root)


def _by_stack(at: Instant) -> list[tuple[Stack, int, int]]:
    # A stack is made once, so that its identity tells it; comparing long ones takes longer.
    found: dict[int, tuple[Stack, int, int]] = {}
    for each in at.live:
        _, size_bytes, blocks = found.get(id(each.stack), (each.stack, 0, 0))
        found[id(each.stack)] = (each.stack, size_bytes + each.size_bytes, blocks + 1)
    return list(found.values())


def _made(root: _Node) -> Flame:
    """Boxes of a grown tree, without recursion: a stack may be as deep as Python allows."""
    outward = [root]
    for node in outward:
        outward.extend(node.inside.values())
    made: dict[int, Flame] = {}
    for node in reversed(outward):
        inside = sorted((made.pop(id(each)) for each in node.inside.values()), key=lambda box: -box.size_bytes)
        calls = () if node is root else (node.call,)
        if node is not root and len(inside) == 1 and inside[0].blocks == node.blocks:
            calls, inside = (*calls, *inside[0].calls), list(inside[0].inside)
        category = max(node.categories, key=lambda name: node.categories[name], default="")
        made[id(node)] = Flame(calls, node.size_bytes, node.blocks, category, tuple(inside))
    return made[id(root)]
