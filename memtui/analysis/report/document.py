"""A report as plain values for JSON: bytes are `*_bytes`, and each figure says how it was had."""

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
