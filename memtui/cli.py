"""The command line: what was asked for, and nothing imported that it does not need."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

from memtui import __version__

#: Options of `run` that take a value: everything after the first other word belongs to the program.
_RUN_VALUES = frozenset(("--frames", "--log", "--device", "--theme", "--rate", "--max-shape"))
#: The same of `plan`, where they may also stand directly behind the script.
_PLAN_VALUES = _RUN_VALUES - {"--frames", "--max-shape"} | {
    "--gpu",
    "--gpus",
    "--context",
    "--steps",
    "--fit",
    "--compare",
}
_PLAN_OPTIONS = _PLAN_VALUES | {"--json", "--keep", "--live", "--output", "--list"}
#: What memtui is installed with, by what is imported; and what pip calls it.
_NEEDED = {"psutil": "psutil", "textual": "textual", "rich": "rich", "pynvml": "nvidia-ml-py", "pyte": "pyte"}
_COMMANDS = (
    *("run", "attach", "ps", "record", "open", "report", "demo", "plan", "estimate", "explain"),
    *("serve", "watch"),
)
#: As they are written in `memtui.tui.palette`, which is not imported for a help text.
THEMES = ("auto", "dark", "light", "colour-blind", "contrast", "sixteen", "no-colour")
#: How the file of `run --report` ends: what else follows it is the program.
REPORT_NAMES = (".md", ".json", ".txt")
_DEVICE = re.compile(r"host|[a-z]+:\d+")


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
    elif words[:1] == ["plan"]:
        words, program = split_plan(words)
    _write_what_can_be_written()
    options = _options(words)
    if options.command in ("run", "plan"):
        options.program = program
    try:
        return _dispatch(options)
    except CommandError as error:
        from memtui.analysis.text import clean

        # It may name a file, or what stands in one.
        print("\n".join(map(clean, f"memtui: {error}".splitlines())), file=sys.stderr)
        return error.status
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        print(f"memtui: {package} is not installed: pip install {_NEEDED[package]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _give_up_output()
        return 141
    except OSError as error:
        # A full disk under standard output, or what no command has expected: the line says which.
        where = f": {error.filename}" if error.filename else ""
        print(f"memtui: {error.strerror or error}{where}", file=sys.stderr)
        _give_up_output()
        return 1


def _options(words: list[str]) -> argparse.Namespace:
    """What was asked for; ends the process with one line where it cannot be understood."""
    parser = _parser("".join(words[:1]))
    if words and words[0] not in _COMMANDS and not words[0].startswith("-") and os.path.exists(words[0]):
        parser.error(f"{words[0]} is no command: memtui run {words[0]}")
    options, unknown = parser.parse_known_args(words)
    if unknown:
        parser.exit(2, f"memtui: {unknown[0]} is not known here (see memtui {options.command} --help)\n")
    return options


def _write_what_can_be_written() -> None:
    # A terminal or pipe of another encoding than UTF-8 gets a question mark for what it has not.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def split_run(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of `memtui run …` that are memtui's, and those of the program: from a script, `-m` or `--` on."""
    place = _own_words(words, 1, _RUN_VALUES)
    return words[:place], words[place:]


def split_plan(words: list[str]) -> tuple[list[str], list[str]]:
    """The same of `memtui plan …`, whose own options may also stand directly behind the script or the module.

    There only where none names the GPU before it, and from `--gpu` on; `--` ends them, so that the program may have
    options of the same names.
    """
    place = _own_words(words, 1, _PLAN_VALUES)
    behind = place + (2 if words[place : place + 1] == ["-m"] else 1)
    if words[place : place + 1] == ["--"]:
        return words[:place], words[place:]
    end = behind
    if not _names_gpu(words[1:place]) and _names_gpu(words[behind : behind + 1]):
        while end < len(words) and words[end].partition("=")[0] in _PLAN_OPTIONS:
            end += 2 if words[end] in _PLAN_VALUES else 1
    rest = words[end + 1 :] if words[end : end + 1] == ["--"] else words[end:]
    return words[:place] + words[behind:end], words[place:behind] + rest


def _names_gpu(words: list[str]) -> bool:
    return any(word.partition("=")[0] == "--gpu" for word in words)


def _own_words(words: list[str], place: int, with_values: frozenset[str]) -> int:
    """Where the program begins: a script, `-m` or `--`."""
    while place < len(words):
        word = words[place]
        if word in ("-m", "--") or not word.startswith("-") or word == "-":
            break
        following = words[place + 1] if place + 1 < len(words) else ""
        valued = word in with_values or (word == "--report" and following.endswith(REPORT_NAMES))
        place += 2 if valued else 1
    return place


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
    if options.command == "record":
        from memtui.commands.record import record

        return record(options)
    if options.command == "demo":
        from memtui.commands.demo import demo

        return demo(options)
    return _aside(options)


def _aside(options: argparse.Namespace) -> int:
    """The commands that watch nothing that runs already."""
    if options.command == "open":
        from memtui.commands.open import open_file

        return open_file(options)
    if options.command == "plan":
        from memtui.commands.plan import plan

        return plan(options)
    if options.command in ("serve", "watch"):
        return _many_hosts(options)
    if options.command == "explain":
        from memtui.commands.explain import run_explain

        return run_explain(options)
    if options.command == "report":
        from memtui.commands.report import run_report

        return run_report(options)
    from memtui.commands.estimate import run_estimate

    return run_estimate(options)


def _many_hosts(options: argparse.Namespace) -> int:
    """The two ends of a Prometheus server."""
    if options.command == "serve":
        from memtui.commands.serve import serve

        return serve(options)
    from memtui.commands.watch import watch

    return watch(options)


def _give_up_output() -> None:
    # Nobody takes the lines any longer; the interpreter must not try to write the rest at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _parser(command: str) -> argparse.ArgumentParser:
    """`command` is the one that is asked for: some options are brought where nothing else needs them."""
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
    _exact_peaks(run)
    _max_shape(run)
    run.add_argument(
        "--report",
        nargs="?",
        const="",
        type=_report_file,
        metavar="OUT",
        help="at its end print what memtui report says of it, on standard error, or write it to OUT.md, OUT.json or "
        "OUT.txt",
    )
    watching(run)
    attach = commands.add_parser("attach", help="watch a process that runs already, here or over ssh")
    if command == "attach":
        from memtui.commands.attach_options import add_options as add_attach_options

        add_attach_options(attach)
        _max_shape(attach)
        watching(attach)
    commands.add_parser("ps", help="list what can be watched", description="Lists training processes of this machine.")
    record = commands.add_parser("record", help="write a memory snapshot of a running training's next steps")
    if command == "record":
        from memtui.commands.record_options import add_options as add_record_options

        add_record_options(record)
    _open(commands)
    report = commands.add_parser("report", help="one page about a training's memory, from its log")
    if command == "report":
        from memtui.commands.report_options import add_options as add_report_options

        add_report_options(report)
    demo = commands.add_parser(
        "demo", help="train a small GPT and watch it", description="Trains a small GPT on what this machine has."
    )
    demo.add_argument(
        "--virtual-gpu", metavar="SIZE", help="train on a virtual GPU of this memory, 24GiB: no GPU, no real numbers"
    )
    _exact_peaks(demo)
    _max_shape(demo)
    watching(demo)
    planning = commands.add_parser(
        "plan",
        help="say whether a program fits a GPU, without one",
        usage="memtui plan --gpu GPU [options] SCRIPT ARGS… | -m MODULE ARGS… | -- COMMAND ARGS…",
    )
    if command == "plan":
        from memtui.commands.plan_options import add_options as add_plan_options

        add_plan_options(planning)
    estimate = commands.add_parser(
        "estimate",
        help="a training's memory in closed form, without a script",
        description="Estimates what a training takes on one device from its shapes: each term with its formula and "
        "source, the phases of a step, the peak, and whether it fits. Nothing is run. With --gpu the status is 0 where "
        "it fits, 3 where it does not and 4 where that cannot be told.",
    )
    if command == "estimate":
        from memtui.commands.estimate_options import add_options

        add_options(estimate)
    _explain(commands)
    serve = commands.add_parser("serve", help="expose this machine's trainings and GPUs for Prometheus")
    if command == "serve":
        from memtui.commands.serve_options import add_options as add_serve_options

        add_serve_options(serve)
    watch = commands.add_parser("watch", help="watch the ranks that a Prometheus server knows of")
    if command == "watch":
        from memtui.commands.watch_options import add_options as add_watch_options

        add_watch_options(watch)
    return parser


def _explain(commands: argparse._SubParsersAction[_Parser]) -> None:
    explain = commands.add_parser(
        "explain",
        help="say why a program ran out of memory, from PyTorch's message",
        description="Reads an out-of-memory message of PyTorch, or a whole log that has some, and says the cause of "
        "each, what the figures show, and what helps against that cause. Where the printed figures cannot tell, it "
        "says what would. Without a FILE it reads standard input. The status is 1 where there is no such message.",
    )
    explain.add_argument("file", metavar="FILE", nargs="?", type=a_file, help="a log or a saved message; - for a pipe")
    explain.add_argument("--json", action="store_true", help="print the answers as JSON")


def _open(commands: argparse._SubParsersAction[_Parser]) -> None:
    opening = commands.add_parser(
        "open",
        help="replay a log, or say what a memory snapshot holds",
        description="Shows a log that --log has written, or what is in a memory snapshot that "
        "torch.cuda.memory._dump_snapshot has written (also gzipped): the peak, what was live then and where it was "
        "allocated. Snapshots are checked before they are read, and nothing in them is run.",
    )
    opening.add_argument("file", metavar="FILE", type=a_file)
    _max_shape(opening)
    opening.add_argument(
        "--fits",
        type=_bytes,
        metavar="BYTES",
        help="say whether a request of so many bytes (1.5GiB, 96KiB) would have fitted into the last segments in the "
        "log; they are in it from when somebody looked at the app's tab 6",
    )
    watching(opening, log=False)
    snapshots = opening.add_argument_group("memory snapshots")
    snapshots.add_argument(
        "--at", metavar="INSTANT", help="this instant instead of the peak: an event's number, 1.2s, start or end"
    )
    snapshots.add_argument(
        "--diff", metavar="OTHER", help="what is live that is not in OTHER: a snapshot, or an instant of this one"
    )
    form = snapshots.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as JSON")
    form.add_argument("--csv", action="store_true", help="print the timeline: event, time, allocated, reserved")
    form.add_argument("--stacks", metavar="OUT", type=a_file, help="write folded stacks, for flame graph tools")
    form.add_argument("--html", metavar="OUT", type=a_file, help="write torch's own web view; needs torch")
    snapshots.add_argument(
        "--overwrite", action="store_true", help="with --stacks or --html: put it in the place of a file that is there"
    )


def _exact_peaks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--exact-peaks",
        action="store_true",
        help="take each step's peak exactly, on CUDA: costs some 70 µs a step; the program's own readings stay right",
    )


def _max_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-shape",
        type=_shape,
        metavar="SIZE",
        help="predict the peak of a batch of this size from recorded steps of other sizes: 4096 (tokens of 8 bytes), "
        "x2 (times the largest recorded) or 96MiB (bytes of its input)",
    )


def watching(parser: argparse.ArgumentParser, *, log: bool = True) -> None:
    """Options of every command that shows something of a training."""
    parser.add_argument(
        "--headless", action="store_true", help="a line a second instead of the app; the default without a terminal"
    )
    parser.add_argument(
        "--frames", type=a_count, metavar="N", help="with --headless: leave after N lines; the program goes on"
    )
    if log:
        said = "write every frame to FILE, a line of JSON each; of several ranks, a file for each, which FILE names"
        parser.add_argument("--log", type=a_file, metavar="FILE", help=said)
    parser.add_argument("--quiet", action="store_true", help="with --headless: no lines")
    parser.add_argument("--device", type=a_device, metavar="D", help="the device to show first: cuda:0, host")
    parser.add_argument(
        "--rate",
        type=_rate,
        default=10,
        metavar="HZ",
        help="draw at most so often, 10 or less: for a slow line; what is recorded does not change",
    )
    parser.add_argument(
        "--theme", type=_theme, metavar="T", help="dark, light, colour-blind, contrast, sixteen or no-colour"
    )


def _rate(text: str) -> float:
    number = _number(text)
    if not 0.1 <= number <= 10:
        raise argparse.ArgumentTypeError("must be from 0.1 to 10")
    return number


def a_count(text: str) -> int:
    """An option's value, 1 or more."""
    number = _number(text)
    if number < 1 or not number.is_integer():
        raise argparse.ArgumentTypeError("must be a whole number, at least 1")
    return int(number)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def a_pid(text: str) -> int:
    """An option's value."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no process id; memtui ps lists those that can be watched")
    return int(text)


def a_file(text: str) -> str:
    """An option's value, which is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("name a file")
    return text


def _report_file(text: str) -> str:
    if text and not text.endswith(REPORT_NAMES):  # "" without a name, which argparse gives here too
        raise argparse.ArgumentTypeError(f"{text!r}: name a file that ends in {', '.join(REPORT_NAMES)}")
    return text


def _shape(text: str) -> object:
    from memtui.analysis.shapes.asked import asked_shape

    try:
        return asked_shape(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _bytes(text: str) -> int:
    from memtui.analysis.units import parse_size

    try:
        size = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not size:
        raise argparse.ArgumentTypeError("0 bytes always fit")
    return size


def a_device(text: str) -> str:
    """An option's value, as torch names it."""
    if not _DEVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no device: write cuda:0, or host")
    return text


def _theme(text: str) -> str:
    if text not in THEMES:
        raise argparse.ArgumentTypeError(f"no theme {text!r}: " + ", ".join(THEMES[1:]))
    return text
