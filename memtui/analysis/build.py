"""From a session to what one screen says."""

from __future__ import annotations

from memtui.session.session import Session

from .policy import DEFAULT, Policy
from .view import Bar, Figure, Verdict, View


def build_view(session: Session, device: str, now_ns: int, policy: Policy = DEFAULT) -> View:
    """The view of one device of a session at `now_ns` (the monitored machine's monotonic clock)."""
    return View(
        program=session.program,
        pid=session.pid or 0,
        user="",
        host="",
        device=device,
        device_name="",
        devices=(),
        state="starting",
        state_text="",
        place="",
        phase="",
        verdict=Verdict("unknown", ""),
        rows=(),
        rules=(),
        bar=Bar("device", Figure(None, "unknown"), ()),
        fragmentation=(),
        forecast=(),
        hardware="",
        growth="",
        events=(),
        notices=(),
        now_ns=now_ns,
        frame_age_ns=None,
    )
