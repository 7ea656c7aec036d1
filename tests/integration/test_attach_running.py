"""`memtui attach` to a training that was started without memtui, as a user types it."""

from __future__ import annotations

import asyncio
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memtui.commands import everything
from memtui.sources.listing import Listed, list_processes
from memtui.sources.monitor import Monitor
from memtui.sources.program import TerminalSize
from tests.support import programs
from tests.support.supervised import Programs, watch

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="memtui's own way in is for x86-64")

FOLDER = pathlib.Path(__file__).resolve().parents[2]
#: Trains, and prints what each step came to.
_TRAINING = """
import sys, time, torch
torch.manual_seed(0)
device = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.randn(64, 1024, device=device)
print("ready", flush=True)
while True:
    loss = model(rows).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.01)
"""
_MIB = 1 << 20


@pytest.fixture
def env(sockets: pathlib.Path) -> dict[str, str]:
    inherited = {name: value for name, value in programs.plain_environment().items() if not name.startswith("XDG_")}
    return {**inherited, "MEMTUI_RUNTIME_DIR": str(sockets), "CUDA_VISIBLE_DEVICES": ""}


class Target:
    """A program that knows nothing of memtui."""

    def __init__(self, env: dict[str, str], code: str, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> str:
        """What it wrote after "ready"; once."""
        self.process.kill()
        assert self.process.stdout is not None
        if self.process.stdout.closed:
            return ""
        return self.process.communicate()[0]


@pytest.fixture
def targets() -> Iterator[list[Target]]:
    found: list[Target] = []
    yield found
    for target in found:
        target.end()


def memtui(env: dict[str, str], *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtui", "attach", *words]
    with_path = {**env, "PYTHONPATH": str(FOLDER)}
    return subprocess.run(command, env=with_path, capture_output=True, text=True, timeout=seconds, check=False)


def threads_of(target: Target) -> set[str]:
    folder = pathlib.Path(f"/proc/{target.pid}/task")
    return {(thread / "comm").read_text().strip() for thread in folder.iterdir()}


def sockets_of(env: dict[str, str]) -> list[str]:
    return [name for name in os.listdir(env["MEMTUI_RUNTIME_DIR"]) if name.startswith("agent-")]


def test_a_training_on_the_host(env: dict[str, str], targets: list[Target]) -> None:
    """Lines with its figures; nothing of it on the program's own streams; with --unload nothing stays behind."""
    programs.require_torch()
    targets.append(Target(env, _TRAINING, "cpu"))
    target = targets[0]
    before = len(list(pathlib.Path(f"/proc/{target.pid}/task").iterdir()))

    seen = memtui(env, "--pid", str(target.pid), "--headless", "--frames", "3", "--unload")

    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.count("\n") == 3
    assert "allocated" in seen.stdout.splitlines()[-1]
    assert f"the agent runs in process {target.pid} (ptrace, a thread of it was held for" in seen.stderr
    assert not sockets_of(env)
    programs.wait_for(lambda: len(list(pathlib.Path(f"/proc/{target.pid}/task").iterdir())) == before)
    assert target.process.poll() is None
    assert target.end() == ""


def test_a_log_that_cannot_be_written_is_told_first(env: dict[str, str], targets: list[Target]) -> None:
    """And nothing is done to the process."""
    programs.require_torch()
    targets.append(Target(env, _TRAINING, "cpu"))
    seen = memtui(env, "--pid", str(targets[0].pid), "--headless", "--frames", "1", "--log", "/nowhere/at/all")
    assert seen.returncode == 1
    assert "/nowhere/at/all" in seen.stderr
    assert "the agent runs" not in seen.stderr
    assert not sockets_of(env)


def test_the_agent_is_taken_out_when_the_terminal_is_closed(env: dict[str, str], targets: list[Target]) -> None:
    programs.require_torch()
    targets.append(Target(env, _TRAINING, "cpu"))
    pid = targets[0].pid
    command = [sys.executable, "-m", "memtui", "attach", "--pid", str(pid), "--headless", "--unload"]
    viewer = subprocess.Popen(command, env={**env, "PYTHONPATH": str(FOLDER)}, stdout=subprocess.PIPE, text=True)
    assert viewer.stdout is not None
    assert "allocated" in viewer.stdout.readline()
    assert sockets_of(env)
    viewer.send_signal(signal.SIGHUP)
    viewer.communicate()
    assert viewer.returncode == 128 + signal.SIGHUP
    assert not sockets_of(env)
    assert targets[0].process.poll() is None


def test_an_agent_in_a_folder_of_the_programs_own_is_listed(
    env: dict[str, str], targets: list[Target], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where this user's environment does not name it."""
    programs.require_torch()
    targets.append(Target(env, _TRAINING, "cpu"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(elsewhere))
    here = {**env, "MEMTUI_RUNTIME_DIR": str(elsewhere)}
    assert memtui(here, "--pid", str(targets[0].pid), "--headless", "--frames", "1").returncode == 0
    (listed,) = (each for each in list_processes() if each.pid == targets[0].pid)
    assert (listed.agent, listed.device) == ("yes", "host")


def test_what_was_in_a_parent_later_is_not_in_its_child(
    env: dict[str, str], targets: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that was attached to: what it has started is a training of its own."""
    programs.require_torch()
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", env["MEMTUI_RUNTIME_DIR"])
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[2], 'cpu'])\n"
    targets.append(Target(env, code + _TRAINING, "cpu", _TRAINING))
    parent = targets[0]
    assert parent.process.stdout is not None
    assert parent.process.stdout.readline() == "ready\n"  # the child's, too
    (child,) = map(int, pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split())
    try:
        assert memtui(env, "--pid", str(parent.pid), "--headless", "--frames", "1").returncode == 0
        listed = {each.pid: each for each in list_processes()}
        assert listed[parent.pid].agent == "yes"
        assert listed[child].agent == "no"
        assert listed[child].part_of is None
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_training_on_a_device(sockets: pathlib.Path, targets: list[Target], tmp_path: pathlib.Path) -> None:
    """Categories, phases, steps and optimizer, as under `run`; a second viewer finds the agent and the past."""
    env = programs.plain_environment() | programs.virtual_gpu.virtual_environment()
    env["MEMTUI_RUNTIME_DIR"] = str(sockets)
    targets.append(Target(env, _TRAINING, "cuda"))
    pid = targets[0].pid
    log = tmp_path / "log"

    first = memtui(env, "--pid", str(pid), "--headless", "--frames", "4", "--log", str(log))
    assert first.returncode == 0, first.stderr
    with programs.AgentConnection(sockets, pid) as viewer:
        model = viewer.until(lambda message: type(message).__name__ == "Model")
        frame = viewer.until(
            lambda message: (
                type(message).__name__ == "Frame"
                and message.step > 5
                and message.boundary == "optimizer_start"
                and message.devices[0].classification is not None
            )
        )
    second = memtui(env, "--pid", str(pid), "--headless", "--frames", "1")

    assert second.returncode == 0
    assert "the agent runs" not in second.stderr
    assert "predicted peak " in second.stdout
    assert [optimizer.name for optimizer in model.optimizers] == ["AdamW"]
    categories = frame.devices[0].classification.categories
    assert categories["parameters"] == categories["gradients"] == 2 * (4 * _MIB + 4096)
    assert categories["optimizer_state"] == 2 * categories["parameters"]
    assert {"forward", "backward", "optimizer"} & set(log.read_text().split('"'))
    assert targets[0].end() == ""


def test_what_would_be_done(env: dict[str, str], targets: list[Target]) -> None:
    programs.require_torch()
    targets.append(Target(env, "import time, torch\nprint('ready', flush=True)\ntime.sleep(100)"))
    pid = targets[0].pid

    told = memtui(env, "--pid", str(pid), "--dry-run")
    assert told.returncode == 0
    assert "by ptrace and a pending call" in told.stdout
    assert told.stdout.splitlines()[-1] == "nothing was touched"
    assert not sockets_of(env)

    targets[0].process.send_signal(signal.SIGSTOP)
    programs.wait_for(lambda: " T " in pathlib.Path(f"/proc/{pid}/stat").read_text())
    stopped = memtui(env, "--pid", str(pid), "--dry-run")
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert stopped.stderr == f"memtui: process {pid} is stopped: kill -CONT {pid} lets it go on\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)"], "has not loaded PyTorch"),
        (["sh", "-c", "echo ready; exec sleep 60"], "is no Python (sleep)"),
    ],
)
def test_what_no_agent_gets_into(env: dict[str, str], command: list[str], reason: str) -> None:
    """One line, and a status."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        programs.wait_for(lambda: b"sleep" in pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes())
        told = memtui(env, "--pid", str(process.pid), "--headless")
        process.kill()
    assert told.returncode == 1
    assert told.stderr.count("\n") == 1
    assert f"memtui: process {process.pid} {reason}: " in told.stderr


def test_waiting_is_told_and_taken_back(env: dict[str, str], targets: list[Target]) -> None:
    """GIVEN a main thread in a long call, THEN Ctrl-C leaves the process as it was, also once the call is over."""
    programs.require_torch()
    code = "import time, torch\nprint('ready', flush=True)\ntime.sleep(4)\nprint('on', flush=True)\n"
    code += "for _ in range(600): time.sleep(0.1)"
    targets.append(Target(env, code))
    target = targets[0]
    command = [sys.executable, "-m", "memtui", "attach", "--pid", str(target.pid), "--headless"]
    with subprocess.Popen(
        command, env={**env, "PYTHONPATH": str(FOLDER)}, stderr=subprocess.PIPE, text=True, stdout=subprocess.PIPE
    ) as viewer:
        assert viewer.stderr is not None
        line = viewer.stderr.readline()
        viewer.send_signal(signal.SIGINT)
        rest = viewer.stderr.read()
    assert "queued until the main thread returns to Python; it is " in line
    assert "memtui: taken back: " in rest
    assert viewer.returncode == 130
    assert target.process.stdout is not None
    assert target.process.stdout.readline() == "on\n"
    time.sleep(0.5)
    assert not sockets_of(env)


def test_one_that_is_stopped_is_entered_once_it_goes_on(
    env: dict[str, str], targets: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it is shown without an agent, with what lets it go on."""
    programs.require_torch()
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", env["MEMTUI_RUNTIME_DIR"])
    targets.append(Target(env, _TRAINING, "cpu"))
    pid = targets[0].pid
    os.kill(pid, signal.SIGSTOP)
    programs.wait_for(lambda: " T " in pathlib.Path(f"/proc/{pid}/stat").read_text())
    monitor = Monitor(pid, enter=True)

    async def until(condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.02)

    async def watched() -> None:
        await monitor.start()
        try:
            await asyncio.wait_for(until(lambda: "is stopped" in monitor.session.notices.get("entry", "")), 30)
            assert f"kill -CONT {pid}" in monitor.session.notices["entry"]
            os.kill(pid, signal.SIGCONT)
            await asyncio.wait_for(until(lambda: monitor.session.frame), 30)
            assert "entry" not in monitor.session.notices
        finally:
            await monitor.stop()

    asyncio.run(watched())
    assert targets[0].process.poll() is None


def test_in_the_app(env: dict[str, str], targets: list[Target], programs_of_supervisor: Programs) -> None:
    """The process is on screen with its agent; left, it goes on."""
    programs.require_torch()
    targets.append(Target(env, _TRAINING, "cpu"))
    pid = targets[0].pid
    viewer = programs_of_supervisor.start(
        *(sys.executable, "-m", "memtui", "attach", "--unload", "--pid", str(pid)),
        **{
            "env": {**env, "PYTHONPATH": str(FOLDER), "TERM": "xterm-256color"},
            "cwd": str(FOLDER),
            "size": TerminalSize(120, 40),
        },
    )

    async def leave() -> Any:
        client, heard = await watch(viewer.pid)
        await heard.until(lambda heard: b"AdamW" in heard.output)
        client.send_input(b"q")
        await heard.until(lambda heard: heard.status is not None)
        return heard.status.code

    assert asyncio.run(leave()) == 0
    assert not sockets_of(env)
    assert targets[0].end() == ""


@pytest.fixture
def programs_of_supervisor(request: pytest.FixtureRequest) -> Programs:
    found: Programs = request.getfixturevalue("programs")
    return found


def test_all_of_them(
    env: dict[str, str], targets: list[Target], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each; each has its agent then, and one that has none says why."""
    programs.require_torch()
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", env["MEMTUI_RUNTIME_DIR"])
    targets += [Target(env, _TRAINING, "cpu"), Target(env, _TRAINING, "cpu")]
    targets.append(Target(env, "import time\nprint('ready', flush=True)\ntime.sleep(100)"))
    first, second, plain = (target.pid for target in targets)
    # Those of others on this machine are left alone.
    mine = [Listed(pid, "me", ("train.py",), None, "no") for pid in (first, second, plain)]
    monkeypatch.setattr(everything, "list_processes", lambda: mine)

    assert everything.attach_all(dry=True) == 1
    assert not sockets_of(env)
    assert capsys.readouterr().out.splitlines()[0] == f"{first}: would be watched"
    assert everything.attach_all() == 1
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [f"{pid}: memtui attach --pid {pid} shows it" for pid in (first, second)]
    assert told[2].startswith(f"{plain}: process {plain} has not loaded PyTorch: ")
    assert sorted(sockets_of(env)) == sorted(f"agent-{pid}.sock" for pid in (first, second))
