"""The options of `memtui watch`, loaded when that command is asked for."""

from __future__ import annotations

import argparse
import re
import time

from memtui.cli import a_file, watching
from memtui.prometheus.selector import Selector, parse_selector

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST_S = 366 * 86_400
_FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_CLOCKS = ("%H:%M:%S", "%H:%M")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The server, who asks, which ranks, and when."""
    parser.description = (
        "Shows the ranks of all hosts whose memtui serve a Prometheus server scrapes, the worst of them first, and any "
        "of them in full: now, refreshed with every scrape, or at an instant of the past. It only queries the server. "
        "What Prometheus does not hold (tensors, segments, recorded steps) is had on the rank's host, by memtui attach."
    )
    parser.add_argument(
        "--prometheus", metavar="URL", required=True, help="the server: http://HOST:9090, or https://HOST/PATH"
    )
    parser.add_argument(
        "--query",
        type=selector,
        default=Selector(),
        metavar="SELECTOR",
        help='these ranks only, by labels: run="gpt-7b",instance=~"node1.*"',
    )
    parser.add_argument(
        "--at",
        type=instant,
        metavar="TIME",
        help="as it was then: 14:30, 2026-12-01 14:30, a Unix time, or 2h (ago); arrows move on from there",
    )
    parser.add_argument(
        "--since", type=length, default=3_600.0, metavar="LENGTH", help="how far back to go: 30m, 6h, 2d; usually 1h"
    )
    access = parser.add_argument_group("access")
    access.add_argument(
        "--user",
        default="",
        metavar="NAME",
        help="for basic authentication; the password is read from where it is not "
        "seen: --password-file, or MEMTUI_PROMETHEUS_PASSWORD",
    )
    access.add_argument(
        "--password-file",
        type=a_file,
        metavar="FILE",
        help="a file only you may read: the password, or USER:PASSWORD",
    )
    access.add_argument("--ca", type=a_file, metavar="FILE", help="certificates to check an https server by")
    watching(parser, log=False)


def selector(text: str) -> Selector:
    """Label matchers."""
    try:
        return parse_selector(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def length(text: str) -> float:
    """Seconds of "30m"."""
    match = _LENGTH.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 10 <= seconds <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no length of time: write 30m, 6h or 2d")
    return seconds


def instant(text: str) -> float:
    """A Unix time of the past, from a date, a time of this day, or how long ago it was."""
    plain = text.strip()
    now = time.time()
    found = _parsed(plain, now)
    if found is None:
        raise argparse.ArgumentTypeError(f'{text!r:.40} is no time: write 14:30, "2026-12-01 14:30" or 2h (ago)')
    if found > now + 1:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is still to come")
    return found


def _parsed(plain: str, now: float) -> float | None:
    if _LENGTH.fullmatch(plain.lower()):
        return now - length(plain)
    if re.fullmatch(r"\d{9,11}(\.\d+)?", plain):
        return float(plain)
    for form in _FORMS:
        try:
            return time.mktime(time.strptime(plain, form))
        except (ValueError, OverflowError):
            continue
    for form in _CLOCKS:
        try:
            clock = time.strptime(plain, form)
        except ValueError:
            continue
        day = time.localtime(now)
        seconds = time.mktime((*day[:3], clock.tm_hour, clock.tm_min, clock.tm_sec, 0, 0, -1))
        # Of a time that has not come yet today, yesterday's is meant.
        return seconds if seconds <= now + 1 else seconds - 86_400
    return None
