"""The options of `memtui record`, loaded when that command is asked for."""

from __future__ import annotations

import argparse

from memtui.cli import a_count, a_file, a_pid


def add_options(parser: argparse.ArgumentParser) -> None:
    """The process, the steps, and the file."""
    parser.description = (
        "Records the allocator's history of the next steps of a training that runs, and writes it as the memory "
        "snapshot that torch.cuda.memory._dump_snapshot writes: memtui open and PyTorch's own viewer read it. A "
        "process without memtui's agent gets it, and loses it again. A program that records a history of its own is "
        "left alone."
    )
    parser.add_argument("--pid", type=a_pid, required=True, metavar="PID", help="the process; memtui ps lists them")
    parser.add_argument("--steps", type=a_count, default=1, metavar="N", help="so many; without it one")
    parser.add_argument("--output", type=a_file, metavar="FILE", help="FILE.pickle or FILE.pickle.gz; else by the pid")
    parser.add_argument("--overwrite", action="store_true", help="put it in the place of a file that is there")
    parser.add_argument(
        "--stacks", action="store_true", help="with call stacks even where those make a step more than 15 %% longer"
    )
