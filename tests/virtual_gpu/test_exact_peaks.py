"""Exact peaks of steps: what is told is what a program finds that resets and reads itself, and nobody else sees it."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

from memtui.agent import EXACT_PEAKS
from memtui.session.session import Session
from memtui.wire.frames import Event, Frame, Hello
from tests.support import programs
from tests.support.virtual_gpu import virtual_environment

pytestmark = pytest.mark.virtual_gpu

PROGRAM = str(programs.PROGRAMS / "peaks.py")
MILLISECOND = 1_000_000
QUICK, STEPS = 440, 460
Told = tuple[list[tuple[int, int]], list[object]]


def run(environment: dict[str, str], *arguments: str, program: str = PROGRAM) -> tuple[int, str, str]:
    done = subprocess.run(
        programs.command(program, *arguments), env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    # torch stamps its own warnings with the time of day and the process.
    return done.returncode, done.stdout, re.sub(r"\[?W\d{4} [\d:.]+ (\d+ )?", "W ", done.stderr)


@pytest.mark.parametrize(
    ("kind", "devices"),
    [
        ("plain", {"memory": "2GiB"}),
        ("two_devices", {"memory": "2GiB,3GiB", "count": 2}),
        ("out_of_memory", {"memory": "2GiB"}),
        ("fork", {"memory": "2GiB"}),
        ("threads", {"memory": "2GiB"}),
        ("unusual", {"memory": "2GiB"}),
        ("compiled", {"memory": "2GiB"}),
        ("stop", {"memory": "2GiB"}),
        ("late", {"memory": "2GiB"}),
    ],
)
def test_the_program_reads_what_it_would_read(kind: str, devices: dict[str, object], tmp_path: pathlib.Path) -> None:
    """Every public reading at many points, through the program's own resets, byte for byte; `stop` after it is over."""
    base = programs.plain_environment() | virtual_environment(**devices)
    without = run(base, kind)
    asked = {} if kind == "late" else {EXACT_PEAKS: "1"}
    observed = run(programs.with_agent(base, tmp_path) | asked, kind)

    assert observed == without
    assert without[0] == 0, without[2]
    assert without[1].count("peak") > 80


@pytest.mark.parametrize("kind", ["gpt", "saved", "crash_backward", "out_of_memory_backward", "interrupted_backward"])
def test_the_training_is_untouched(kind: str, tmp_path: pathlib.Path) -> None:
    """Losses, random states, the allocator's statistics, tracebacks and the exit status."""
    base = programs.plain_environment() | virtual_environment(memory="2GiB")
    training = str(programs.PROGRAMS / "training.py")
    without = run(base, kind, program=training)

    assert run(programs.with_agent(base, tmp_path) | {EXACT_PEAKS: "1"}, kind, program=training) == without


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """(each step's peak on each of two devices by a twin's own counting, all that the agent says of such a program)."""
    runtime = tmp_path_factory.mktemp("run")
    base = programs.plain_environment() | virtual_environment(memory="2GiB", count=2)
    status, output, errors = run(base, "steps", "self")
    assert status == 0, errors
    peaks = [(int(first), int(second)) for first, second in (line.split() for line in output.splitlines())]
    assert len(peaks) == STEPS
    messages: list[object] = []
    environment = programs.with_agent(base, runtime) | {EXACT_PEAKS: "1"}
    with (
        programs.started(PROGRAM, "steps", environment=environment, stdin=subprocess.PIPE) as process,
        programs.AgentConnection(runtime, process.pid) as viewer,
    ):
        for message in viewer.messages():
            messages.append(message)
            if isinstance(message, Frame) and message.step == STEPS and message.boundary is None:
                break
    return peaks, messages


def highest_steps(messages: list[object], device: int) -> list[tuple[int, int]]:
    """(step, bytes) of what frames tell."""
    frames = [
        message.devices[device] for message in messages if isinstance(message, Frame) and len(message.devices) > device
    ]
    return [
        (frame.highest_step_peak_step, frame.highest_step_peak_bytes)
        for frame in frames
        if frame.highest_step_peak_step is not None and frame.highest_step_peak_bytes is not None
    ]


@pytest.mark.parametrize("device", [0, 1])
def test_each_step_has_its_own_peak(told: Told, device: int) -> None:
    """The twin's figure to the byte, for every step that is long enough for a frame of its own."""
    peaks, messages = told
    steps = dict(highest_steps(messages, device))

    assert {step: peaks[step - 1][device] for step in steps} == steps
    assert steps.keys() >= set(range(QUICK + 2, STEPS + 1))


@pytest.mark.parametrize("device", [0, 1])
def test_no_peak_of_a_short_step_is_lost(told: Told, device: int) -> None:
    """Where several steps end between two frames, none was higher than the one that is told."""
    peaks, messages = told
    steps = highest_steps(messages, device)

    assert len(steps) < STEPS - 100
    assert max(step[1] for step in steps) == max(peak[device] for peak in peaks)
    for (step, height), (next_step, next_height) in zip(steps, steps[1:]):
        between = [peak[device] for peak in peaks[step : next_step - 1]]
        assert max(between, default=0) <= max(height, next_height)


def test_new_peaks_are_of_the_step_that_reached_them(told: Told) -> None:
    """GIVEN many short steps between two frames, THEN the event names the one that was highest."""
    peaks, messages = told
    events = [message for message in messages if isinstance(message, Event) and message.name == "new_peak"]
    found = [(event.device, event.figures["allocated_peak_bytes"], event.step) for event in events]

    assert tuple(sorted({str(device) for device, _, _ in found})) == ("cuda:0", "cuda:1")
    # As many steps were completed before as the event says.
    assert all(peaks[step][device == "cuda:1"] == height for device, height, step in found)


def test_frames_say_so(told: Told) -> None:
    """The hello has a line about it; the step under way is exact, and phases are known where steps are read."""
    _, messages = told
    hellos = [message for message in messages if isinstance(message, Hello)]
    frames = [message for message in messages if isinstance(message, Frame) and message.step > 1]

    assert any("exact peaks: torch's peak counters are reset" in notice for notice in hellos[-1].notices)
    assert sum(frame.devices[0].step_peak_exact for frame in frames) > 0.95 * len(frames)
    assert all(frame.devices[0].last_step_peak_exact for frame in frames)
    assert {frame.devices[0].last_step_peak_phase for frame in frames} >= {"forward"}


def test_the_viewer_keeps_the_highest(told: Told) -> None:
    """The highest step of all is a short one; the chart has the height of each that was long."""
    peaks, messages = told
    session = Session()
    for message in messages:
        session.apply(message, 0)  # type: ignore[arg-type]
    highest = max(peak[0] for peak in peaks)

    found = session.steps.highest("cuda:0")
    series = session.series("cuda:0", "allocated_bytes")
    assert found is not None
    assert (found.bytes_held, found.exact) == (highest, True)
    assert peaks[found.step - 1][0] == highest
    assert series is not None
    for step in range(QUICK + 3, STEPS):
        ends = [message.time_ns for message in messages if isinstance(message, Frame) and message.step == step]
        (column,) = series.window(ends[0] - 200 * MILLISECOND, ends[0] + MILLISECOND, 1)
        assert column is not None
        assert column[1] >= peaks[step - 1][0]


def test_not_asked_for_nothing_stands_in(tmp_path: pathlib.Path) -> None:
    """Without the option torch's own functions are there, and steps below the highest have lower bounds."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="2GiB")
    source = "import torch; torch.ones(1).cuda(); print(type(torch._C._cuda_memoryStats).__name__)"
    done = subprocess.run(
        programs.command("-c", source), env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "builtin_function_or_method\n"


#: Trains a little, resets the peaks itself as programs do, and then waits.
_RESETTING = """
import sys, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    torch.cuda.reset_peak_memory_stats()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("backend", "notice"),
    [
        ("native", "exact peaks: torch's peak counters are reset at each step's end"),
        ("cudaMallocAsync", "no exact peaks: cudaMallocAsync is in use"),
    ],
)
def test_another_allocator_is_left_alone(backend: str, notice: str, tmp_path: pathlib.Path) -> None:
    """GIVEN an allocator whose peaks are not taken, THEN it is watched all the same, also after the program's resets.

    Steps are counted, and the one line about exact peaks says what is so.
    """
    base = programs.plain_environment() | virtual_environment(memory="2GiB")
    base["PYTORCH_CUDA_ALLOC_CONF"] = f"backend:{backend}"
    environment = programs.with_agent(base, tmp_path) | {EXACT_PEAKS: "1"}
    with programs.started(
        "-c", _RESETTING, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            messages: list[object] = []
            for message in viewer.messages():
                messages.append(message)
                if isinstance(message, Frame) and message.step == 5:
                    break
    hello = messages[0]
    assert isinstance(hello, Hello)
    assert not [message for message in messages if isinstance(message, Event) and message.name == "agent_error"]

    told = [text for text in hello.notices if "exact peaks" in text]
    assert len(told) == 1, hello.notices
    assert told[0].startswith(notice)
