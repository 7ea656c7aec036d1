"""A snapshot on one page of a terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

from memtui.analysis.text import clean
from memtui.analysis.units import UNKNOWN, moment, percent, size

from .instant import Instant, largest_free_bytes
from .model import PENDING
from .moments import instant_words, time_words
from .queries import Difference, Group, Opened, OutOfMemory, by_category, by_site
from .stacks import BEFORE, NO_STACK

_SHOWN = 10
_NOTICES_SHOWN = 5


def page(opened: Opened, number: int, width: int = 80) -> list[str]:
    """One device, and what was live at an instant; harmless lines, of at most `width` cells."""
    at = opened.at(number)
    where = "the peak" if number == opened.course.peak else instant_words(number, opened.course)
    lines = [f"snapshot {clean(os.path.basename(opened.snapshot.path), 60)}, {opened.device.name}", ""]
    lines += _figures(opened, at, where)
    lines += ["", f"live at {where}, by what the stacks tell", *_categories(at)]
    lines += ["", "by the line that allocated it", *_sites(by_site(at.live), at, width)]
    failed = opened.out_of_memory()
    if failed:
        lines += ["", "out of memory", *(line for each in failed[-_SHOWN:] for line in _failed(each))]
    lines += ["", *_notes(opened, at)]
    return _within(lines, width)


def difference_page(
    title: Sequence[str], before: Instant, after: Instant, found: list[Difference], width: int = 80
) -> list[str]:
    """What is live at one instant and not at another, by line; the largest changes."""
    lines = [
        *title,
        "",
        f"{'':<22}{'before':>14}{'after':>14}{'change':>14}",
        _change("allocated", before.allocated_bytes, after.allocated_bytes),
        _change("reserved", before.reserved_bytes, after.reserved_bytes),
        _change("live blocks", len(before.live), len(after.live), figures=True),
        "",
        f"{'change':>12} {'after':>12} {'blocks':>12}  by the line that allocated it",
    ]
    for each in found[: 2 * _SHOWN]:
        blocks = f"{each.before_blocks:,} to {each.after_blocks:,}"
        line = f"{_signed(each.change_bytes):>12} {size(each.after_bytes):>12} {blocks:>12}  "
        lines.append(line + clean(each.name, max(20, width - len(line))))
    if not found:
        lines.append("  nothing is different")
    if len(found) > 2 * _SHOWN:
        lines.append(f"  and {len(found) - 2 * _SHOWN:,} more: --json has them all")
    return _within(lines, width)


def _figures(opened: Opened, at: Instant, where: str) -> list[str]:
    device, course = opened.device, opened.course
    last = course.instants - 1
    columns = [last] if at.number == last else [at.number, last]
    heads = (
        ["at the end"] if at.number == last else [f"at {where}" if len(where) < 13 else "at that event", "at the end"]
    )
    lines = [f"{'':<22}" + "".join(f"{head:>16}" for head in heads)]
    for name, figures in (("allocated", course.allocated_bytes), ("reserved", course.reserved_bytes)):
        lines.append(f"{name:<22}" + "".join(f"{size(figures[number]):>16}" for number in columns))
    free = [largest_free_bytes(device, course, number) for number in columns]
    lines.append(f"{'largest free block':<22}" + "".join(f"{size(figure):>16}" for figure in free))
    pending = device.state_bytes(PENDING)
    if pending:
        lines.append(f"{'waiting for a stream':<22}" + f"{UNKNOWN:>16}" * (len(columns) - 1) + f"{size(pending):>16}")
    if last:
        span = course.time_us(last)
        over = "" if span is None else f" in {moment(span)}"
        lines.append(
            f"peak of allocated while recorded: {size(course.peak_bytes)} at {instant_words(course.peak, course)}"
        )
        lines.append(f"recorded: {last:,} events{over}; what was before is known by the end alone")
    return lines


def _categories(at: Instant) -> list[str]:
    lines = [_share(group.name, group.size_bytes, group.blocks, at) for group in by_category(at.live)]
    if at.rest_bytes:
        lines.append(f"  {'rounding and rest':<22}{size(at.rest_bytes):>14}")
    return lines or ["  nothing"]


def _share(name: str, size_bytes: int, blocks: int, at: Instant) -> str:
    return f"  {name:<22}{size(size_bytes):>14}{percent(size_bytes, at.allocated_bytes):>7}{_blocks(blocks):>16}"


def _blocks(count: int) -> str:
    return f"{count:,} block{'s' * (count != 1)}"


def _sites(groups: list[Group], at: Instant, width: int) -> list[str]:
    lines = []
    for group in groups[:_SHOWN]:
        share = percent(group.size_bytes, at.allocated_bytes)
        line = f"  {size(group.size_bytes):>11}{share:>6}{_blocks(group.blocks):>15}  "
        lines.append(line + clean(group.name, max(20, width - len(line))))
    rest = groups[_SHOWN:]
    if rest:
        total = sum(group.size_bytes for group in rest)
        lines.append(f"  {size(total):>11}{percent(total, at.allocated_bytes):>6}  from {len(rest):,} more lines")
    return lines or ["  nothing"]


def _failed(each: OutOfMemory) -> list[str]:
    return [
        f"  event {each.event:,}{time_words(each.time_us)}: {size(each.requested_bytes)} asked for, "
        f"{size(each.device_free_bytes)} free on the device",
        f"    {size(each.allocated_bytes)} allocated of {size(each.reserved_bytes)} reserved, largest free block "
        f"{size(each.largest_free_bytes)}",
        f"    {clean(each.stack.site, 70)}",
    ]


def _notes(opened: Opened, at: Instant) -> list[str]:
    notices = [*opened.snapshot.notices, *opened.notices]
    lines = [f"note: {clean(notice)}" for notice in notices[:_NOTICES_SHOWN]]
    if len(notices) > _NOTICES_SHOWN:
        lines.append(f"note: and {len(notices) - _NOTICES_SHOWN:,} more such: --json has them all")
    for device in opened.snapshot.devices:
        if device is not opened.device:
            lines.append(
                f"note: {device.name} has {size(device.allocated_bytes)} allocated of {size(device.reserved_bytes)} "
                f"reserved, {len(device.trace):,} events: --device {device.name}"
            )
    if any(each.stack.category == NO_STACK for each in at.live):
        lines.append(f"note: {NO_STACK}: allocated by backward's thread, or recorded without stacks; it cannot be told")
    if any(each.stack.category == BEFORE for each in at.live):
        lines.append("note: what was allocated before the recording, or dropped from it, has no stack")
    if len(opened.course.allocated_bytes) > 1:
        lines.append(
            "note: figures before the end are derived: events tell what was asked for, the end what the allocator gave"
        )
    return lines


def _change(name: str, before: int, after: int, *, figures: bool = False) -> str:
    if figures:
        return f"{name:<22}{before:>14,}{after:>14,}{after - before:>+14,}"
    return f"{name:<22}{size(before):>14}{size(after):>14}{_signed(after - before):>14}"


def _signed(size_bytes: int) -> str:
    return ("+" if size_bytes > 0 else "") + size(size_bytes)


def _within(lines: Sequence[str], width: int) -> list[str]:
    found: list[str] = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        fits = len(line) <= width
        found += (
            [line] if fits else textwrap.wrap(line, max(20, width), subsequent_indent=indent, break_on_hyphens=False)
        )
    while found and not found[-1]:
        found.pop()
    return found
