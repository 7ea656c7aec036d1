"""Every submodule of the discovered models, by the root's own words."""

from __future__ import annotations

from typing import Any


def submodules(roots: list[Any]) -> list[tuple[str, int, Any]]:
    """(name, place of the parent in this list or -1, module), parents before children, each module once.

    A root's own name is empty. Where several of them hold tensors each root has its class's name, and its children's
    names begin with it.
    """
    trees = [_tree(root) for root in roots]
    plain = sum(any(_holds(module) for _, _, module in tree) for tree in trees) <= 1
    kinds = [type(root).__name__ for root in roots]
    counts: dict[str, int] = {}
    found: list[tuple[str, int, Any]] = []
    places: dict[int, int] = {}
    for kind, tree in zip(kinds, trees):
        counts[kind] = counts.get(kind, 0) + 1
        title = "" if plain else f"{kind}#{counts[kind]}" if kinds.count(kind) > 1 else kind
        own: list[int] = []  # places in `found` of what is in the tree
        for name, parent, module in tree:
            if id(module) not in places:
                places[id(module)] = len(found)
                found.append((joined(title, name) if name else title, own[parent] if parent >= 0 else -1, module))
            own.append(places[id(module)])
    return found


def _tree(root: Any) -> list[tuple[str, int, Any]]:
    """As `submodules`, of one root."""
    found: list[tuple[str, int, Any]] = []
    seen: set[int] = set()
    waiting = [("", -1, root)]
    while waiting:
        name, parent, module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        place = len(found)
        found.append((name, parent, module))
        children = module.__dict__.get("_modules")
        if children:
            waiting += [(joined(name, key), place, child) for key, child in reversed(list(children.items()))]
    return found


def _holds(module: Any) -> bool:
    held = module.__dict__
    tables = (held.get("_parameters") or {}, held.get("_buffers") or {})
    return any(tensor is not None for table in tables for tensor in table.values())


def joined(name: str, key: str) -> str:
    """What the child or tensor `key` of the module `name` is called."""
    return f"{name}.{key}" if name else key
