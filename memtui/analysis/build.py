"""From a session to what one screen says."""

from __future__ import annotations

from memtui.session.session import Session

from .bar import build_bar
from .caught import caught_lines
from .composition import fullest, spread
from .errors import interval_of
from .events import event_lines
from .forecast import build_forecast, forecast_lines
from .fragmentation import find_holes, fragmentation_lines
from .growth import growth_line
from .ladder import Ladder, build_ladder
from .leak import find_larger, find_leak
from .optimizers import optimizer_state
from .phasepeaks import besides_lines, phase_peaks_line, rarer_phases
from .policy import DEFAULT, Policy
from .rows import build_rows, build_rules, step_peak_text
from .shapes.outlook import shape_lines
from .status import frame_age_ns, hardware_line, notices_of, place_of, state_of
from .steady import steady_lines
from .text import clean, command
from .verdict import build_verdict
from .view import DeviceChoice, Figure, Kind, View


def build_view(session: Session, device: str, now_ns: int, policy: Policy = DEFAULT) -> View:
    """The view of one device of a session at `now_ns` (the monitored machine's monotonic clock)."""
    ladder = build_ladder(session, device, now_ns, policy)
    forecast = build_forecast(session, device, ladder)
    holes = find_holes(session, device)
    floors = session.floors(device)
    leak = find_leak(floors, forecast.headroom_bytes, policy)
    larger = find_larger(floors, policy) if leak is None else None
    state, state_text = state_of(session, now_ns, policy)
    hello, host, known = session.hello, session.host, session.device(device)
    reading = session.reading(device)
    name = known.name if known is not None and known.name else reading.name if reading is not None else ""
    return View(
        program=_program(session),
        pid=session.pid or 0,
        user=clean(host.user, 40) if host is not None else "",
        host=clean(hello.hostname, 80) if hello is not None else "",
        device=clean(device, 40),
        device_name=clean(name, 80),
        devices=_choices(session, ladder, device, now_ns, policy),
        state=state,
        state_text=state_text,
        place=place_of(session),
        phase=session.frame.phase if session.frame is not None else "",
        verdict=build_verdict(session, device, ladder, forecast, holes, leak, now_ns, policy),
        rows=build_rows(session, device, ladder, forecast),
        rules=build_rules(ladder, forecast),
        bar=build_bar(session, device, ladder, policy),
        fragmentation=fragmentation_lines(session, device, ladder, holes, policy),
        forecast=(
            *forecast_lines(forecast, ladder, over=session.end is not None),
            *besides_lines(session, device, policy),
            *caught_lines(session, device),
            *_steady_lines(session, device),
            *shape_lines(session.shapes(device)),
        ),
        hardware=hardware_line(session, device, ladder.others),
        growth=growth_line(session, device, leak, larger, policy),
        events=event_lines(session, device),
        notices=notices_of(session, device, ladder.notes),
        now_ns=now_ns,
        frame_age_ns=frame_age_ns(session, now_ns),
        phase_peaks=phase_peaks_line(session, device),
        phases_seen=rarer_phases(session, device),
        fullest=fullest(session, device),
        spread=spread(session, device),
        step_peak=step_peak_text(session, device),
        optimizer_state=optimizer_state(session, device),
        leak=leak,
        larger=larger,
    )


def _program(session: Session) -> str:
    if session.hello is not None and session.hello.argv:
        return command(session.hello.argv)
    if session.host is not None and session.host.cmdline:
        return command(session.host.cmdline)
    return clean(session.program, 200)


def _choices(session: Session, shown: Ladder, device: str, now_ns: int, policy: Policy) -> tuple[DeviceChoice, ...]:
    choices = []
    for each in session.devices:
        ladder = shown if each.device == device else build_ladder(session, each.device, now_ns, policy)
        choices.append(
            DeviceChoice(
                clean(each.device, 40), clean(each.name, 80), _figure(ladder.used_bytes), _figure(ladder.total_bytes)
            )
        )
    return tuple(choices)


def _figure(value: int | None) -> Figure:
    kind: Kind = "unknown" if value is None else "measured"
    return Figure(value, kind)


def _steady_lines(session: Session, device: str) -> tuple[str, ...]:
    found, frame = session.steady_step(device), session.device_frame(device)
    if found is None:
        return ()
    counted = None if frame is None else frame.reserved_peak_bytes
    return steady_lines(found, counted, interval_of(session, device, "recorded step"), over=session.end is not None)
