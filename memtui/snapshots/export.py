"""A snapshot for other programs: JSON, CSV, folded stacks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from .instant import Instant, largest_free_bytes
from .model import FREE, LIVE, PENDING, Device, Segment
from .queries import Difference, Group, Opened, OutOfMemory, by_category, by_site, folded

_LARGEST_BLOCKS = 100
_LINES_AT_ONCE = 10_000


def as_json(opened: Opened, at: Instant) -> dict[str, Any]:
    """One device at an instant: figures in bytes, times in microseconds since the first event, unknown ones null."""
    device, course = opened.device, opened.course
    return {
        "file": opened.snapshot.path,
        "devices": [_device(each) for each in opened.snapshot.devices],
        "device": device.name,
        "events": course.instants - 1,
        "recorded_us": course.time_us(course.instants - 1),
        "peak": {
            "event": course.peak,
            "time_us": course.time_us(course.peak),
            "allocated_bytes": course.peak_bytes,
            "reserved_bytes": max(course.reserved_bytes),
            "measured": False,
        },
        "instant": _instant(opened, at),
        "out_of_memory": [_out_of_memory(each) for each in opened.out_of_memory()],
        "segments": [_segment(segment) for segment in device.segments],
        "allocator_settings": _flat(opened.snapshot.settings),
        "notices": [*opened.snapshot.notices, *opened.notices],
    }


def difference_json(before: Instant, after: Instant, found: list[Difference]) -> dict[str, Any]:
    """What is different, by whole stack as `name`."""
    totals = {
        name: {"allocated_bytes": each.allocated_bytes, "reserved_bytes": each.reserved_bytes, "event": each.number}
        for name, each in (("before", before), ("after", after))
    }
    return {**totals, "changes": [{**each._asdict(), "change_bytes": each.change_bytes} for each in found]}


def json_text(value: dict[str, Any]) -> str:
    """In one line."""
    return json.dumps(value, ensure_ascii=False)


def csv_texts(opened: Opened) -> Iterator[str]:
    """The timeline, some lines at a time; event 0 is before the first, and a time that is not known is empty."""
    course = opened.course
    yield "event,time_us,allocated_bytes,reserved_bytes\n"
    for begin in range(0, course.instants, _LINES_AT_ONCE):
        numbers = range(begin, min(begin + _LINES_AT_ONCE, course.instants))
        yield "".join(
            f"{number},{_or_empty(course.time_us(number))},{course.allocated_bytes[number]},"
            f"{course.reserved_bytes[number]}\n"
            for number in numbers
        )


def folded_text(at: Instant) -> str:
    """A line for each stack with its bytes, as flame graph tools read them."""
    return "".join(f"{stack} {size_bytes}\n" for stack, size_bytes in folded(at))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Texts, numbers and dicts of them: all that torch's settings are, and no deeper than can be written."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found[str(name)] = {str(key): each for key, each in value.items() if isinstance(each, (str, int))}
        elif isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
            found[str(name)] = value
    return found


def _or_empty(value: Optional[int]) -> str:
    return "" if value is None else str(value)


def _device(device: Device) -> dict[str, Any]:
    return {
        "device": device.name,
        "reserved_bytes": device.reserved_bytes,
        "allocated_bytes": device.allocated_bytes,
        "requested_bytes": device.requested_bytes,
        "pending_free_bytes": device.state_bytes(PENDING),
        "inactive_bytes": device.state_bytes(FREE),
        "largest_free_bytes": device.largest_free_bytes,
        "segments": len(device.segments),
        "blocks": sum(1 for _ in device.blocks()),
        "events": len(device.trace),
    }


def _instant(opened: Opened, at: Instant) -> dict[str, Any]:
    return {
        "event": at.number,
        "time_us": opened.course.time_us(at.number),
        "allocated_bytes": at.allocated_bytes,
        "reserved_bytes": at.reserved_bytes,
        "largest_free_bytes": largest_free_bytes(opened.device, opened.course, at.number),
        "rest_bytes": at.rest_bytes,
        "live_blocks": len(at.live),
        "categories": [_group(group) for group in by_category(at.live)],
        "sites": [_group(group) for group in by_site(at.live)],
        "largest": [
            {
                "address": each.address,
                "size_bytes": each.size_bytes,
                "event": each.event,
                "category": each.stack.category,
                "site": each.stack.site,
                "stack": each.stack.folded.split(";"),
            }
            for each in at.live[:_LARGEST_BLOCKS]
        ],
    }


def _group(group: Group) -> dict[str, Any]:
    return {"name": group.name, "size_bytes": group.size_bytes, "blocks": group.blocks}


def _out_of_memory(each: OutOfMemory) -> dict[str, Any]:
    return {
        "event": each.event,
        "time_us": each.time_us,
        "requested_bytes": each.requested_bytes,
        "device_free_bytes": each.device_free_bytes,
        "allocated_bytes": each.allocated_bytes,
        "reserved_bytes": each.reserved_bytes,
        "largest_free_bytes": each.largest_free_bytes,
        "site": each.stack.site,
        "stack": each.stack.folded.split(";"),
    }


def _segment(segment: Segment) -> dict[str, Any]:
    states = {LIVE: "live", PENDING: "pending_free", FREE: "free"}
    return {
        "address": segment.address,
        "size_bytes": segment.size_bytes,
        "stream": segment.stream,
        "kind": segment.kind or None,
        "pool_id": list(segment.pool_id),
        "expandable": segment.expandable,
        "blocks": [
            {"address": block.address, "size_bytes": block.size_bytes, "state": states[block.state]}
            for block in segment.blocks
        ],
    }
