"""The category bar: a device's memory by owner, adding up exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Optional

from memtui.session.session import Session
from memtui.wire.frames import CATEGORIES, BlockSummary

from . import units
from .ladder import Ladder
from .policy import Policy
from .text import place_words
from .view import Band, Bar, Figure, Kind

#: Letters are unlike each other in 16 colours, in none, and to colour-blind eyes.
_LETTERS = {
    "parameters": ("P", "parameters"),
    "buffers": ("B", "buffers"),
    "gradients": ("G", "gradients"),
    "optimizer_state": ("O", "optimizer state"),
    "activations": ("a", "activations"),
    "temporaries": ("t", "temporaries"),
    "inputs": ("i", "inputs"),
    "workspaces": ("w", "workspaces"),
    "communication": ("c", "communication"),
    "private_pools": ("h", "held by graphs"),
    "unattributed": ("?", "unattributed"),
    "allocated": ("A", "allocated"),
    "reserved": ("R", "reserved"),
    "active_pending_free": ("f", "pending free"),
    "reusable_cache": ("k", "cache"),
    "inactive_split": ("#", "pinned"),
    "private_pool_idle": ("g", "graph pools"),
    "non_torch": ("N", "non-torch"),
    "process": ("M", "this process"),
    "other_processes": ("x", "others"),
    "driver_reserved": ("d", "driver"),
    "device_unattributed": ("u", "unknown owner"),
    "device_free": (".", "free"),
}
#: Left out while they are nothing: most programs never have any.
_RARE = frozenset(
    (
        "buffers",
        "inputs",
        "workspaces",
        "communication",
        "private_pools",
        "active_pending_free",
        "private_pool_idle",
        "driver_reserved",
        "device_unattributed",
    )
)


def build_bar(session: Session, device: str, ladder: Ladder, policy: Policy) -> Bar:
    """The bar of the widest whole that is known: the device, else what the allocator has reserved, else the process."""
    return _bar(ladder, _reserved_bands(session, device, ladder), lambda: _note(session, device, ladder, policy))


def bar_of(ladder: Ladder, categories: Optional[Mapping[str, int]], split_bytes: Optional[int]) -> Bar:
    """The same from figures of one instant without a session: `categories` is None where nothing was classified."""
    inside: list[Band] = []
    if ladder.reserved_bytes is not None and ladder.allocated_bytes is not None:
        inside = _inside_bands(ladder, categories, None, split_bytes, None)
    elif ladder.reserved_bytes is not None:
        inside = [band("reserved", ladder.reserved_bytes)]
    return _bar(ladder, inside, str)


def _bar(ladder: Ladder, inside: list[Band], note: Callable[[], str]) -> Bar:
    if ladder.total_bytes is not None and ladder.free_bytes is not None:
        bands = [*inside, *_outside_bands(ladder)]
        label, total = ("host" if ladder.is_host else "device"), ladder.total_bytes
    elif ladder.reserved_bytes is not None:
        bands, label, total = inside, "reserved", ladder.reserved_bytes
    elif ladder.process_bytes is not None:
        bands = [band("process", ladder.process_bytes)]
        label, total = "process", ladder.process_bytes
    else:
        return Bar(
            "device", Figure(ladder.total_bytes, "measured" if ladder.total_bytes is not None else "unknown"), ()
        )
    shown = tuple(each for each in bands if each.figure.value or each.key not in _RARE)
    return Bar(label, Figure(total, "measured", source=ladder.source), shown, note())


def band(key: str, value: int, kind: Kind = "measured", age_ns: Optional[int] = None) -> Band:
    """A band with its letter and label."""
    letter, label = _LETTERS.get(key) or (key[:1], key.replace("_", " "))
    return Band(key, letter, label, Figure(value, kind, age_ns=age_ns))


def _reserved_bands(session: Session, device: str, ladder: Ladder) -> list[Band]:
    """What the allocator holds; adds up to `reserved_bytes`."""
    if ladder.reserved_bytes is None:
        return []
    if ladder.allocated_bytes is None:
        return [band("reserved", ladder.reserved_bytes)]
    frame = session.device_frame(device)
    found = session.classification(device)
    categories, age = None, None
    if found is not None and frame is not None:
        categories = found[0].categories
        age = None if session.frame is None else session.frame.time_ns - found[1]
    blocks = session.blocks(device)
    split = None if frame is None else frame.inactive_split_bytes
    return _inside_bands(ladder, categories, age, split, None if blocks is None else blocks[0])


def _inside_bands(
    ladder: Ladder,
    categories: Optional[Mapping[str, int]],
    age_ns: Optional[int],
    split: Optional[int],
    blocks: Optional[BlockSummary],
) -> list[Band]:
    assert ladder.allocated_bytes is not None
    if categories is None:
        bands = [band("allocated", ladder.allocated_bytes)]
    else:
        figures = dict(categories)
        # What came and went since is nobody's yet; negative where memory was freed.
        figures["unattributed"] = figures.get("unattributed", 0) + ladder.allocated_bytes - sum(categories.values())
        # A category that is not named holds nothing: its place is kept, or the legend would move with every phase.
        order = [*CATEGORIES, *(key for key in figures if key not in CATEGORIES)]
        bands = [
            band(key, figures.get(key, 0), "derived" if key == "unattributed" else "measured", age_ns) for key in order
        ]
    return bands + _cache_bands(ladder, split, blocks)


def _cache_bands(ladder: Ladder, split: Optional[int], blocks: Optional[BlockSummary]) -> list[Band]:
    """What is reserved and not allocated, by why it is free.

    The counters tell it at the frame's own instant, so they come first. They do not know idle graph pools, and read 0
    for holes in expandable segments: there the blocks tell, as of when they were read. Where those no longer fit into
    what is free now, only their sum is known.
    """
    assert ladder.reserved_bytes is not None
    assert ladder.allocated_bytes is not None
    pending = ladder.active_pending_free_bytes or 0
    free = ladder.reserved_bytes - ladder.allocated_bytes - pending
    bands = [band("active_pending_free", pending)]
    pool, age = 0, None
    if blocks is not None and (blocks.private_pool_idle_bytes or (not split and blocks.inactive_split_bytes)):
        split, pool, age = blocks.inactive_split_bytes, blocks.private_pool_idle_bytes, blocks.age_ns
    if split is None or split + pool > free:
        return [*bands, band("reusable_cache", free)]
    return [
        *bands,
        band("reusable_cache", free - split - pool, "derived"),
        band("inactive_split", split, age_ns=age),
        band("private_pool_idle", pool, age_ns=age),
    ]


def _outside_bands(ladder: Ladder) -> list[Band]:
    age = ladder.driver_age_ns
    bands = []
    if ladder.non_torch_bytes is not None:
        bands.append(band("non_torch", ladder.non_torch_bytes, "derived", age))
    elif ladder.process_bytes is not None and ladder.reserved_bytes is None:
        bands.append(band("process", ladder.process_bytes, "measured", age))
    if ladder.other_process_bytes is not None:
        bands.append(band("other_processes", ladder.other_process_bytes, "measured", age))
    if ladder.unattributed_bytes is not None:
        bands.append(band("device_unattributed", ladder.unattributed_bytes, "derived", age))
    if ladder.driver_reserved_bytes is not None:
        bands.append(band("driver_reserved", ladder.driver_reserved_bytes, "measured", age))
    assert ladder.free_bytes is not None
    return [*bands, band("device_free", ladder.free_bytes, "derived" if ladder.moved_bytes else "measured", age)]


def _note(session: Session, device: str, ladder: Ladder, policy: Policy) -> str:
    parts = []
    found = session.classification(device)
    if found is not None and session.frame is not None:
        age = session.frame.time_ns - found[1]
        if age > policy.old_classification_ns:
            parts.append(f"categories {units.duration(age)} old ({place_words(found[0].phase, found[0].step)})")
    if ladder.driver_age_ns is not None and abs(ladder.driver_age_ns) > policy.stale_driver_ns:
        parts.append(f"driver's figures {units.duration(abs(ladder.driver_age_ns))} old")
    return " · ".join(parts)
