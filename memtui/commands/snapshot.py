"""`memtui open` of a memory snapshot: the screen, a page, or what other programs read."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Optional

from memtui.cli import CommandError
from memtui.snapshots.answers import Mark
from memtui.snapshots.errors import SnapshotError
from memtui.snapshots.instant import Instant
from memtui.snapshots.model import open_snapshot
from memtui.snapshots.moments import instant_number, instant_words, looks_like_instant
from memtui.snapshots.queries import Opened

from .ownline import writable
from .screen import check_terminal, wants_app

#: What a terminal that does not say is taken for, and what a table needs at most.
_WIDTH, _WIDEST = 80, 120


def open_snapshot_file(options: argparse.Namespace) -> int:
    """Prints or writes what was asked for; raises CommandError."""
    try:
        if options.html:
            return _html(options)
        if not (options.json or options.csv or options.stacks) and wants_app(options):
            return _show(options)
        return _printed(options)
    except SnapshotError as error:
        raise CommandError(str(error)) from None


def _printed(options: argparse.Namespace) -> int:
    opened = _opened(options.file, options.device)
    if options.diff is not None:
        return _difference(opened, options)
    number = instant_number(options.at or "peak", opened.course)
    if options.csv:
        return _csv(opened)
    if options.stacks:
        return _stacks(opened.at(number), options)
    if options.json:
        from memtui.snapshots.export import as_json, json_text

        return _say([json_text(as_json(opened, opened.at(number)))])
    from memtui.snapshots.page import page

    return _say(page(opened, number, _width()))


def _show(options: argparse.Namespace) -> int:
    """On the screen; what is read is read there."""
    from memtui.tui.screens.snapshot import Start
    from memtui.tui.snapshot_app import run_snapshot_app

    def start() -> Start:
        opened = _opened(options.file, options.device)
        number = instant_number(options.at or ("end" if options.diff else "peak"), opened.course)
        if options.diff is None:
            return Start(opened, number)
        other, before = _compared(opened, options)
        return Start(opened, number, Mark(other, before, _words(other, before, opened)))

    check_terminal()
    try:
        run_snapshot_app(_name(options.file), start, options.theme)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    return 0


def _words(other: Opened, number: int, opened: Opened) -> str:
    words = instant_words(number, other.course)
    return words if other is opened else f"{words} of {_name(other.snapshot.path)}"


def _compared(opened: Opened, options: argparse.Namespace) -> tuple[Opened, int]:
    """What --diff names: another snapshot's end, or an instant of this one."""
    if os.path.exists(options.diff) or not looks_like_instant(options.diff):
        other = _opened(options.diff, opened.device.name)
        return other, other.course.instants - 1
    return opened, instant_number(options.diff, opened.course)


def _opened(path: str, device: Optional[str]) -> Opened:
    snapshot = open_snapshot(path, available_bytes())
    return Opened(snapshot, snapshot.device(device))


def available_bytes() -> int:
    """The memory that a snapshot may take: what the machine has left, and this process's control group."""
    import psutil

    from memtui.sources.cgroup import memory_limit

    memory = psutil.virtual_memory()
    limit = memory_limit(os.getpid(), memory.total)
    return int(memory.available if limit is None else min(memory.available, limit.room_bytes))


def _difference(opened: Opened, options: argparse.Namespace) -> int:
    from memtui.snapshots.export import difference_json, json_text
    from memtui.snapshots.page import difference_page
    from memtui.snapshots.queries import difference

    if options.csv or options.stacks:
        raise CommandError("--diff is printed as a table or with --json", 2)
    other, number = _compared(opened, options)
    after = opened.at(instant_number(options.at or "end", opened.course))
    before = other.at(number)
    found = difference(before, after, whole_stacks=options.json)
    if options.json:
        return _say([json_text(difference_json(before, after, found))])
    title = [
        f"{word} {_name(each.snapshot.path)}, {each.device.name}, {instant_words(at.number, each.course)}"
        for word, each, at in (("from", other, before), ("to  ", opened, after))
    ]
    return _say(difference_page(title, before, after, found, _width()))


def _csv(opened: Opened) -> int:
    from memtui.snapshots.export import csv_texts

    for text in csv_texts(opened):
        sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _stacks(at: Instant, options: argparse.Namespace) -> int:
    from memtui.snapshots.export import folded_text

    _check_place(options.stacks, options)
    try:
        with open(options.stacks, "w", encoding="utf-8") as file:
            file.write(folded_text(at))
    except OSError as error:
        raise CommandError(f"cannot write {options.stacks}: {error.strerror}") from None
    return 0


def _html(options: argparse.Namespace) -> int:
    from .snapshot_html import write_html

    if options.at or options.diff:
        raise CommandError("--html is of the whole snapshot: leave out --at and --diff", 2)
    _check_place(options.html, options)
    write_html(options.file, options.html, available_bytes())
    return _say([f"{options.html} is written; a browser loads torch's viewer for it from cdn.jsdelivr.net"])


def _check_place(out: str, options: argparse.Namespace) -> None:
    """Raises CommandError where something would be written in the place of a file that is to stay."""
    snapshot: str = options.file
    if os.path.exists(out) and os.path.exists(snapshot) and os.path.samefile(snapshot, out):
        raise CommandError(f"{out} is the snapshot itself: name another file to write")
    # Standard output is where the shell has put it.
    if os.path.isfile(out) and not options.overwrite and not out.startswith(("/dev/", "/proc/")):
        raise CommandError(f"{out} is there already: name another file, or say --overwrite")


def _name(path: str) -> str:
    from memtui.analysis.text import clean

    return clean(os.path.basename(path), 60)


def _width() -> int:
    return min(shutil.get_terminal_size((_WIDTH, 24)).columns or _WIDTH, _WIDEST)


def _say(lines: Iterable[str]) -> int:
    for line in lines:
        print(writable(sys.stdout, line))
    sys.stdout.flush()
    return 0
