"""The options of `memtui plan`, loaded when that command is asked for."""

from __future__ import annotations

import argparse

from memtui.cli import a_count, watching


def add_options(parser: argparse.ArgumentParser) -> None:
    """The GPUs, how long, what is looked for, and what is printed."""
    parser.description = (
        "Runs a program for some steps on a virtual GPU, with PyTorch's own CUDA allocator, and says "
        "whether it fits, its peak, and what that is made of. It needs no GPU and no driver, but a CUDA build of "
        "PyTorch. What the program writes is thrown away, and it has no network. The status is 0 where it fits, 3 "
        "where it does not and 4 where that is not known. What stands behind the script is the program's, as with "
        "memtui run; but where no --gpu stands before it, --gpu may follow it directly, and memtui's options then go "
        "on to the first other word, or to --."
    )
    parser.add_argument("--gpu", action="append", metavar="GPU", help="a100-80g, 4090, 24GiB; several: a table of them")
    parser.add_argument("--gpus", type=a_count, default=1, metavar="N", help="how many of them the program sees")
    parser.add_argument("--list", action="store_true", help="list the GPUs that are known by name")
    parser.add_argument("--context", metavar="SIZE", help="a CUDA context takes this much on it: 400MiB")
    parser.add_argument("--steps", type=a_count, metavar="N", help="so many; without it, until no peak rises any more")
    parser.add_argument(
        "--fit", action="append", metavar="NAME=LOW..HIGH", help="find the largest value that fits: batch_size=1..256"
    )
    parser.add_argument(
        "--compare",
        action="append",
        metavar="NAME=A,B…",
        help="a table of an argument's values, or of a variable's in capitals; several: all combinations",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--output", action="store_true", help="print the end of its output, on standard error")
    parser.add_argument("--keep", action="store_true", help="let it write and use the network as ever")
    parser.add_argument("--live", action="store_true", help="show it in the app as it runs")
    watching(parser)
