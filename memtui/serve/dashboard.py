"""The Grafana dashboard: `python -m memtui.serve.dashboard > memtui/serve/dashboard.json` writes it anew.

It asks for what `memtui serve` exposes and for nothing else, so that it works without the recording rules.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from . import dashboard_panels as panels
from .dashboard_panels import Plain, bars, histogram, query, stat, table, timeseries

#: The series of the ranks that were chosen, and what tells one rank's device from another's.
CHOSEN = 'instance=~"$instance",run=~"$run",rank=~"$rank",device=~"$device"'
RANK = "instance, run, rank, pid, device"
#: A time series with more lines than this is a stain.
_MOST = 10


def _of(name: str, more: str = "") -> str:
    """A series of the chosen ranks."""
    return f"memtui_{name}{{{CHOSEN}{',' if more else ''}{more}}}"


def _device(name: str) -> str:
    """A series of the devices of the chosen hosts."""
    return f'memtui_device_{name}_bytes{{instance=~"$instance"}}'


def _by_rank(expression: str, operator: str = "max") -> str:
    """One series a rank's device, with the labels that name it and no others: tables are joined by these."""
    return f"{operator} by ({RANK}) ({expression})"


def _ranks(series: str, label: str) -> str:
    """How many processes have a 1 in the series: one that uses several devices has it on each."""
    return f"sum(max by (instance, run, rank, pid, {label}) ({series}))"


def _in(states: str) -> str:
    return _of("state", f'state=~"{states}"')


_FAILURES = _of("ends_total", 'outcome!~"ok|interrupted"')
_SHARE_LEFT = f"{_of('headroom_bytes')} / {_of('capacity_bytes')}"
_LEFT = panels.thresholds("red", (0.05, "orange"), (0.1, "green"))
_USED = panels.thresholds("green", (0.9, "orange"), (0.95, "red"))
_NONE_IS_GOOD = panels.thresholds("green", (1, "red"))
_FEW_ARE_GOOD = panels.thresholds("green", (1, "orange"))
_STATES = {"live": "green", "silent": "red", "stopped": "orange", "ended": "text"}
_PHASES = {
    "startup": "text",
    "forward": "blue",
    "backward": "purple",
    "optimizer": "green",
    "between": "yellow",
    "evaluation": "light-blue",
    "checkpoint": "orange",
    "compilation": "red",
}
#: As in the interface: who has read the bar there knows the areas here.
_CATEGORIES = {
    "parameters": "#5b8dee",
    "buffers": "#8fb3ff",
    "gradients": "#f29e4c",
    "optimizer_state": "#5fbf7f",
    "activations": "#c678dd",
    "temporaries": "#e5c453",
    "inputs": "#4fc4cf",
    "workspaces": "#b58863",
    "communication": "#2f8f9f",
    "private_pools": "#8488d0",
    "unattributed": "#d0869b",
}
_LEVELS = {"allocated": "#2f9fd8", "reserved": "#c9a0ff", "device": "#aab6c5"}


def _now() -> Iterable[Plain]:
    yield stat(
        "Lowest headroom",
        f"min({_SHARE_LEFT})",
        "What the fullest rank has left at its predicted peak, as a share of what it may take. Below 5 % the next "
        "larger batch, or a fragmented cache, ends in an out of memory. It is below zero where the peak will not fit.",
        unit="percentunit",
        steps=_LEFT,
        width=4,
    )
    yield stat(
        "Lowest headroom in bytes",
        f"min({_of('headroom_bytes')})",
        "Capacity less predicted peak, of the rank where this is least.",
        unit="bytes",
        width=4,
    )
    yield stat("Ranks alive", _ranks(_in("live"), "state"), "Processes whose frames come in.", width=3)
    yield stat(
        "Silent now",
        _ranks(_in("silent|stopped"), "state"),
        "Ranks whose process is there but says nothing, or is stopped. The others will wait for it.",
        steps=_NONE_IS_GOOD,
        width=3,
    )
    yield stat(
        "Out of memory",
        f"sum(max_over_time({_of('ooms_total')}[$__range]))",
        "Requests that the allocator gave up, of all processes that were seen in this range of time.",
        steps=_NONE_IS_GOOD,
        width=3,
    )
    yield stat(
        "Allocation retries",
        f"sum(max_over_time({_of('alloc_retries_total')}[$__range]))",
        "Times that the allocator had to give its cache back to the driver and ask again. Each stops the device.",
        steps=_FEW_ARE_GOOD,
        width=3,
    )
    yield stat(
        "Leaking",
        f"count({_of('leak_bytes_per_step')} > 0) or vector(0)",
        "Ranks whose memory grows by the step and does not come back.",
        steps=_NONE_IS_GOOD,
        width=2,
    )
    yield stat(
        "Failed",
        _ranks(f"max_over_time({_FAILURES}[$__range])", "outcome"),
        "Ranks that ended with an exception, out of memory, killed, or without a word, in this range of time.",
        steps=_NONE_IS_GOOD,
        width=2,
    )


def _headroom() -> Iterable[Plain]:
    figures = (
        ("headroom_bytes", "Headroom"),
        ("predicted_peak_device_bytes", "Predicted peak"),
        ("process_device_bytes", "Device, now"),
        ("reserved_bytes", "Reserved, now"),
        ("allocated_bytes", "Allocated, now"),
        ("allocated_window_peak_bytes", "Peak of the last minute"),
    )
    yield table(
        "Headroom by rank, lowest first",
        "Capacity less predicted peak. Choose a rank above to see it alone in the panels below.",
        {"Left": _by_rank(_SHARE_LEFT, "min"), **{title: _by_rank(_of(name)) for name, title in figures}},
        units={"Left": "percentunit", **{title: "bytes" for _, title in figures}},
        gauges={"Left": _LEFT},
        sort=("Left", False),
        width=24,
        height=10,
    )
    yield timeseries(
        "Headroom of the fullest ranks",
        "Those with the least left at each instant. A line that falls step by step is a leak or a growing batch.",
        [
            query(
                f"bottomk({_MOST}, {_by_rank(_of('headroom_bytes'), 'min')})",
                "{{run}} {{rank}} {{instance}} {{device}}",
            )
        ],
        unit="bytes",
        width=12,
    )
    yield histogram(
        "How full the ranks are",
        "Ranks by what their predicted peak leaves of the capacity, now. Stages of a pipeline are towers of their own; "
        "what stands alone is an outlier.",
        query(_by_rank(_SHARE_LEFT, "min"), "left", instant=True),
        unit="percentunit",
        bucket=0.02,
        width=12,
    )


def _memory() -> Iterable[Plain]:
    yield timeseries(
        "Memory against capacity",
        "The most that any of the chosen ranks has; with one rank chosen, that rank's own. Device is the driver's "
        "figure for the process: reserved and what PyTorch does not see.",
        [
            query(f"max({_of('allocated_bytes')})", "allocated"),
            query(f"max({_of('reserved_bytes')})", "reserved"),
            query(f"max({_of('process_device_bytes')})", "device"),
            query(f"max({_of('predicted_peak_device_bytes')})", "predicted peak"),
            query(f"min({_of('capacity_bytes')})", "capacity"),
        ],
        unit="bytes",
        minimum=0,
        width=12,
        colours=_LEVELS,
        dashed={"predicted peak": "#ffb454", "capacity": "#ff6b6b"},
    )
    yield timeseries(
        "Where the memory goes",
        "Allocated bytes by owner, the mean of the chosen ranks; with one rank chosen, that rank's own.",
        [query(f"avg by (category) ({_of('category_bytes')})", "{{category}}")],
        unit="bytes",
        width=12,
        stacked=True,
        colours=_CATEGORIES,
    )
    peak = _of("allocated_window_peak_bytes")
    yield timeseries(
        "Peaks of the last minute",
        "The highest allocated within 60 s, spikes between two scrapes included: of the highest, the middle and the "
        "lowest rank. They come apart where one rank gets longer sequences, more experts, or a context too many.",
        [
            query(f"max by (run) ({peak})", "{{run}} highest"),
            query(f"quantile by (run) (0.5, {peak})", "{{run}} median"),
            query(f"min by (run) ({peak})", "{{run}} lowest"),
        ],
        unit="bytes",
        width=12,
    )
    yield timeseries(
        "Memory of the highest rank against the median",
        "1 is as much as the median rank. Stages of a pipeline differ by right; a change is what tells.",
        [query(f"max by (run) ({peak}) / quantile by (run) (0.5, {peak})", "{{run}}")],
        unit="none",
        decimals=2,
        width=12,
    )


def _steps() -> Iterable[Plain]:
    step = _of("last_step_seconds")
    yield timeseries(
        "Step time",
        "Of the slowest, the median and the fastest rank.",
        [
            query(f"max by (run) ({step})", "{{run}} slowest"),
            query(f"quantile by (run) (0.5, {step})", "{{run}} median"),
            query(f"min by (run) ({step})", "{{run}} fastest"),
        ],
        unit="s",
        minimum=0,
        width=8,
    )
    forward = _of("forward_seconds")
    yield timeseries(
        "Forward of the slowest rank against the median",
        "Ranks that wait for each other have the same step time; the forward shows who is behind. 1 is alike.",
        [query(f"max by (run) ({forward}) / quantile by (run) (0.5, {forward})", "{{run}}")],
        unit="none",
        decimals=2,
        width=8,
    )
    begun = _of("step_since_timestamp_seconds")
    yield timeseries(
        "Longest step under way",
        "Seconds from its beginning to the newest frame. It rises without end where a rank waits for another one.",
        [
            query(
                f"max by (run) ({_of('frame_timestamp_seconds')} - {begun})",
                "{{run}}",
            )
        ],
        unit="s",
        width=8,
    )
    yield timeseries(
        "Steps a second",
        "The mean of the chosen ranks.",
        [query(f"avg by (run) (rate({_of('steps_total')}[$__rate_interval]))", "{{run}}")],
        unit="none",
        decimals=2,
        minimum=0,
        width=12,
    )
    yield timeseries(
        "Ranks by phase",
        "Where the chosen ranks are; one that uses several devices counts on each. Phases are times of dispatch: a GPU "
        "is still at work when the next one begins.",
        [query(f"sum by (phase) ({_of('phase')})", "{{phase}}")],
        unit="none",
        minimum=0,
        width=12,
        stacked=True,
        colours=_PHASES,
    )


def _troubles() -> Iterable[Plain]:
    yield timeseries(
        "Ranks by state",
        "Silent: the process is there, but no frames come. Stopped: by a signal. Ended ranks go after five minutes.",
        [query(f"sum by (state) ({_of('state')})", "{{state}}")],
        unit="none",
        minimum=0,
        width=12,
        stacked=True,
        colours=_STATES,
    )
    yield bars(
        "Events",
        "What the agents have told, within each interval.",
        [query(f"sum by (event) (increase({_of('events_total')}[$__rate_interval]))", "{{event}}")],
        width=12,
    )
    yield timeseries(
        "Out of memory and allocation retries, so far",
        "Of the ranks that are there. Retries before an out of memory say that it was near for long.",
        [
            query(f"sum by (run) ({_of('ooms_total')})", "{{run}} out of memory"),
            query(f"sum by (run) ({_of('alloc_retries_total')})", "{{run}} retries"),
        ],
        unit="none",
        minimum=0,
        width=12,
    )
    yield timeseries(
        "Ends",
        "Ranks that have ended, by how; each is shown for five minutes.",
        [query(f"sum by (outcome) ({_of('ends_total')})", "{{outcome}}")],
        unit="none",
        minimum=0,
        width=12,
        colours={
            **{"ok": "green", "interrupted": "blue", "exception": "orange"},
            **{"oom": "red", "killed": "purple", "silent": "text"},
        },
    )
    yield table(
        "Silent ranks",
        "Look at the process first: py-spy dump --pid, or memtui attach --pid on its host.",
        {
            "Silent for": f"(time() - {_by_rank(_of('frame_timestamp_seconds'))}) and on ({RANK}) "
            f"{_in('silent|stopped')} == 1",
        },
        units={"Silent for": "s"},
        sort=("Silent for", True),
        empty="All ranks are heard.",
        width=12,
    )
    leak = _of("leak_bytes_per_step")
    yield table(
        "Leaks",
        "Memory that every step leaves behind, and how long that can go on.",
        {
            "A step": _by_rank(leak),
            "Steps left": _by_rank(_of("steps_left"), "min"),
            "Time left": _by_rank(f"{_of('steps_left')} * {_of('last_step_seconds')}", "min"),
        },
        units={"A step": "bytes", "Steps left": "none", "Time left": "s"},
        sort=("Time left", False),
        empty="No rank leaks.",
        width=12,
    )


def _devices() -> Iterable[Plain]:
    joined = "max by (instance, index, device_name, device_uuid)"
    figures = (
        ("used", "Used"),
        ("total", "Total"),
        ("free", "Free"),
        ("reserved", "Driver's own"),
        ("other", "Others"),
    )
    yield table(
        "Devices, fullest first",
        "By the driver, whoever uses them. Others are processes without an agent of memtui.",
        {
            "Full": f"{joined} ({_device('used')} / {_device('total')})",
            **{title: f"{joined} ({_device(name)})" for name, title in figures},
        },
        units={"Full": "percentunit", **{title: "bytes" for _, title in figures}},
        gauges={"Full": _USED},
        sort=("Full", True),
        width=14,
        height=9,
    )
    yield timeseries(
        "Memory of other processes",
        "On the devices of each host, where the driver tells. A notebook, a display, or a training that was not ended.",
        [query(f"topk({_MOST}, sum by (instance) ({_device('other')}))", "{{instance}}")],
        unit="bytes",
        minimum=0,
        width=10,
        height=9,
    )


def _itself() -> Iterable[Plain]:
    where = '{instance=~"$instance"}'
    yield timeseries(
        "Hosts and ranks that answer",
        "Hosts whose memtui serve was scraped, and the agents that these hear.",
        [
            query(f"count(memtui_build_info{where})", "hosts"),
            query(f"sum(memtui_serve_agents{where})", "agents"),
        ],
        unit="none",
        minimum=0,
        width=8,
    )
    yield stat(
        "Hosts lost",
        f"count(count by (instance) (last_over_time(memtui_build_info{where}[$__range]))) - "
        f"(count(count by (instance) (memtui_build_info{where})) or vector(0))",
        "Hosts that answered within this range of time and do so no more.",
        steps=_NONE_IS_GOOD,
        width=4,
        height=8,
    )
    yield timeseries(
        "Frames lost",
        "Frames that an agent could not hand to memtui serve. The figures stay right; peaks may come later.",
        [query(f"sum by (instance) (rate({_of('lost_frames_total')}[$__rate_interval]))", "{{instance}}")],
        unit="none",
        minimum=0,
        width=6,
    )
    yield timeseries(
        "Left out",
        "Ranks beyond what one memtui serve exposes.",
        [query(f"sum by (instance) (memtui_serve_left_out{where})", "{{instance}}")],
        unit="none",
        minimum=0,
        width=6,
    )


def _variables() -> list[Plain]:
    chosen_hosts, chosen_run = 'instance=~"$instance"', 'instance=~"$instance",run=~"$run"'
    return [
        panels.datasource_variable(),
        panels.variable("instance", "Host", "label_values(memtui_build_info, instance)"),
        panels.variable("run", "Run", f"label_values(memtui_rank_info{{{chosen_hosts}}}, run)"),
        panels.variable("rank", "Rank", f"label_values(memtui_rank_info{{{chosen_run}}}, rank)", numbers=True),
        panels.variable("device", "Device", f"label_values(memtui_rank_info{{{chosen_run}}}, device)"),
    ]


def dashboard() -> Plain:
    """All of it, as Grafana's classic model of a dashboard."""
    rows: Sequence[tuple[Optional[str], Iterable[Plain]]] = (
        (None, _now()),
        ("Headroom", _headroom()),
        ("Memory", _memory()),
        ("Steps", _steps()),
        ("Troubles", _troubles()),
        ("Devices", _devices()),
        ("memtui itself", _itself()),
    )
    return {
        "uid": "memtui",
        "title": "memtui: memory of PyTorch trainings",
        "description": "Where the memory of each rank went, whether it will fit, and which rank is unlike the others.",
        "tags": ["memtui", "pytorch", "gpu"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "refresh": "30s",
        "links": [],
        "templating": {"list": _variables()},
        "annotations": {
            "list": [
                panels.annotation(
                    "Out of memory",
                    f"changes({_of('ooms_total')}[2m]) > 0",
                    "{{run}} rank {{rank}} on {{instance}}, {{device}}",
                )
            ]
        },
        "panels": panels.laid_out(rows),
    }


def text() -> str:
    """The JSON, a panel a line: a change of one is a change of a line."""
    whole = dashboard()
    lines = [f"{json.dumps(key)}: {_value(value)}" for key, value in whole.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(json.dumps(each) for each in value) + "\n]"
    return json.dumps(value)


if __name__ == "__main__":
    sys.stdout.write(text())
