"""The options of `memtui report`, loaded when that command is asked for."""

from __future__ import annotations

import argparse

from memtui.cli import a_device, a_file


def add_options(parser: argparse.ArgumentParser) -> None:
    """The log, and what becomes of the page."""
    parser.description = (
        "Answers from a log that --log has written: the model, what was in memory after its creation and "
        "after the first forward, backward and optimizer step, the peak of a step and what it is made of, reserved "
        "against allocated, PyTorch against the driver, what was never exercised, forecast against actual, and what to "
        "do. What the log does not tell is said to be unknown, with what would tell it."
    )
    parser.add_argument("file", metavar="FILE", type=a_file, help="a log")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="as Markdown")
    form.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--device", type=a_device, metavar="D", help="this device alone: cuda:0, host")
    parser.add_argument(
        "-o", dest="out", type=a_file, metavar="OUT", help="write it there; OUT.md is Markdown, OUT.json JSON"
    )
