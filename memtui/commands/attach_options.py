"""The options of `memtui attach`, loaded when that command is asked for."""

from __future__ import annotations

import argparse

from memtui.cli import a_file, a_pid


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which processes, here and on other machines, and what is done to them."""
    parser.description = (
        "Watches a running training. A process that was started without memtui gets the agent while it runs. Leaving "
        "it leaves the process as it is. Of a program of memtui run that has ended meanwhile it prints the output, and "
        "has its exit status. Without --pid it asks which. Other machines are reached by your own ssh (MEMTUI_SSH "
        "names another command); they need Python 3.9, and nothing else of memtui's, and keep nothing of it."
    )
    # Known here, so that it can be said why not.
    parser.add_argument("--exact-peaks", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="ssh://[USER@]HOST[:PORT][/PID]",
        help="a process on another machine, a launcher there for its ranks, or everything of this user there that has "
        "an agent or is a rank; several of them, also beside --pid, are shown side by side",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--pid", type=a_pid, metavar="PID", help="the process, a launcher for all its ranks; memtui ps lists them"
    )
    which.add_argument(
        "--all", action="store_true", help="get the agent into every training that can be watched, a line for each"
    )
    parser.add_argument(
        "--hosts",
        type=a_file,
        metavar="FILE",
        help="the hosts in FILE, one a line, as for mpirun; - for standard input",
    )
    parser.add_argument("--slurm", action="store_true", help="the hosts of this Slurm job ($SLURM_JOB_NODELIST)")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done and whether it is allowed; touch nothing"
    )
    parser.add_argument(
        "--unload", action="store_true", help="take the agent out at the end; with --all: out of every process, now"
    )
