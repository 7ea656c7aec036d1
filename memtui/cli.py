"""The command line: what was asked for, and nothing imported that it does not need."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

from memtui import __version__

#: Options of `run` that take a value: everything after the first other word belongs to the program.
_RUN_VALUES = frozenset(("--frames", "--log", "--device", "--theme"))


class CommandError(Exception):
    """Something the user asked for cannot be done; the message is one line, `status` the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage in front."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"memtui: {message} (see {self.prog} --help)\n")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line (default: this process's); returns the exit status. Does not raise."""
    words = list(sys.argv[1:] if argv is None else argv)
    program: list[str] = []
    if words[:1] == ["run"]:
        words, program = split_run(words)
    options = _parser().parse_args(words)
    if options.command == "run":
        options.program = program
    try:
        return _dispatch(options)
    except CommandError as error:
        print(f"memtui: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _broken_pipe()


def split_run(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of `memtui run …` that are memtui's, and those of the program: from a script, `-m` or `--` on."""
    place = 1
    while place < len(words):
        word = words[place]
        if word in ("-m", "--") or not word.startswith("-") or word == "-":
            break
        place += 2 if word in _RUN_VALUES else 1
    return words[:place], words[place:]


def _dispatch(options: argparse.Namespace) -> int:
    if options.command == "run":
        from memtui.commands.run import run

        return run(options)
    if options.command == "attach":
        from memtui.commands.attach import attach

        return attach(options)
    if options.command == "ps":
        from memtui.commands.ps import ps

        return ps(options)
    if options.command == "open":
        from memtui.commands.open import open_log

        return open_log(options)
    from memtui.commands.demo import demo

    return demo(options)


def _broken_pipe() -> int:
    # Whoever read the lines has gone; the interpreter must not try to write the rest at its end.
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 141


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="memtui",
        description="A live monitor of the memory of PyTorch training runs: where it went, and whether it will fit.",
        epilog="memtui COMMAND --help says more of a command.",
    )
    parser.add_argument("--version", action="version", version=f"memtui {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    run = commands.add_parser(
        "run",
        help="start a program and watch it",
        usage="memtui run [options] SCRIPT ARGS… | -m MODULE ARGS… | -- COMMAND ARGS…",
        description="Starts a program with the agent in it and shows its memory. Everything after the script, the "
        "module or the command belongs to the program; its exit status is memtui's. Without a terminal (or with "
        "--headless) the program keeps the standard streams and memtui's lines go to standard error.",
    )
    _watching(run)
    attach = commands.add_parser(
        "attach",
        help="watch a process whose agent is running",
        description="Watches a process that was started by memtui run or has called memtui.start(). Leaving it leaves "
        "the process as it is. Of a program of memtui run that has ended meanwhile it prints the output, and has its "
        "exit status.",
    )
    attach.add_argument("--pid", type=int, required=True, help="the process; memtui ps lists those that can be watched")
    _watching(attach)
    commands.add_parser("ps", help="list what can be watched", description="Lists training processes of this machine.")
    opening = commands.add_parser("open", help="replay a log", description="Shows a log that --log has written.")
    opening.add_argument("file", metavar="FILE")
    _watching(opening, log=False)
    demo = commands.add_parser(
        "demo", help="train a small GPT and watch it", description="Trains a small GPT on what this machine has."
    )
    demo.add_argument(
        "--virtual-gpu",
        metavar="SIZE",
        help="train on a virtual GPU of this memory, 24GiB: no GPU needed, no real numbers",
    )
    _watching(demo)
    return parser


def _watching(parser: argparse.ArgumentParser, *, log: bool = True) -> None:
    parser.add_argument(
        "--headless", action="store_true", help="a line a second instead of the app; the default without a terminal"
    )
    parser.add_argument(
        "--frames", type=_count, metavar="N", help="with --headless: leave after N lines; the program goes on"
    )
    if log:
        parser.add_argument("--log", metavar="FILE", help="write every frame to FILE, a line of JSON each")
    parser.add_argument("--quiet", action="store_true", help="with --headless: no lines")
    parser.add_argument("--device", metavar="D", help="the device to show first: cuda:0, host")
    parser.add_argument("--theme", metavar="T", help="dark, light, colour-blind, contrast or no-colour")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
