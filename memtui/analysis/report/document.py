"""A report as plain values for JSON: an object a section, in it an object a row, in it its figures by name.

A figure is `{"value": 25175040, "how": "measured"}`; `how` is measured, derived, predicted, lower_bound or unknown,
where the value is null. Bytes are `*_bytes`, by the names of the ladder of memory; what has no unit in its name is a
count, `percent` a share. A row with one figure has its `value` and `how` itself. `note` is what the page says beside
it, in words that may change; names do not within a `version`.

- `rank`: which one it is of, null where there was one process; `ranks` says in words why, and how the others ended.
- `model`: parameters, trained, dtypes, optimizer.
- `devices`, by torch's name, each with:
  - `first_step`: after_creation, after_forward, after_backward, after_first_step; allocated and reserved, and the
    categories where they were read at that instant;
  - `step_peak`: recorded_step, highest_step, steady_step, run (PyTorch's counter), and each phase;
  - `dominates`: a row a category at the fullest instant, or when a request failed;
  - `levers` (saved_bytes, allocated_peak_bytes), or `remedies` of one that failed or leaks;
  - `growth`: growth (bytes_per_step), fragmentation;
  - `reserved`: peak, last, pinned, retries;
  - `driver`: process_bytes, reserved_bytes, non_torch_bytes, other_process_bytes, device_free_bytes,
    device_total_bytes; on a host process_bytes, reserved_bytes, non_torch_bytes, total_bytes;
  - `exercised`: evaluation, checkpoint, input (least and most inputs_bytes), first_made (in words), other_batches_N;
  - `forecasts`: predicted_bytes and actual_bytes of first_step_after_forward, first_step_after_backward,
    later_steps_after_forward, later_steps_after_backward, recorded_allocated, recorded_reserved, whole_steps, as far
    as they were scored; and standing, which is not.
"""

from __future__ import annotations

from typing import Any

from memtui.analysis.view import Figure

from .facts import DeviceReport, Report, Row, Section

VERSION = 1


def document(report: Report) -> dict[str, Any]:
    """The whole of it. An unknown figure is null, and its row's `note` says what would tell it."""
    return {
        "kind": "report",
        "version": VERSION,
        "program": report.program,
        "pid": report.pid,
        "hostname": report.host,
        "torch": report.torch or None,
        "rank": report.rank,
        "ranks": list(report.ranks),
        "ended": report.ended,
        "exception": report.exception or None,
        "exit_status": report.exit_status,
        "steps": report.steps,
        "came_late": report.late,
        "watched_ns": report.watched_ns,
        "model": _section(report.model),
        "devices": {device.device: _device(device) for device in report.devices},
        "notices": list(report.notices),
    }


def _device(device: DeviceReport) -> dict[str, Any]:
    sections = {section.key: _section(section) for section in device.sections}
    return {"name": device.name, "device_total_bytes": device.total_bytes, "short": list(device.short), **sections}


def _section(section: Section) -> dict[str, Any]:
    return {row.key: _row(row) for row in section.rows}


def _row(row: Row) -> dict[str, Any]:
    """Figures by name; one without a name is the row's own."""
    found: dict[str, Any] = {}
    for cell in row.cells:
        if cell.key:
            found[cell.key] = _figure(cell.figure)
        else:
            found.update(_figure(cell.figure))
    return {**found, "note": row.text}


def _figure(figure: Figure) -> dict[str, Any]:
    return {"value": figure.value, "how": figure.kind}
