"""`memtui open`: a log, replayed."""

from __future__ import annotations

import argparse
import sys

from memtui.cli import CommandError
from memtui.sources.log_format import LogError
from memtui.sources.replay import Replay

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
    from memtui.sources.log_reader import LogReader

    reader = LogReader(options.file)
    if reader.trouble:
        print(f"memtui: {reader.trouble}", file=sys.stderr)
    offset_ns = reader.whole.hello.wall_offset_ns if reader.whole.hello is not None else 0
    for printed, (session, time_ns) in enumerate(reader.each_second()):
        if options.frames is not None and printed >= options.frames:
            break
        names = {device.device for device in session.devices}
        device = options.device if options.device in names else session.default_device()
        view = build_view(session, device, time_ns)
        if not options.quiet:
            print(headline(view, (time_ns + offset_ns) / 1e9))
    else:
        whole = build_view(reader.whole, options.device or reader.whole.default_device(), reader.end_ns)
        if whole.state == "ended" and not options.quiet:
            print(farewell(whole))
    reader.close()
    sys.stdout.flush()
    return 0
