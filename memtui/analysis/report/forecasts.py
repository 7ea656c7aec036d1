"""What was predicted, and what came: every forecast that was scored, and the one that stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from memtui.analysis import units
from memtui.analysis.errors import SCORED
from memtui.analysis.forecast import Forecast
from memtui.analysis.text import clean
from memtui.analysis.view import Kind
from memtui.session.session import Session
from memtui.wire.frames import Event

from .facts import Row, Section, bound, cell

_COLUMNS = (("predicted_bytes", "predicted"), ("actual_bytes", "actual"))
#: Key and label of what is scored, by how the text of its event begins and ends. Of those that are made again and
#: again, whose texts name a step in between, the newest stands for all.
_SCORES = (
    ("first_step_after_forward", "first step", "first step", "after the first forward"),
    ("first_step_after_backward", "first step", "first step", "after the first backward"),
    ("later_steps_after_forward", "later steps", "later steps", "after the first forward"),
    ("later_steps_after_backward", "later steps", "later steps", "after the first backward"),
    ("recorded_allocated", "later steps", "peak allocated", "done again"),
    ("recorded_reserved", "  reserved", "peak reserved", "done again"),
    ("whole_steps", "later steps", "peak by step", "from whole steps"),
)
#: Less than this share is told in bytes.
_SMALL = 0.0005


def forecast_section(session: Session, device: str, forecast: Optional[Forecast]) -> Section:
    """Forecast against actual, then the peak that is predicted now; None where there is no more to expect."""
    scored = list(_scored(session, device))
    if not scored and forecast is not None:
        scored = list(_first_step(forecast))
    if not scored:
        text = "none was scored: that takes a first step from its beginning, and later 20 steps"
        scored = [Row("scored", "scored", (cell("predicted_bytes", None), cell("actual_bytes", None)), text)]
    rows = scored if forecast is None else [*scored, _standing(forecast)]
    return Section("forecasts", "Forecast against actual", tuple(rows), _COLUMNS, ("predicted",))


def _scored(session: Session, device: str) -> Iterator[Row]:
    events = [event for event in session.events_of(SCORED) if event.device == device]
    for key, label, begins, ends in _SCORES:
        named = [event for event in events if event.text.startswith(begins) and event.text.endswith(ends)]
        if named:
            yield _row(key, label, named[-1])


def _row(key: str, label: str, event: Event) -> Row:
    predicted, actual = event.figures.get("predicted_bytes"), event.figures.get("actual_bytes")
    exact = bool(event.figures.get("actual_exact", 1))
    made = clean(event.text, 100).partition(", ")[2].removeprefix("after ").removeprefix("from ")
    cells = (cell("predicted_bytes", predicted, "predicted"), cell("actual_bytes", actual, bound(exact)))
    return Row(key, label, cells, f"{_error(predicted, actual, exact=exact)}, by {made}")


def _error(predicted: Optional[int], actual: Optional[int], *, exact: bool) -> str:
    """ "+1.2 %", "to the byte", "512 B too much"; of a lower bound no more than it tells."""
    if predicted is None or not actual:
        return units.UNKNOWN
    much = "much" if predicted > actual else "little"
    if predicted == actual:
        text = "to the byte"
    elif abs(predicted - actual) < _SMALL * actual:
        text = f"{units.size(abs(predicted - actual))} too {much}"
    else:
        text = f"{100 * (predicted / actual - 1):+.1f} %"
    return text if exact else f"{text} at {'most' if predicted >= actual else 'least'}"


def _first_step(forecast: Forecast) -> Iterator[Row]:
    """Of a run that ended before anything was scored."""
    actual, key, label = forecast.first_step_actual, "first_step_after_backward", "first step"
    if forecast.first_step_bytes is None:
        return
    predicted = cell("predicted_bytes", forecast.first_step_bytes, "predicted")
    if actual is None:
        text = "by the first backward; the step's end was not seen"
        yield Row(key, label, (predicted, cell("actual_bytes", None)), text)
        return
    error = _error(forecast.first_step_bytes, actual.bytes_held, exact=actual.exact)
    cells = (predicted, cell("actual_bytes", actual.bytes_held, bound(actual.exact)))
    yield Row(key, label, cells, f"{error}, by the first backward")


def _standing(forecast: Forecast) -> Row:
    kind: Kind = "lower_bound" if forecast.kind == "lower_bound" else "predicted"
    wide = forecast.interval is not None and (forecast.interval.above or forecast.interval.below)
    interval = f"{forecast.interval.text}, " if forecast.interval is not None and wide else ""
    cells = (cell("predicted_bytes", forecast.allocated_bytes, kind), cell("device_bytes", forecast.device_bytes, kind))
    return Row("standing", "to expect", cells, interval + forecast.basis)
