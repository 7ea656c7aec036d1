"""From a session to a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from memtui.analysis import units
from memtui.analysis.build import build_view
from memtui.analysis.events import event_text
from memtui.analysis.forecast import Forecast, build_forecast
from memtui.analysis.fragmentation import find_holes
from memtui.analysis.ladder import build_ladder
from memtui.analysis.leak import find_leak, full_text, rate_text
from memtui.analysis.policy import DEFAULT, Policy
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.text import clean
from memtui.analysis.verdict import TO_SPARE, fit
from memtui.session.session import Session

from .advice import Parts, find_parts, levers_section, parts_section
from .ended import against, answer_to, cause_text, fatal_oom, held_at, remedies_section, status_text, why
from .facts import DeviceReport, Report, Section, figure_text
from .forecasts import forecast_section
from .growth import growth_section
from .model import model_section
from .outside import driver_section, reserved_section
from .peaks import passes_section, peak_line, peak_section
from .seen import Seen
from .stages import came_late, stages_section


def build_report(
    session: Session, seen: Seen, now_ns: int, devices: Optional[Iterable[str]] = None, policy: Policy = DEFAULT
) -> Report:
    """The report of a session at its end (`now_ns`, monotonic), of these devices or all that PyTorch used."""
    hello, frame, end = session.hello, session.frame, session.end
    names = used_devices(session) if devices is None else tuple(devices)
    reports = tuple(_device(session, seen, name, now_ns, policy) for name in names)
    shown = names[0] if names else session.default_device()
    view = build_view(session, shown, now_ns, policy)
    return Report(
        program=view.program,
        pid=view.pid,
        host=view.host,
        torch="" if hello is None else clean(hello.torch, 40),
        ended=status_text(end),
        exception=cause_text(end),
        exit_status=None if end is None else end.exit_status,
        steps=None if frame is None else frame.step,
        late=came_late(session),
        watched_ns=_watched_ns(session, names),
        model=model_section(session),
        devices=reports,
        notices=view.notices,
    )


def used_devices(session: Session) -> tuple[str, ...]:
    """Those with figures of PyTorch, the one with most memory first."""
    first = session.default_device()
    names = [device.device for device in session.devices if session.device_frame(device.device) is not None]
    return tuple(sorted(names, key=lambda name: (name != first, name)))


def _watched_ns(session: Session, devices: Iterable[str]) -> Optional[int]:
    spans = []
    for device in devices:
        series = session.series(device, "allocated_bytes")
        if series is not None and series.first_time_ns is not None and series.last_time_ns is not None:
            spans.append((series.first_time_ns, series.last_time_ns))
    return max(last for _, last in spans) - min(first for first, _ in spans) if spans else None


def _device(session: Session, seen: Seen, device: str, now_ns: int, policy: Policy) -> DeviceReport:
    ladder = build_ladder(session, device, now_ns, policy)
    forecast = build_forecast(session, device, ladder)
    holes = find_holes(session, device)
    leak = find_leak(session.floors(device), forecast.headroom_bytes, policy)
    recorded = session.recorded(device)
    timeline = StepTimeline(recorded[-1]) if recorded else None
    found, known = find_parts(session, device, timeline), session.device(device)
    oom, counted = fatal_oom(session, device), seen.counted.get(device)
    judged = fit(ladder, forecast, holes, policy)
    short: list[str] = []
    if oom is None and leak is not None:
        grows = f"allocated {rate_text(leak)}{full_text(leak)}"
        short += [grows, _judged(judged.text.partition(TO_SPARE)[2] or judged.text, forecast)]
        helping = remedies_section(*against("leak"))
    elif oom is None:
        short.append(_judged(judged.text, forecast))
        helping = levers_section(session, device, now_ns, policy, fits=judged.level == "good")
    else:
        failed = held_at(session, oom)
        if failed is not None and (found is None or failed.allocated_bytes >= found.allocated_bytes):
            found = failed
        answer = answer_to(session, oom, failed)
        short += [event_text(oom, session.model), why(answer)]
        helping = remedies_section(answer.remedies, answer.not_helping)
    sections = (
        stages_section(session, seen.stages, device),
        peak_section(session, device, timeline, counted),
        parts_section(found),
        helping,
        growth_section(session, device, leak, holes, policy),
        reserved_section(session, device, holes),
        driver_section(session, device, ladder, policy),
        passes_section(session, device),
        forecast_section(session, device, None if oom is not None else forecast),
    )
    short += [peak_line(session, device, counted), *_dominates(found)]
    if judged.level != "good" or oom is not None or leak is not None:
        short += _first_lever(helping)
    short = [line for line in short if line]
    name = "" if known is None else clean(known.name, 80)
    return DeviceReport(clean(device, 40), name, ladder.total_bytes, tuple(short), sections)


# In short


def _judged(text: str, forecast: Forecast) -> str:
    """The verdict; what it says of the device is of tensors and of all else on it."""
    if forecast.device_bytes is None or forecast.allocated_bytes is None or forecast.allowed_bytes is not None:
        return text
    beside = units.size(forecast.device_bytes - forecast.allocated_bytes)
    return f"{text} ({units.size(forecast.allocated_bytes)} of tensors and {beside} beside them)"


def _dominates(found: Optional[Parts]) -> Iterator[str]:
    if found is None or not found.parts:
        return
    key, size = found.parts[0]
    words = "dominates" if 2 * size >= found.allocated_bytes else "is the largest part"
    label = "what is in no category" if key == "unattributed" else key.replace("_", " ")
    if label.endswith("s"):
        words = "dominate" if words == "dominates" else "are the largest part"
    yield f"{label} {words}: {units.size(size)} of {units.size(found.allocated_bytes)}, {found.where}"


def _first_lever(helping: Section) -> Iterator[str]:
    first = next(iter(helping.rows), None)
    saved = None if first is None else first.figure("saved_bytes")
    if first is None or (helping.key == "levers" and (saved is None or saved.value is None)):
        return
    what = first.label if helping.key == "levers" else first.text.partition("; price")[0]
    gain = "" if saved is None or saved.value is None else f" (up to {figure_text(saved)} less)"
    yield f"first to try: {what}{gain}"
