"""Logs of several ranks: a file for each life of each, beside the program's own, which names them.

With `--log run.jsonl` rank 3 has `run.rank-3.jsonl`, and after a restart `run.rank-3.life-2.jsonl`: each is a log by
itself. In `run.jsonl` a line of kind `rank` says `rank` (absent where nobody has said), `life`, `pid` and `file`, which
is in the same folder. Where processes were watched that may be of several trainings or on other machines, `host` is the
machine as it was named (absent for this one), `spot` its place among those that were asked for, and `job` has marks of
the process's training: those with a mark in common are of the same one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import NamedTuple, Optional

from memtui.inject.words import printable
from memtui.session.members import Member, number_apart

from .log_format import LogError, Plain
from .log_writer import LogWriter

_LONGEST_LINE = 4096


_LONGEST_HOST = 80


class Side(NamedTuple):
    """Where a process runs, and what it has in common with others of its training."""

    host: str = ""
    spot: int = 0
    job: frozenset[str] = frozenset()

    def plain(self) -> Plain:
        """As a log has it: marks in place of what may be long, and is nobody else's affair."""
        marks = sorted(hashlib.sha256(each.encode(errors="replace")).hexdigest()[:12] for each in self.job)
        return {**({"host": self.host} if self.host else {}), "spot": self.spot, "job": marks}


class RankLog(NamedTuple):
    """What a log says of one of its ranks' logs."""

    path: str
    rank: Optional[int]
    life: int
    pid: int
    side: Side = Side()


def path_of_rank(path: str, pid: int, rank: Optional[int], life: int) -> str:
    """Where the log of a rank is; one that nobody has numbered is told by its pid."""
    stem, ending = os.path.splitext(path)
    name, again = (f"pid-{pid}", "-") if rank is None else (f"rank-{rank}", ".life-")
    return f"{stem}.{name}{f'{again}{life}' if life > 1 else ''}{ending}"


def log_of_rank(
    log: LogWriter,
    pid: int,
    rank: Optional[int],
    life: int,
    side: Optional[Side] = None,
    taken: Optional[set[str]] = None,
) -> LogWriter:
    """The log of a rank, named in the program's own; raises LogError. Its path is none that is `taken`, and is then."""
    path, taken = path_of_rank(log.path, pid, rank, life), set() if taken is None else taken
    number = 1
    while path in taken:  # another training's of the same number
        path, number = path_of_rank(log.path, pid, None, number), number + 1
    taken.add(path)
    writer = LogWriter(path, log.version)
    log.names_rank(os.path.basename(path), pid, rank, life, None if side is None else side.plain())
    return writer


def number_logs(found: Sequence[tuple[Member, RankLog]]) -> bool:
    """Numbers members as they were when they were watched, where they are of several trainings; whether they are."""
    for member, log in found:
        member.host = log.side.host
    # Older logs do not say: what nobody has numbered was of several then.
    alike = any(member.rank is not None for member, _ in found)
    ordered = sorted(found, key=lambda each: each[1].side.spot)
    return number_apart([(each, log.side.job or frozenset([""] if alike else [log.path])) for each, log in ordered])


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
    return RankLog(os.path.join(folder, name), rank, life, pid, _side(plain))


def _side(plain: Plain) -> Side:
    host, spot, job = plain.get("host"), plain.get("spot"), plain.get("job")
    return Side(
        printable(host)[:_LONGEST_HOST] if isinstance(host, str) else "",
        spot if isinstance(spot, int) else 0,
        frozenset(str(each) for each in job) if isinstance(job, list) else frozenset(),
    )
