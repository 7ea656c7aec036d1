"""Peaks by phase in one line."""

from __future__ import annotations

from typing import Optional

from memtui.session.phasepeaks import PhasePeak
from memtui.session.session import Session

from . import units

#: In the order of a step, then what comes besides.
_LISTED = ("startup", "forward", "backward", "optimizer", "between", "evaluation", "checkpoint", "compilation")
#: Told also where they never were.
_ALWAYS = ("forward", "backward", "optimizer", "evaluation", "checkpoint")
#: Told only where the highest was in them.
_ORDINARY = ("startup", "between")
_RARER = ("startup", "evaluation", "checkpoint", "compilation")


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
