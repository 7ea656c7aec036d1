"""`memtui run --report`: the report at the end of a run, which nothing of the program depends on."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Optional, Union

from memtui.analysis.analyst import Analyst
from memtui.analysis.report.build import build_report, used_devices
from memtui.analysis.report.seen import Seen
from memtui.analysis.text import clean
from memtui.cli import CommandError
from memtui.ranks.reported import rank_lines, reported
from memtui.session.members import Member
from memtui.session.readings import ShapeForecast, SteadyStep
from memtui.session.session import Session
from memtui.sources.program import ExitStatus
from memtui.sources.ranks import Ranks
from memtui.wire.frames import Event

from .ownline import OwnLines
from .report import text_of, write

Found = Union[Event, SteadyStep, ShapeForecast]


class Noting:
    """Notes what the report of one process needs as frames come, in the analyst's place."""

    def __init__(self, analyst: Analyst) -> None:
        self.seen = Seen()
        self._analyst = analyst

    def __call__(self, session: Session) -> Iterable[Found]:
        """After a frame of `session`."""
        self.seen(session)
        return self._analyst(session)


class Reporting:
    """Tells all at the end, of one process or of the rank that failed first."""

    def __init__(self, out: str, device: Optional[str]) -> None:
        """`out` is the file, "" for standard error; raises CommandError where it cannot be written to."""
        self._out, self._device = out, device
        self._notings: list[Noting] = []
        self._made = bool(out) and not os.path.exists(out)
        if out:
            try:
                open(out, "a", encoding="utf-8").close()
            except OSError as error:
                raise CommandError(f"cannot write {out}: {error.strerror or error}") from None

    def noting(self, analyst: Analyst) -> Noting:
        """What takes the place of one process's analyst."""
        self._notings.append(Noting(analyst))
        return self._notings[-1]

    def tell(self, ranks: Optional[Ranks], status: Optional[ExitStatus], *, shared: bool = False) -> None:
        """Prints or writes the report, below all else; Does not raise.

        `ranks` is what was watched, None where that is still at work; `status` is None where the program goes on.
        """
        try:
            said = self._told(ranks, status)
        except CommandError as error:
            said = f"memtui: {error}"
        except Exception as error:  # noqa: BLE001 - the program's own status is passed on whatever becomes of this
            said = clean(f"memtui: no report: {type(error).__name__}: {error}", 300)
        if self._made:
            with contextlib.suppress(OSError):
                if not os.path.getsize(self._out):
                    os.remove(self._out)
        if said:
            OwnLines(sys.stderr, shared=shared).say(said)

    def _told(self, ranks: Optional[Ranks], status: Optional[ExitStatus]) -> str:
        if ranks is None:
            return "memtui: no report: the last figures did not come in time"
        member = reported(ranks.members, _has_figures) if ranks.several else None
        session = ranks.session if member is None else member.session
        if status is not None and not ranks.several:  # the launcher's status is no rank's
            session.ended(time.monotonic_ns(), status.code if status.signal is None else -status.signal)
        used = used_devices(session)
        if not used:
            return "memtui: no report: the program used no PyTorch, or no agent answered from it"
        shown = (self._device,) if self._device in used else None
        end_ns = time.monotonic_ns() if session.end is None else session.end.time_ns
        seen = next((each.seen for each in self._notings if each.seen.session is session), Seen())
        report = build_report(session, seen, end_ns, shown)
        if member is not None:
            report = replace(report, rank=member.rank, ranks=rank_lines(ranks.members, member))
        if not self._out:
            return text_of(report, "plain")
        write(report, self._out)
        return f"memtui: the report is in {self._out}"


def _has_figures(member: Member) -> bool:
    return bool(used_devices(member.session))
