"""Label values: text of the monitored processes, made harmless and short."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from memtui.analysis.text import clean

#: Of every series of a rank, in this order.
RANK = ("run", "rank", "pid", "device", "device_uuid")
WIDEST = 120
#: Variables that name a run, the first that is set.
_RUN_NAMES = ("MEMTUI_RUN", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "LSB_JOBID", "PBS_JOBID")


def label(text: str) -> str:
    """`text` in one line, without anything that is not printed, at most WIDEST characters."""
    return " ".join(clean(text, WIDEST).split())


def run_of(environment: Mapping[str, str], argv: Sequence[str]) -> str:
    """What the training run is called: by its environment, else its script's file name; "" where neither is known."""
    for name in _RUN_NAMES:
        value = label(environment.get(name, ""))
        if value and not (name == "TORCHELASTIC_RUN_ID" and value == "none"):
            return value
    return script_of(argv)


def script_of(argv: Sequence[str]) -> str:
    """The file name of a command's script, as its process has it in `sys.argv`."""
    return label(os.path.basename(argv[0].rstrip("/"))) if argv else ""


def rank_label(environment: Mapping[str, str]) -> str:
    """The rank that a launcher gave it, "" where there is none."""
    value = environment.get("RANK", "")
    return value[:WIDEST] if value.isdecimal() and value.isascii() else ""
