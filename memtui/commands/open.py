"""`memtui open`: a log, replayed; or a memory snapshot of torch's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from memtui.cli import CommandError
from memtui.snapshots.reading import looks_like_snapshot

from .ownline import writable

if TYPE_CHECKING:
    from memtui.session.readings import ShapeForecast
    from memtui.session.session import Session
    from memtui.sources.log_ranks import RankLog
    from memtui.sources.log_reader import LogReader

#: How snapshots are called; a file of such a name that is none is told what is wrong with it as one.
_SNAPSHOT_NAMES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")
_SNAPSHOT_OPTIONS = ("at", "csv", "diff", "html", "json", "overwrite", "stacks")


def open_file(options: argparse.Namespace) -> int:
    """Shows what a file holds, told by how it begins."""
    if looks_like_snapshot(options.file) or options.file.endswith(_SNAPSHOT_NAMES):
        from .snapshot import open_snapshot_file

        return open_snapshot_file(options)
    for name in _SNAPSHOT_OPTIONS:
        if getattr(options, name):
            raise CommandError(f"--{name} is for memory snapshots, and {options.file} is none", 2)
    return _open_log(options)


def _open_log(options: argparse.Namespace) -> int:
    """Shows a log in the app, or a line for each second of it."""
    from memtui.sources.log_format import LogError
    from memtui.sources.log_ranks import rank_logs
    from memtui.sources.log_reader import open_log
    from memtui.sources.replay import Replay

    from .screen import check_terminal, show, wants_app

    try:
        open_log(options.file).close()
        ranks = rank_logs(options.file)
        if len(ranks) > 1:
            return _open_ranks(ranks, options)
        replay = Replay(options.file, lambda session: _foretold(session, options))
        if wants_app(options):
            check_terminal()
            show(replay, options)
            return 0
        return _print(options)
    except LogError as error:
        raise CommandError(str(error)) from None


def _open_ranks(logs: list[RankLog], options: argparse.Namespace) -> int:
    """The logs of several ranks side by side."""
    from memtui.sources.ranks_replay import RanksReplay

    from .screen import check_terminal, show, wants_app

    if wants_app(options):
        check_terminal()
        show(RanksReplay(logs, lambda session: _foretold(session, options)), options)
        return 0
    from .open_ranks import print_ranks

    return print_ranks(logs, options)


def _print(options: argparse.Namespace) -> int:
    from memtui.analysis.build import build_view
    from memtui.analysis.headline import farewell, headline
    from memtui.analysis.oom.story import Stories, short_lines
    from memtui.analysis.shapes.outlook import shape_lines
    from memtui.sources.log_reader import LogReader

    reader = LogReader(options.file)
    if reader.trouble:
        print(f"memtui: {reader.trouble}", file=sys.stderr)
    used = {device.device for device in reader.whole.devices}
    if options.device is not None and options.device not in used:
        raise CommandError(f"{options.device} is not in this log: --device {' or '.join(sorted(used))}")

    def say(line: str) -> None:
        if not options.quiet:
            print(writable(sys.stdout, line))

    for printed, (session, time_ns) in enumerate(_moments(reader)):
        if options.frames is not None and printed >= options.frames:
            break
        names = {device.device for device in session.devices}
        device = options.device if options.device in names else session.default_device()
        say(headline(build_view(session, device, time_ns), (time_ns + reader.wall_offset_ns) / 1e9))
    else:
        for story in Stories().update(reader.whole, reader.session_at):
            for line in short_lines(story):
                say(line)
        for forecast in _foretold(reader.whole, options):
            reader.whole.apply_shape(forecast)
        device = options.device or reader.whole.default_device()
        for line in (*shape_lines(reader.whole.shapes(device)), *_segment_lines(reader, device, options.fits)):
            say(line)
        whole = build_view(reader.whole, device, reader.end_ns)
        if whole.state == "ended":
            say(farewell(whole))
    reader.close()
    print(end="", flush=True)
    return 0


def _segment_lines(reader: LogReader, device: str, asked_bytes: Optional[int]) -> tuple[str, ...]:
    """What the last segments in a log come to; raises CommandError where there are none and something is asked."""
    from memtui.analysis.segments.summary import Space, limits_of
    from memtui.analysis.segments.words import space_lines

    told = reader.whole.segments(device)
    if told is None or told.notice:
        if asked_bytes is None:
            return ()
        reason = "they are in a log from when somebody looked at the app's tab 6" if told is None else told.notice
        raise CommandError(f"this log holds no segments of {device}: {reason}")
    try:
        return space_lines(Space(told, limits_of(reader.whole, device, told.time_ns)), asked_bytes)
    except ValueError as error:
        raise CommandError(f"the segments in this log make no sense: {error}") from None


def _foretold(session: Session, options: argparse.Namespace) -> list[ShapeForecast]:
    """What --max-shape asks for, from the recorded steps of a whole log."""
    if options.max_shape is None:
        return []
    from memtui.analysis.shapes.outlook import outlook_now, unforeseen

    found: list[ShapeForecast] = []
    for device in (each.device for each in session.devices):
        highest = session.steps.highest(device)
        highest_bytes = None if highest is None else highest.bytes_held
        found += outlook_now(session.recorded(device), options.max_shape, highest_bytes=highest_bytes)
    device, frame = session.default_device(), session.frame
    if frame is not None and not session.recorded(device):
        found.append(unforeseen(device, options.max_shape, frame.time_ns))
    return found


def _moments(reader: LogReader) -> Iterator[tuple[Session, int]]:
    """Each second's end, or the end of a log of less than one."""
    moment = None
    for moment in reader.each_second():
        yield moment
    if moment is None:
        yield reader.whole, reader.end_ns
