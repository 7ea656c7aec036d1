"""`memtui report`: one page about a training that was watched, from its log."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Optional

from memtui.analysis.report import document, markdown, plain
from memtui.analysis.report.build import build_report, used_devices
from memtui.analysis.report.facts import Report
from memtui.analysis.report.seen import Seen
from memtui.analysis.text import clean
from memtui.cli import CommandError
from memtui.ranks.reported import rank_lines, reported
from memtui.session.members import Member
from memtui.session.session import Session
from memtui.snapshots.reading import looks_like_snapshot
from memtui.sources.log_format import LogError
from memtui.sources.log_ranks import RankLog, number_logs, rank_logs
from memtui.sources.log_reader import LogReader

from .ownline import writable

Form = Literal["plain", "markdown", "json"]
#: The form of a file by the end of its name.
_FORMS: dict[str, Form] = {".md": "markdown", ".markdown": "markdown", ".json": "json"}

#: Of many ranks' logs so many are named in an error.
_NAMED = 3


def run_report(options: argparse.Namespace) -> int:
    """Prints or writes the report of a log; raises CommandError, with one line."""
    found = report_of(options.file, options.device)
    form: Optional[Form] = "json" if options.json else "markdown" if options.markdown else None
    if options.out is None:
        print(writable(sys.stdout, text_of(found, form or "plain")))
        return 0
    write(found, options.out, form)
    return 0


def report_of(path: str, device: Optional[str] = None) -> Report:
    """The report of a log's whole; raises CommandError."""
    shown = clean(path, 200)
    if looks_like_snapshot(path):
        raise CommandError(f"{shown} is a memory snapshot: memtui open {shown}")
    if os.path.isfile(path) and not os.path.getsize(path):
        raise CommandError(f"{shown} is empty: memtui run --log FILE train.py writes a log")
    try:
        logs = rank_logs(path)
        if logs:
            return _of_ranks(shown, logs, device)
        session, seen, end_ns = _read(path)
    except LogError as error:
        raise CommandError(clean(str(error), 400)) from None
    return build_report(session, seen, end_ns, _devices(shown, session, device))


def _of_ranks(shown: str, logs: Sequence[RankLog], device: Optional[str]) -> Report:
    """Of the rank that failed first, by its own log; raises LogError where none can be read."""
    read: list[tuple[Member, RankLog, Seen, int]] = []
    trouble: list[str] = []
    for log in logs:
        try:
            session, seen, end_ns = _read(log.path)
        except LogError as error:
            trouble.append(clean(str(error), 400))
            continue
        read.append((_member(log, session), log, seen, end_ns))
    if not read:
        raise LogError(trouble[0])
    members = [each[0] for each in read]
    apart = number_logs([(member, log) for member, log, _, _ in read])
    chosen = reported(members, lambda member: bool(used_devices(member.session)))
    if chosen is None:
        commands = ", ".join(f"memtui open {clean(log.path, 200)}" for log in logs[:_NAMED])
        what = "processes" if apart else "ranks"
        raise CommandError(
            f"{shown} is of {len(logs):,} {what}, and no log of theirs has figures of PyTorch: {commands}"
        )
    paths = {id(member): clean(log.path, 200) for member, log, _, _ in read}
    _, _, seen, end_ns = next(each for each in read if each[0] is chosen)
    found = build_report(chosen.session, seen, end_ns, _devices(paths[id(chosen)], chosen.session, device))
    lines = rank_lines(members, chosen, lambda member: f"memtui report {paths[id(member)]}")
    return replace(found, rank=None if apart else chosen.rank, ranks=lines, notices=(*found.notices, *trouble))


def _member(log: RankLog, session: Session) -> Member:
    return Member(log.pid, lambda: session, rank=log.rank, life=log.life)


def _read(path: str) -> tuple[Session, Seen, int]:
    """The whole of a log, what a report notes of it, and when it ends; raises LogError."""
    seen = Seen()
    reader = LogReader(path, seen)
    session, end_ns = reader.whole, reader.end_ns
    reader.close()
    return session, seen, end_ns


def _devices(shown: str, session: Session, device: Optional[str]) -> Optional[tuple[str, ...]]:
    devices = used_devices(session)
    if not devices:
        raise CommandError(f"{shown} has no figures of PyTorch: the program used none, or no agent answered from it")
    if device is not None and device not in devices:
        raise CommandError(f"{device} is not in this log: --device {' or '.join(devices)}")
    return None if device is None else (device,)


def text_of(report: Report, form: Form) -> str:
    """The report in one of its forms, without a line end."""
    if form == "json":
        return json.dumps(document.document(report), indent=2)
    return "\n".join((markdown if form == "markdown" else plain).lines(report))


def write(report: Report, out: str, form: Optional[Form] = None) -> None:
    """Writes it into a file, in the form that is asked for, else by the file's name; raises CommandError."""
    form = form or _FORMS.get(os.path.splitext(out)[1].lower(), "plain")
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text_of(report, form) + "\n")
    except OSError as error:
        raise CommandError(f"cannot write {clean(out, 200)}: {error.strerror or error}") from None
