"""Histories of short steps, whose events are read once a step has gone on: they are as if read at its end."""

from __future__ import annotations

import json
import pathlib
import subprocess
import threading
from collections import Counter
from typing import Any

import pytest

from memtui.snapshots.model import LIVE, snapshot_from
from memtui.snapshots.queries import Opened
from memtui.sources.history_client import History, HistoryRefused, ask_history
from memtui.wire import paths
from tests.support import programs
from tests.support.supervised import runtime_folder
from tests.support.targets import target

pytestmark = pytest.mark.virtual_gpu

#: Short steps of many allocations, also of segments. At its end it says in which forwards a history was on; how many
#: allocations there had been after each step, and what was live; and what a history of its own holds of an annotation.
SHORT = """
import json, select, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(30))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
rows = torch.randn(64, 256, device="cuda")
on, ends, kept = [], [], []
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    on.append(torch._C._cuda_isHistoryEnabled())
    kept.append(torch.empty((len(on) % 7 + 1) << 20, dtype=torch.uint8, device="cuda"))
    for _ in range(1500):  # that takes no longer than to record it
        torch.empty(1, device="cuda")
    loss = model(rows).square().mean()
    kept = kept[-3:]
    BACKWARD
    optimizer.step()
    ends.append([torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.memory_allocated()])
    optimizer.zero_grad()
    torch.cuda.empty_cache()
enabled, memory = torch._C._cuda_isHistoryEnabled(), torch.cuda.memory
memory._record_memory_history("all", context=None, stacks="python")
with torch.profiler.record_function("named"):
    torch.empty(1, device="cuda")
named = len(memory._snapshot().get("external_annotations", ()))
memory._record_memory_history(None)
print(json.dumps({"on": on, "ends": ends, "enabled": enabled, "named": named}), flush=True)
"""
TRAINS = SHORT.replace("BACKWARD", "loss.backward()")
#: No backward pass ever begins.
FILLS = SHORT.replace("BACKWARD", "for each in model.parameters(): each.grad = torch.zeros_like(each)")


def recorded(code: str, runtime: pathlib.Path, steps: int, *, stacks: bool) -> tuple[History, dict[str, Any]]:
    """A history of a program, which another viewer wanted first and did not wait for, and what the program says."""
    environment = programs.virtual_environment_with_agent(runtime, memory="4GiB")
    with (
        runtime_folder(runtime),
        target(code, runtime, environment=environment, stderr=subprocess.PIPE) as process,
    ):
        path = runtime / paths.agent_socket_name(process.pid)
        programs.wait_for(path.exists, what="the agent")
        with pytest.raises(HistoryRefused):
            gone_while_recording(path)

        def ask() -> Any:
            try:
                return ask_history(path, steps, stacks=stacks)
            except HistoryRefused as error:
                if "already" not in str(error):  # that the first one has gone has not been noticed yet
                    raise
                return None

        history: History = programs.wait_for(ask)
        said, errors = process.communicate("\n", timeout=60)
        assert process.returncode == 0, errors
        assert "allback" not in errors  # as torch says where it does not find what it has put in
    return history, json.loads(said)


def gone_while_recording(path: pathlib.Path) -> None:
    cancel = threading.Event()
    ask_history(path, 100_000, told=lambda state: cancel.set() if state == "recording" else None, cancel=cancel)


def check(history: History, said: dict[str, Any]) -> None:
    """Its events lead to its segments, and both to what the program has counted at the step's end."""
    assert said["named"] in (0, 2)  # an annotation begins and ends once, where this torch notes it
    figures, snapshot = history.figures, history.snapshot
    first, last = (said["ends"][figures["step"] + count - 1] for count in (0, figures["steps"]))
    (trace,) = [trace for trace in snapshot["device_traces"] if trace]
    assert figures["events"] == len(trace)
    actions = Counter(event["action"] for event in trace)
    assert actions["alloc"] == figures["allocations"] == last[0] - first[0]
    assert actions["segment_alloc"] > 0
    assert actions["segment_free"] > 0
    assert "snapshot" not in actions

    live = {b["address"]: b["size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == LIVE}
    segments = {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}
    assert sum(live.values()) == figures["allocated_bytes"] == last[1]
    assert sum(segments.values()) == figures["reserved_bytes"]
    for event in reversed(trace):
        held = segments if event["action"].startswith("segment") else live
        if event["action"].endswith("alloc"):
            assert held.pop(event["addr"]) >= event["size"]
        elif event["action"] in ("free_requested", "segment_free"):
            assert event["addr"] not in held
            held[event["addr"]] = event["size"]

    device = snapshot_from(snapshot, "made.pickle").device("cuda:0")
    assert not Opened(snapshot_from(snapshot, "made.pickle"), device).course.notices


@pytest.mark.parametrize(("steps", "stacks"), [(1, False), (2, True)])
def test_events_are_read_while_a_backward_pass_runs(tmp_path: pathlib.Path, steps: int, stacks: bool) -> None:
    history, said = recorded(TRAINS, tmp_path, steps, stacks=stacks)
    check(history, said)
    assert history.figures["steps"] == steps
    step = history.figures["step"]
    # It is on in the recorded steps, and still in the next one's forward.
    assert all(said["on"][step : step + steps + 1])
    assert not said["enabled"]
    allocations = [
        event for trace in history.snapshot["device_traces"] for event in trace if event["action"] == "alloc"
    ]
    if stacks:
        assert any(event["frames"] for event in allocations)


def test_a_program_without_backward_passes_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    history, said = recorded(FILLS, tmp_path, 1, stacks=False)
    check(history, said)
    assert not said["enabled"]
