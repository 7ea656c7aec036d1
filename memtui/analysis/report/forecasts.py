"""What was predicted, and what came: every forecast that was scored, and the one that stands."""

from __future__ import annotations

from collections.abc import Iterator

from memtui.analysis import units
from memtui.analysis.errors import SCORED, error_share
from memtui.analysis.forecast import Forecast
from memtui.analysis.text import clean
from memtui.analysis.view import Kind
from memtui.session.session import Session
from memtui.wire.frames import Event

from .facts import Row, Section, bound, cell

_COLUMNS = (("predicted_bytes", "predicted"), ("actual_bytes", "actual"))
#: How the text of those ends that are made again and again: the newest of them stands for all.
_REPEATED = ", from whole steps"


def forecast_section(session: Session, device: str, forecast: Forecast) -> Section:
    """Forecast against actual, then the peak that is predicted now."""
    scored = list(_scored(session, device)) or list(_first_step(forecast))
    if not scored:
        text = "none was scored: that takes a first step from its beginning, and later 20 steps"
        scored = [Row("scored", "scored", (cell("predicted_bytes", None), cell("actual_bytes", None)), text)]
    return Section(
        "forecasts",
        "Forecast against actual",
        (*scored, _standing(forecast, over=session.end is not None)),
        _COLUMNS,
        ("predicted",),
    )


def _scored(session: Session, device: str) -> Iterator[Row]:
    events = [event for event in session.events_of(SCORED) if event.device == device]
    repeated = [event for event in events if event.text.endswith(_REPEATED)]
    for event in events:
        if event not in repeated[:-1]:
            yield _row(event)


def _row(event: Event) -> Row:
    predicted, actual = event.figures.get("predicted_bytes"), event.figures.get("actual_bytes")
    exact = bool(event.figures.get("actual_exact", 1))
    share = error_share(event)
    what, _, when = clean(event.text, 100).partition(", ")
    error = units.UNKNOWN if share is None else _error(share)
    cells = (cell("predicted_bytes", predicted, "predicted"), cell("actual_bytes", actual, bound(exact)))
    return Row(clean(event.text, 100), what, cells, f"{error}{_when(when)}")


def _error(share: float) -> str:
    return f"{100 * share:+.1f} %" if share else "to the byte"


def _when(text: str) -> str:
    return f", {text}" if text else ""


def _first_step(forecast: Forecast) -> Iterator[Row]:
    """Of a run that ended before anything was scored."""
    actual = forecast.first_step_actual
    if forecast.first_step_bytes is None:
        return
    predicted = cell("predicted_bytes", forecast.first_step_bytes, "predicted")
    if actual is None:
        text = "before its optimizer ran; the step's end was not seen"
        yield Row("first step", "first step", (predicted, cell("actual_bytes", None)), text)
        return
    share = forecast.first_step_bytes / max(1, actual.bytes_held) - 1
    cells = (predicted, cell("actual_bytes", actual.bytes_held, bound(actual.exact)))
    yield Row("first step", "first step", cells, f"{_error(share)}, before its optimizer ran")


def _standing(forecast: Forecast, *, over: bool) -> Row:
    kind: Kind = "lower_bound" if forecast.kind == "lower_bound" else "predicted"
    interval = "" if forecast.interval is None else f"{forecast.interval.text}, "
    cells = (cell("predicted_bytes", forecast.allocated_bytes, kind), cell("device_bytes", forecast.device_bytes, kind))
    return Row("standing", "peak to expect" if not over else "if it goes on so", cells, interval + forecast.basis)
