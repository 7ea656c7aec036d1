"""What a series of figures over steps does: a leak, a warm-up, a workspace that stays, a list that is cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Optional

from memtui.analysis import units
from memtui.analysis.leak import Leak, find_leak
from memtui.analysis.policy import DEFAULT, Policy
from memtui.analysis.trend import steady_rise
from memtui.session.floors import Floor, Floors

#: "growth" is a rise that is not known to go on: too few figures, or too few steps, to call it a leak.
Course = Literal["unknown", "steady", "plateau", "transient", "staircase", "saw-tooth", "leak", "growth", "uneven"]

#: A rise of so much of the whole range between two figures is a jump.
_JUMP_SHARE = 0.1
#: What moves by less than this of the range stands still.
_STILL_SHARE = 0.05
#: So many figures at the end must stand still, to say that a rise is over.
_FEWEST_STILL = 4
#: So many jumps, evenly apart, are a staircase.
_FEWEST_JUMPS = 3
#: So much of a rise must be given back, to call what follows a new tooth.
_GIVEN_BACK_SHARE = 0.5


@dataclass(frozen=True)
class Figure:
    """What was allocated after so many steps; `event` names what had happened since the figure before."""

    step: int
    allocated_bytes: int
    event: str = ""


@dataclass(frozen=True)
class Series:
    """The course of a series, and its rate where it has one: bytes a step, within a tooth for a saw-tooth.

    `period` is in steps, of a staircase or a saw-tooth; `event` is what each stair came with.
    """

    course: Course
    first_step: int = 0
    last_step: int = 0
    bytes_per_step: Optional[float] = None
    period: Optional[int] = None
    event: str = ""


def find_course(figures: Sequence[Figure], policy: Policy = DEFAULT) -> Series:
    """The course of figures at rising steps.

    A leak is told as the live monitor tells it: an even rise over enough steps that goes on, however little it is
    beside a warm-up before it. What rose and then stood still is none, whatever it holds: a warm-up, an optimizer's
    state, an autotuner's workspace.
    """
    if len(figures) < 2:
        return Series("unknown")
    first, last = figures[0], figures[-1]
    values = [figure.allocated_bytes for figure in figures]
    spread, rate = max(values) - min(values), (values[-1] - values[0]) / max(1, last.step - first.step)
    ends = (first.step, last.step)
    little = spread <= policy.growth_share * max(values)
    if len(figures) == 2:
        return Series("steady" if little else "growth" if rate > 0 else "transient", *ends, None if little else rate)
    if not little:
        teeth = _teeth(figures, spread)
        shaped = _toothed(figures, teeth, ends) if len(teeth) > 1 else _stairs(figures, spread)
        if shaped is not None:
            return shaped
    leak = _leak(figures, policy)
    if leak is not None:
        return Series("leak", leak.first_step, leak.last_step, leak.bytes_per_step)
    return Series("steady", *ends) if little else _even(figures, values, spread)


def _even(figures: Sequence[Figure], values: list[int], spread: int) -> Series:
    """The course of what has neither teeth nor stairs, and is not known to leak."""
    first, last = figures[0], figures[-1]
    rate = (last.allocated_bytes - first.allocated_bytes) / max(1, last.step - first.step)
    if max(values) - values[-1] > _GIVEN_BACK_SHARE * spread:
        return Series("transient", first.step, last.step, rate)
    count = max(_FEWEST_STILL, len(values) // 3)
    tail = figures[-count:]
    risen = steady_rise(*_columns(tail))
    if max(values[-count:]) - min(values[-count:]) <= _STILL_SHARE * spread:
        if risen <= 0:
            return Series("plateau", first.step, last.step, rate)
        # Little beside what came before it, but it goes on.
        return Series("growth", tail[0].step, last.step, risen / max(1, last.step - tail[0].step))
    course: Course = "growth" if steady_rise(*_columns(figures)) > 0 else "uneven"
    return Series(course, first.step, last.step, rate)


def course_text(series: Series) -> str:
    """The course in a sentence without its full stop; "" where nothing is known."""
    where = f"from step {series.first_step:,} to {series.last_step:,}"
    rate = "" if series.bytes_per_step is None else units.size(round(series.bytes_per_step))
    texts: dict[Course, str] = {
        "unknown": "",
        "steady": f"what is allocated stood still {where}",
        "plateau": f"it rose and then stood still, {where}: a warm-up or a workspace that stays, not a leak",
        "transient": f"it fell again, {where}: taken for a while, by an autotuner or the start",
        "staircase": (
            f"it rises by stairs, every {series.period} steps{_with(series.event)}: that keeps memory, not the step"
        ),
        "saw-tooth": (
            f"it grows by {rate} a step and is given back every {series.period} steps: something is kept until then, "
            "as a list of losses with their graphs"
        ),
        "leak": f"it grew evenly by {rate} a step {where}, and went on: a leak",
        "growth": f"it grew, by {rate} a step {where}; whether it goes on, these figures do not say",
        "uneven": f"it changed unevenly {where}",
    }
    return texts[series.course]


def _with(event: str) -> str:
    return f", with each {event}" if event else ""


def _columns(figures: Sequence[Figure]) -> tuple[list[int], list[int]]:
    return [figure.step for figure in figures], [figure.allocated_bytes for figure in figures]


def _leak(figures: Sequence[Figure], policy: Policy) -> Optional[Leak]:
    floors = Floors()
    for figure in figures:
        floors.add(Floor(figure.step, figure.step * 1_000_000_000, figure.allocated_bytes, None))
    return find_leak(floors, None, policy)


def _teeth(figures: Sequence[Figure], spread: int) -> list[int]:
    """The places at which a tooth begins: the first, and where most of a rise has gone at once."""
    places, low, high = [0], figures[0].allocated_bytes, figures[0].allocated_bytes
    for place in range(1, len(figures)):
        value = figures[place].allocated_bytes
        fallen = figures[place - 1].allocated_bytes - value
        risen = high - low
        if risen > _JUMP_SHARE * spread and fallen > _GIVEN_BACK_SHARE * risen and place - places[-1] > 1:
            places.append(place)
            low = high = value
        low, high = min(low, value), max(high, value)
    return places


def _toothed(figures: Sequence[Figure], teeth: list[int], ends: tuple[int, int]) -> Series:
    """A saw-tooth, where each whole tooth rises evenly and what is left is about the same; else uneven."""
    first, second = teeth[0], teeth[1]
    tooth = figures[first:second]
    rise = tooth[-1].allocated_bytes - tooth[0].allocated_bytes
    if rise <= 0 or steady_rise(*_columns(tooth)) <= 0:
        return Series("uneven", *ends)
    rate = rise / max(1, tooth[-1].step - tooth[0].step)
    return Series("saw-tooth", *ends, rate, figures[second].step - figures[first].step)


def _stairs(figures: Sequence[Figure], spread: int) -> Optional[Series]:
    """A staircase: nearly all of the rise is in jumps, evenly apart or each with the same event; all else is flat."""
    rises = [after.allocated_bytes - before.allocated_bytes for before, after in zip(figures, figures[1:])]
    least = max(rises) / 2
    jumps = [place + 1 for place, rise in enumerate(rises) if rise >= least]
    risen = sum(rises[place - 1] for place in jumps)
    total = figures[-1].allocated_bytes - figures[0].allocated_bytes
    if len(jumps) < _FEWEST_JUMPS or total <= 0 or abs(total - risen) > _JUMP_SHARE * spread:
        return None
    apart = [figures[after].step - figures[before].step for before, after in zip(jumps, jumps[1:])]
    between = max(figures[place].step - figures[place - 1].step for place in jumps)
    events = {figures[place].event for place in jumps}
    event = events.pop() if len(events) == 1 else ""
    if min(apart) <= between or (max(apart) - min(apart) > between and not event):
        return None  # at every figure, or at no even distance
    middle = sorted(apart)[len(apart) // 2]
    return Series("staircase", figures[0].step, figures[-1].step, total / len(jumps) / middle, middle, event)
