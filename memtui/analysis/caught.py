"""An out-of-memory error that the program caught: what it needed is in no peak."""

from __future__ import annotations

from memtui.session.session import Session

from . import units
from .events import latest_oom
from .policy import Policy
from .text import phase_words, place_words


def caught_lines(session: Session, device: str) -> tuple[str, ...]:
    """What was asked for in vain and on top of what, for the forecast knows only what there was."""
    oom = latest_oom(session, device)
    if oom is None or session.end is not None:
        return ()
    asked, allocated = oom.figures.get("asked_bytes"), oom.figures.get("allocated_bytes")
    if asked is None:
        return ()
    top = "" if allocated is None else f" on top of {units.size(allocated)}"
    return (f"out of memory {place_words(oom.phase, oom.step)}: {units.size(asked)} asked for{top} are not in this",)


def caught_words(session: Session, device: str, policy: Policy) -> str:
    """ "out of memory in backward, 3 steps ago"; empty once enough steps went well."""
    oom, frame = latest_oom(session, device), session.frame
    if oom is None or frame is None or frame.step - oom.step >= policy.caught_steps:
        return ""
    ago = frame.step - oom.step
    when = "in this step" if not ago else f"{ago} step{'s' if ago > 1 else ''} ago"
    return f"out of memory {phase_words(oom.phase, after_in=True)}, {when}"
