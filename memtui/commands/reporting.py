"""`memtui run --report`: the report at the end of a run, which nothing of the program depends on."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from typing import Optional, Union

from memtui.analysis.analyst import Analyst
from memtui.analysis.report.build import build_report, used_devices
from memtui.analysis.report.seen import Seen
from memtui.analysis.text import clean
from memtui.cli import CommandError
from memtui.session.readings import ShapeForecast, SteadyStep
from memtui.session.session import Session
from memtui.sources.program import ExitStatus
from memtui.wire.frames import Event

from .ownline import OwnLines
from .report import text_of, write


class Reporting:
    """Notes what the report needs as frames come, in the analyst's place; and tells all at the end."""

    def __init__(self, out: str, device: Optional[str], analyst: Analyst) -> None:
        """`out` is the file, "" for standard error; raises CommandError where it cannot be written to."""
        self._out, self._device, self._analyst = out, device, analyst
        self._seen = Seen()
        self._made = bool(out) and not os.path.exists(out)
        if out:
            try:
                open(out, "a", encoding="utf-8").close()
            except OSError as error:
                raise CommandError(f"cannot write {out}: {error.strerror or error}") from None

    def __call__(self, session: Session) -> Iterable[Union[Event, SteadyStep, ShapeForecast]]:
        """After a frame of `session`."""
        self._seen(session)
        return self._analyst(session)

    def tell(self, session: Optional[Session], status: Optional[ExitStatus], *, shared: bool = False) -> None:
        """Prints or writes the report, below all else; `status` is None where the program goes on. Does not raise."""
        try:
            said = self._told(session, status)
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

    def _told(self, session: Optional[Session], status: Optional[ExitStatus]) -> str:
        if session is None:
            return "memtui: no report: the last figures did not come in time"
        if status is not None:
            session.ended(time.monotonic_ns(), status.code if status.signal is None else -status.signal)
        used = used_devices(session)
        if not used:
            return "memtui: no report: the program used no PyTorch, or no agent answered from it"
        shown = (self._device,) if self._device in used else None
        end_ns = time.monotonic_ns() if session.end is None else session.end.time_ns
        report = build_report(session, self._seen, end_ns, shown)
        if not self._out:
            return text_of(report, "plain")
        write(report, self._out)
        return f"memtui: the report is in {self._out}"
