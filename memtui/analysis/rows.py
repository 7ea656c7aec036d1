"""The right-hand column and the chart's horizontal lines."""

from __future__ import annotations

import itertools
from typing import Optional

from memtui.session.session import Session

from . import units
from .forecast import Forecast
from .ladder import Ladder
from .view import Figure, Kind, Row, Rule

#: A step that was read is looked for among so many.
_LATE_STEPS = 512


def build_rows(session: Session, device: str, ladder: Ladder, forecast: Forecast) -> tuple[Row, ...]:
    """The figures of the column, always in the same order, unknown ones as such."""
    total = ladder.total_bytes
    driver = ladder.driver_age_ns
    frame = session.device_frame(device)
    counters = _counters(session, device)
    peak: Optional[int] = None if frame is None else frame.step_peak_bytes
    exact = frame is not None and frame.step_peak_exact
    moved: Kind = "derived" if ladder.moved_bytes else "measured"
    if ladder.is_host:
        used = _row("device_used_bytes", "process (RSS)", ladder.used_bytes, "measured", total, source=ladder.source)
        non_torch = _row("non_torch_bytes", "outside malloc", ladder.non_torch_bytes, "derived", total)
    else:
        used = _row("device_used_bytes", "device used", ladder.used_bytes, moved, total, driver, ladder.source)
        non_torch = _row(
            "non_torch_bytes", "non-torch", ladder.non_torch_bytes, "derived", total, driver, "NVML, torch"
        )
    # A lower bound of the peak is an upper bound of the headroom, for which there is no mark: it is a prediction.
    rows = [
        used,
        _row("reserved_bytes", "reserved", ladder.reserved_bytes, "measured", total, source=counters),
        _row("allocated_bytes", "allocated", ladder.allocated_bytes, "measured", total, source=counters),
        _row("step_peak_bytes", "peak this step", peak, "measured" if exact else "lower_bound", total, source=counters),
        _row("predicted_peak_bytes", "predicted peak", forecast.device_bytes, forecast.kind, total),
        _row("headroom_bytes", "headroom", forecast.headroom_bytes, "predicted", total),
        non_torch,
        _row(
            "other_process_bytes",
            "other processes",
            ladder.other_process_bytes,
            "measured",
            total,
            driver,
            ladder.source,
        ),
        _row(
            "device_free_bytes",
            "free" if ladder.is_host else "device free",
            ladder.free_bytes,
            moved,
            total,
            driver,
            ladder.source,
        ),
    ]
    if frame is None and not ladder.is_host:
        rows.insert(
            1, _row("process_bytes", "this process", ladder.process_bytes, "measured", total, driver, ladder.source)
        )
    return tuple(rows)


def step_peak_text(session: Session, device: str) -> str:
    """The newest step's peak that is known: that of the step under way, where it is higher already."""
    frame = session.device_frame(device)
    if frame is None or frame.step_peak_bytes is None:
        return ""
    steps = itertools.islice(reversed(session.steps.recent), _LATE_STEPS)
    last = next((peak for peak in (step.peak(device) for step in steps) if peak is not None), None)
    if last is None or frame.step_peak_bytes >= last.bytes_held:
        return f"step peak {'' if frame.step_peak_exact else '≥ '}{units.size(frame.step_peak_bytes)}"
    return f"step peak {'' if last.exact else '≥ '}{units.size(last.bytes_held)} (step {last.step:,})"


def build_rules(ladder: Ladder, forecast: Forecast) -> tuple[Rule, ...]:
    """Capacity, a cap on what is reserved, and the predicted peak: what the device needs, not only the tensors."""
    rules = []
    if ladder.total_bytes is not None:
        rules.append(Rule("capacity", f"capacity {units.size(ladder.total_bytes)}", ladder.total_bytes, "measured"))
    if ladder.allowed_bytes is not None:
        cap = f"may reserve {units.size(ladder.allowed_bytes)}"
        rules.append(Rule("capacity", cap, ladder.allowed_bytes, "measured"))
    predicted = forecast.allocated_bytes if forecast.device_bytes is None else forecast.device_bytes
    if predicted is not None:
        bound = "≥ " if forecast.kind == "lower_bound" else ""
        name = "predicted peak" if predicted == forecast.device_bytes else "predicted allocated"
        rules.append(Rule("predicted_peak", f"{name} {bound}{units.size(predicted)}", predicted, forecast.kind))
    return tuple(rules)


def _row(
    key: str,
    label: str,
    value: Optional[int],
    kind: Kind,
    total: Optional[int],
    age_ns: Optional[int] = None,
    source: str = "",
) -> Row:
    if value is None:
        return Row(key, label, Figure(None, "unknown", source=source))
    return Row(key, label, Figure(value, kind, age_ns=age_ns, source=source), 100 * value / total if total else None)


def _counters(session: Session, device: str) -> str:
    known = session.device(device)
    return known.counters if known is not None else ""
