"""Logs of several ranks: a file for each life of each, beside the program's own, which names them.

With `--log run.jsonl` rank 3 has `run.rank-3.jsonl`, and after a restart `run.rank-3.life-2.jsonl`: each is a log by
itself. In `run.jsonl` a line of kind `rank` says `rank` (absent where nobody has said), `life`, `pid` and `file`, which
is in the same folder.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple, Optional

from .log_format import LogError
from .log_writer import LogWriter

_LONGEST_LINE = 4096


class RankLog(NamedTuple):
    """What a log says of one of its ranks' logs."""

    path: str
    rank: Optional[int]
    life: int
    pid: int


def path_of_rank(path: str, pid: int, rank: Optional[int], life: int) -> str:
    """Where the log of a rank is; one that nobody has numbered is told by its pid."""
    stem, ending = os.path.splitext(path)
    name = f"pid-{pid}" if rank is None else f"rank-{rank}" + (f".life-{life}" if life > 1 else "")
    return f"{stem}.{name}{ending}"


def log_of_rank(log: LogWriter, pid: int, rank: Optional[int], life: int) -> LogWriter:
    """The log of a rank, named in the program's own; raises LogError."""
    path = path_of_rank(log.path, pid, rank, life)
    writer = LogWriter(path, log.version)
    log.names_rank(os.path.basename(path), pid, rank, life)
    return writer


def rank_logs(path: str) -> list[RankLog]:
    """The logs that the log at `path` names, in the order in which the ranks came; raises LogError.

    Only names in its own folder are taken: a log is a file from anybody.
    """
    found: list[RankLog] = []
    if not os.path.isfile(path):
        return found
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(b'{"kind":"rank"') and len(line) < _LONGEST_LINE:
                    named = _read(os.path.dirname(path), line)
                    found += [] if named is None else [named]
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror}") from None
    return found


def _read(folder: str, line: bytes) -> Optional[RankLog]:
    try:
        plain = json.loads(line)
        name, rank, life, pid = (plain.get(key) for key in ("file", "rank", "life", "pid"))
    except (ValueError, AttributeError):
        return None
    whole = isinstance(life, int) and isinstance(pid, int) and (rank is None or isinstance(rank, int))
    if not whole or not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
        return None
    return RankLog(os.path.join(folder, name), rank, life, pid)
