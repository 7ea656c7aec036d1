"""`memtui watch`: the ranks that a Prometheus server knows of, in the app or a line for each look."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time

from memtui.cli import CommandError
from memtui.prometheus.address import parse_address
from memtui.prometheus.client import Client, Trust
from memtui.prometheus.errors import PrometheusError
from memtui.prometheus.feed import FleetFeed
from memtui.prometheus.lines import FleetLines

from .ownline import OwnLines


def watch(options: argparse.Namespace) -> int:
    """Shows what there is; raises CommandError where the server cannot be asked, or knows of no ranks."""
    from .screen import check_terminal, show, wants_app

    try:
        address = parse_address(options.prometheus, options.user, options.password_file or "")
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    app = wants_app(options)
    if app:
        check_terminal()
    try:
        client = Client(address, Trust(options.ca or ""))
        feed = FleetFeed(client, options.query, since_s=options.since, at_s=options.at)
        feed.first()
    except PrometheusError as error:
        raise CommandError(str(error)) from None
    if app:
        show(feed, options)
        return 0
    return asyncio.run(_print(feed, options))


async def _print(feed: FleetFeed, options: argparse.Namespace) -> int:
    """A line for each look, until so many are out or it is interrupted; of an instant of the past, one."""
    lines = OwnLines(None if options.quiet else sys.stdout)
    said = FleetLines(feed)
    changed, stopped = asyncio.Event(), asyncio.Event()
    feed.on_change = changed.set
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(number, stopped.set)
    wanted = 1 if feed.replay and options.frames is None else options.frames
    printed = 0
    started = False
    try:
        while wanted is None or printed < wanted:
            for line in said.news(time.time()):
                lines.say(line)
            printed += 1
            if printed == wanted:
                break
            if not started:
                await feed.start()
                started = True
            ends = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(stopped.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in ends:
                task.cancel()
            if stopped.is_set():
                return 130
            changed.clear()
    finally:
        await feed.stop()
    return 0
