"""How long it takes to be in a process that was started without memtui, and to list what there is."""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from . import surroundings
from .report import Line, Skipped, at_most

RUNS = 15
PROCESSES = 300
_READY = "print('ready', flush=True)\n"
#: Ordinary Python code beside torch; it does nothing in torch that could be watched yet.
_IDLE = f"import torch\n{_READY}n = 0\nwhile True: n += 1\n"
_TRAINING = f"""
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters())
{_READY}
while True:
    optimizer.zero_grad()
    model(torch.randn(64, 256, device=DEVICE)).square().mean().backward()
    optimizer.step()
"""


def bench() -> Iterator[Line]:
    """From the command to the first figure, and the list of a busy machine."""
    with surroundings.runtime_folder() as runtime:
        environment = {**surroundings.plain(), "CUDA_VISIBLE_DEVICES": "", "MEMTUI_RUNTIME_DIR": str(runtime)}
        yield from _first_figure("plain Python code", _IDLE, environment)
        yield from _first_figure("training on the CPU", f"DEVICE = 'cpu'\n{_TRAINING}", environment)
    with surroundings.runtime_folder() as runtime:
        try:
            virtual = surroundings.with_virtual_gpu(runtime, agent=False)
            yield from _first_figure("training on a virtual GPU", f"DEVICE = 'cuda'\n{_TRAINING}", virtual)
        except Skipped as reason:
            yield Line("virtual GPU", f"skipped: {reason}")
        yield _listed({**surroundings.plain(), "MEMTUI_RUNTIME_DIR": str(runtime)})


def _first_figure(what: str, code: str, environment: dict[str, str]) -> Iterator[Line]:
    """`memtui attach --headless`, the agent taken out at the end of each."""
    program = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(1)
        command = [sys.executable, "-m", "memtui", "attach", "--pid", str(program.pid)]
        command += ["--headless", "--frames", "1", "--unload"]
        times = [_until_first_line(command, environment) for _ in range(RUNS)]
    finally:
        program.kill()
        program.communicate()
    note = f", worst {max(times):.3f}"
    yield at_most(f"first figure, {what}, median of {RUNS}", statistics.median(times), 0.3, "s", note=note)


def _until_first_line(command: list[str], environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    tool = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert tool.stdout is not None
    line = tool.stdout.readline()
    taken = time.perf_counter() - begun
    _, errors = tool.communicate()
    if not any(f" {figure} " in line for figure in ("process", "device", "allocated")):
        raise RuntimeError(f"no figure: {line}{errors}")
    return taken


def _listed(environment: dict[str, str]) -> Line:
    """`memtui ps`, with as many processes as a busy machine has, one in six of them a Python."""
    with contextlib.ExitStack() as stack:
        there = sum(name.name.isdigit() for name in pathlib.Path("/proc").iterdir())
        for number in range(max(0, PROCESSES - there)):
            command = (
                [sys.executable, "-S", "-c", "import time; time.sleep(999)"] if number % 6 == 0 else ["sleep", "999"]
            )
            process = subprocess.Popen(command, env=environment)
            stack.callback(process.wait)
            stack.callback(process.kill)
        time.sleep(2)
        command = [sys.executable, "-m", "memtui", "ps"]
        times: list[float] = []
        for _ in range(RUNS):
            begun = time.perf_counter()
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - begun)
    note = f", worst {max(times):.3f}"
    return at_most(f"memtui ps, {PROCESSES} processes, median of {RUNS}", statistics.median(times), 0.3, "s", note=note)
