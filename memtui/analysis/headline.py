"""A view in one line, for logs and terminals without the app."""

from __future__ import annotations

import time

from . import units
from .view import Figure, View


def headline(view: View, wall_s: float) -> str:
    """ "12:03:11 · step 1,204 · … · allocated 41.0 GiB · … · fits, 17 % to spare: …"; `wall_s` is the wall clock."""
    rows = {row.key: row.figure for row in view.rows}
    parts = [time.strftime("%H:%M:%S", time.localtime(wall_s))]
    if len(view.devices) > 1:
        parts.append(view.device)
    if view.place:
        parts.append(view.place)
    for key, label in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
        if key in rows and rows[key].value is not None:
            parts.append(f"{label} {_size(rows[key])}")
    used = rows.get("device_used_bytes")
    if used is not None and used.value is not None:
        total = view.bar.total.value if view.bar.label in {"device", "host"} else None
        label = "process" if view.bar.label == "host" else "device"
        parts.append(f"{label} {_size(used)}" + (f" of {units.size(total)}" if total is not None else ""))
    parts.append(view.step_peak)
    if view.state in {"silent", "lost"}:
        parts.append(view.state_text)
    parts.append(view.verdict.text)
    return " · ".join(part for part in parts if part)


def farewell(view: View) -> str:
    """How it ended, and the highest that was seen."""
    return " · ".join(part for part in (view.state_text, view.verdict.peak) if part)


def _size(figure: Figure) -> str:
    return ("≥ " if figure.kind == "lower_bound" else "") + units.size(figure.value)
