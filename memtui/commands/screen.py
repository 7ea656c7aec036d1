"""The app on this terminal, or why it cannot be there."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

from memtui.cli import CommandError

if TYPE_CHECKING:
    from memtui.tui.feed import Feed

#: In a terminal no larger than this nothing can be read.
_TOO_SMALL = (40, 10)


def wants_app(options: argparse.Namespace) -> bool:
    """Whether the app is to be shown: there is a terminal for it, and nothing asked for lines."""
    if options.headless or options.frames is not None or options.quiet:
        return False
    if os.environ.get("TERM", "") in {"", "dumb"}:
        return False
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def check_terminal() -> None:
    """Raises CommandError where the terminal is too small."""
    size = shutil.get_terminal_size()
    if size.columns <= _TOO_SMALL[0] or size.lines <= _TOO_SMALL[1]:
        shape = f"{size.columns}x{size.lines}"
        raise CommandError(f"the terminal is too small ({shape}): make it larger (80x24 is enough) or use --headless")


def show(feed: Feed, options: argparse.Namespace) -> str:
    """Shows the app until it is left: "detach", "stop" or "ended"; raises CommandError."""
    from memtui.tui.app import run_app

    try:
        return run_app(feed, theme=options.theme, device=options.device, rate_hz=options.rate).kind
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    finally:
        trouble = getattr(feed, "log_trouble", "")  # of a live one
        if trouble:
            print(f"memtui: {trouble}", file=sys.stderr)
