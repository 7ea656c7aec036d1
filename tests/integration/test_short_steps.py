"""Steps so short that only the ends of most are noted: none is lost, and no frame shows a phase that was not seen."""

from __future__ import annotations

import pathlib
import subprocess
from collections import deque

from memtui.agent.naps import Nap
from memtui.agent.notes import Notes
from memtui.agent.phases import Phases
from tests.integration.test_phase_kinds import watch
from tests.support import programs

_PERIOD_NS = 100_000_000
#: Prints of how many steps the beginnings were not noted, and of how many in all.
_COUNTED = """
import sys, time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
other = torch.optim.SGD(model.parameters(), lr=1e-3)
sentry = sys.modules["_memtui_agent_of_this_process"]
end, steps, asleep = time.monotonic() + 1.5, 0, 0
while time.monotonic() < end:
    model(torch.randn(4, 8)).sum().backward()
    asleep += sentry.passes.nap.asleep
    (other if {alternating} and steps % 2 else optimizer).step()
    time.sleep({pause})
    steps += 1
print(steps, asleep)
"""


def counted(tmp_path: pathlib.Path, *, pause: float = 0.0, alternating: bool = False) -> tuple[int, int]:
    """(steps, steps of which only the end was noted) of a program."""
    code = _COUNTED.format(pause=pause, alternating=alternating)
    environment = programs.host_environment(tmp_path)
    with programs.started("-c", code, environment=environment, stdout=subprocess.PIPE) as process:
        steps, asleep = map(int, process.communicate(timeout=60)[0].split())
    return steps, asleep


def test_of_most_short_steps_only_the_end_is_noted(tmp_path: pathlib.Path) -> None:
    steps, asleep = counted(tmp_path)
    assert steps > 100
    assert steps / 4 < asleep < steps


def test_all_of_longer_steps_is_noted(tmp_path: pathlib.Path) -> None:
    assert counted(tmp_path, pause=0.03)[1] == 0


def test_all_is_noted_where_several_optimizers_step(tmp_path: pathlib.Path) -> None:
    assert counted(tmp_path, alternating=True)[1] == 0


def test_no_step_is_lost_and_no_phase_is_made_up(tmp_path: pathlib.Path) -> None:
    frames, printed, _ = watch("short", programs.host_environment(tmp_path), tmp_path)
    assert printed["steps"] > 100
    assert frames[-1].step == printed["steps"]
    shown = [frame for frame in frames if frame.boundary is None]
    assert {"forward", "backward", "optimizer", "evaluation"} <= {frame.phase for frame in frames}
    # An evaluation is seen from its beginning on, though one may come in the middle of a nap.
    lasting = [frame for frame in shown if frame.phase == "evaluation"]
    assert lasting[-1].time_ns - lasting[0].phase_since_ns > 150_000_000
    # Of the last step, which took its time in forward, the beginning may have been missed: then it is unknown.
    last = [frame for frame in shown if frame.step == printed["steps"] - 1]
    assert {frame.phase for frame in last[1:-1]} <= {"forward", ""}
    assert len(last) >= 4


def test_what_a_nap_needs() -> None:
    phases = Phases(0)
    notes = Notes(deque(), phases, {})
    nap = Nap()
    for number in range(20):
        at = number * 2_000_000
        for kind in ("forward_start", "backward_start", "backward_end", "optimizer_start"):
            notes.take_in(kind, at, 1)
        nap.allow(phases, notes, _PERIOD_NS)
        assert bool(nap.until_ns) == (number >= 16)
        notes.take_in("optimizer_end", at + 1_000_000, 1)
    notes.take_in("step", 50_000_000, 0)
    nap.rouse()
    nap.allow(phases, notes, _PERIOD_NS)
    assert not nap.until_ns  # the program says itself when its steps end
