"""How far forecasts are off: by those of their kind that were scored in the same run, else by a benchmark's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Optional

from memtui.session.session import Session
from memtui.wire.frames import Event

#: What an event of a score is called.
SCORED = "forecast_scored"

#: What a forecast is made from: the first forward, the first forward and backward, whole steps, a recorded step that is
#: done again.
Stage = Literal["first forward", "first backward", "whole steps", "recorded step"]

#: How far off a forecast of each stage is, as a share, until one was scored in the run itself: as nine in ten were on
#: the programs of `python -m tests.bench forecasts`, recorded first forward or not. Of whole steps nothing
#: is said beforehand: whether later ones are like them is the program's own affair.
BENCHMARKED: dict[Stage, float] = {"first forward": 0.025, "first backward": 0.01, "recorded step": 0.001}
#: How the text of a scored forecast ends, by its stage.
_ENDS: dict[Stage, str] = {
    "first forward": ", after the first forward",
    "first backward": ", after the first backward",
    "whole steps": ", from whole steps",
    "recorded step": " done again",
}
#: Of the forecasts that were scored, so many of the newest count: a run that has settled is judged by what it does now.
_NEWEST = 4
#: From here on an interval is said to be a wide one.
_WIDE_SHARE = 0.05


class Interval(NamedTuple):
    """By which shares of a forecast the truth may be below and above it; from how many of the run's own, else 0."""

    below: float
    above: float
    own: int

    @property
    def text(self) -> str:
        """ "±0.3 %", or "+12.0 %" where it can only be more."""
        number = f"{100 * self.above:.1f} %"
        return f"{'±' if self.below or number == '0.0 %' else '+'}{number}"

    @property
    def source(self) -> str:
        """ "interval from 4 of its own", "wide interval from the errors of a benchmark"."""
        wide = "wide " if max(self.below, self.above) >= _WIDE_SHARE else ""
        return f"{wide}interval from {f'{self.own} of its own' if self.own else 'the errors of a benchmark'}"


def interval_of(session: Session, device: str, stage: Optional[Stage]) -> Optional[Interval]:
    """The interval of a forecast of this stage: the largest of its newest errors in this run; None where unknown."""
    if stage is None:
        return None
    own = [missed for event in _scored(session, device, stage) if (missed := _missed_share(event)) is not None]
    if own:
        # What has been needed already cannot turn out to be less.
        below = 0.0 if stage == "whole steps" else max(map(abs, own))
        return Interval(below, max(map(abs, own)), len(own))
    share = BENCHMARKED.get(stage)
    return None if share is None else Interval(share, share, 0)


def _scored(session: Session, device: str, stage: Stage) -> Iterator[Event]:
    left = _NEWEST
    for event in reversed(session.events_of(SCORED)):
        if event.device == device and event.text.endswith(_ENDS[stage]):
            yield event
            left -= 1
            if not left:
                return


def _missed_share(event: Event) -> Optional[float]:
    """What happened above what was predicted, as a share of that; None where it is known to be no less, but no more."""
    predicted, actual = event.figures.get("predicted_bytes"), event.figures.get("actual_bytes")
    if not predicted or actual is None:
        return None
    missed = actual / predicted - 1
    return missed if missed > 0 or event.figures.get("actual_exact", 1) else None


def error_share(event: Event) -> Optional[float]:
    """A scored forecast's error, as a share of what happened, with its sign; None where it cannot be told."""
    predicted, actual = event.figures.get("predicted_bytes"), event.figures.get("actual_bytes")
    return None if predicted is None or not actual else predicted / actual - 1


def error_words(error: float, *, exact: bool) -> str:
    """ "+24.1 %"; where what happened may have been more only the error that is sure, which may be none: then ""."""
    if exact:
        return f"{100 * error:+.1f} %"
    return f"{100 * error:+.1f} % at least" if error < 0 else ""
