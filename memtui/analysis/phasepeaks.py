"""Peaks by phase in words, and what a forecast takes of those that not every step has."""

from __future__ import annotations

from typing import NamedTuple, Optional

from memtui.session.phasepeaks import PhasePeak
from memtui.session.session import Session
from memtui.session.steps import step_number

from . import units
from .policy import Policy

#: In the order of a step, then what comes besides.
_LISTED = ("startup", "forward", "backward", "optimizer", "between", "evaluation", "checkpoint", "compilation")
#: Told also where they never were.
_ALWAYS = ("forward", "backward", "optimizer", "evaluation", "checkpoint")
#: Told only where the highest was in them.
_ORDINARY = ("startup", "between")
_RARER = ("startup", "evaluation", "checkpoint", "compilation")
#: Passes beside the steps that come again.
_BESIDES = ("evaluation", "checkpoint")


class Besides(NamedTuple):
    """The peak of an evaluation or a checkpoint as it will be when it comes again; `step` were completed then."""

    phase: str
    bytes_held: int
    exact: bool
    step: int


def highest_besides(session: Session, device: str, state_bytes: int) -> Optional[Besides]:
    """The higher of evaluation and checkpoint; None where neither was seen.

    Of one before the optimizer's state was there, `state_bytes` are on top. A checkpoint before the first step's end
    was loaded, which does not come again.
    """
    peaks, since_ns = session.phase_peaks(device), session.steps.state_since_ns
    found = [
        Besides(phase, peak.bytes_held + (state_bytes if _before(peak, since_ns) else 0), peak.exact, peak.step)
        for phase, peak in peaks.items()
        if phase in _BESIDES and (phase == "evaluation" or peak.step > 0)
    ]
    return max(found, key=lambda each: each.bytes_held, default=None)


def _before(peak: PhasePeak, since_ns: Optional[int]) -> bool:
    return since_ns is not None and peak.time_ns < since_ns


def besides_lines(session: Session, device: str, policy: Policy) -> tuple[str, ...]:
    """The peaks of evaluation and checkpoint passes, and, after enough steps, which of them were never seen."""
    peaks = session.phase_peaks(device)
    seen = [
        f"{phase}: peak {'' if peaks[phase].exact else '≥ '}{units.size(peaks[phase].bytes_held)} "
        f"(step {step_number(peaks[phase].step):,})"
        for phase in _BESIDES
        if phase in peaks
    ]
    lines = [" · ".join(seen)] if seen else []
    unseen = [phase for phase in _BESIDES if phase not in peaks]
    first, last = session.steps.first, session.steps.last()
    # Without a forward nothing is known of phases.
    if not unseen or first is None or last is None or session.end is not None or "forward" not in peaks:
        return tuple(lines)
    if last.number - first.number + 1 >= policy.unseen_steps:
        since = "yet" if first.number == 1 else f"since step {first.number:,}"
        whose = "its peak is" if len(unseen) == 1 else "their peaks are"
        lines.append(f"no {' or '.join(unseen)} seen {since}: {whose} not in this")
    return tuple(lines)


def rarer_phases(session: Session, device: str) -> tuple[str, ...]:
    """Phases that not every step has, as far as they were seen."""
    return tuple(phase for phase in _RARER if phase in session.phase_peaks(device))


def phase_peaks_line(session: Session, device: str) -> str:
    """ "GiB: forward ≥ 3.1 · backward 10.4 · optimizer ≥ 9.8 · evaluation ≥ 2.0 · checkpoint –"; empty before any."""
    peaks = session.phase_peaks(device)
    if not peaks:
        return ""
    highest = max(peak.bytes_held for peak in peaks.values())
    unit = units.unit_of(highest)
    above = max((peak.bytes_held for phase, peak in peaks.items() if phase not in _ORDINARY), default=0)
    parts = [
        f"{phase} {_number(peaks.get(phase), unit)}"
        for phase in _LISTED
        if phase in _ALWAYS or (phase in peaks and (phase not in _ORDINARY or peaks[phase].bytes_held > above))
    ]
    return f"{unit}: " + " · ".join(parts)


def _number(peak: Optional[PhasePeak], unit: str) -> str:
    if peak is None:
        return units.UNKNOWN
    return ("" if peak.exact else "≥ ") + units.number(peak.bytes_held, unit)
