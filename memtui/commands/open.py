"""`memtui open`: a log, replayed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from memtui.cli import CommandError
from memtui.session.session import Session
from memtui.sources.log_format import LogError
from memtui.sources.log_reader import LogReader
from memtui.sources.replay import Replay

from .ownline import writable
from .screen import check_terminal, show, wants_app


def open_log(options: argparse.Namespace) -> int:
    """Shows a log in the app, or a line for each second of it."""
    try:
        replay = Replay(options.file)
        if wants_app(options):
            check_terminal()
            show(replay, options)
            return 0
        return _print(options)
    except LogError as error:
        raise CommandError(str(error)) from None


def _print(options: argparse.Namespace) -> int:
    from memtui.analysis.build import build_view
    from memtui.analysis.headline import farewell, headline
    from memtui.analysis.oom.story import Stories, short_lines

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
        whole = build_view(reader.whole, options.device or reader.whole.default_device(), reader.end_ns)
        if whole.state == "ended":
            say(farewell(whole))
    reader.close()
    print(end="", flush=True)
    return 0


def _moments(reader: LogReader) -> Iterator[tuple[Session, int]]:
    """Each second's end, or the end of a log of less than one."""
    moment = None
    for moment in reader.each_second():
        yield moment
    if moment is None:
        yield reader.whole, reader.end_ns
