"""`memtui attach ssh://…` through a real sshd: its figures are the process's own, and nothing listens or stays."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest

from memtui.wire import paths
from tests.support import programs, sshd
from tests.support.virtual_gpu import virtual_environment

_HOST = """
import os, sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.randn(64, 256)
print("ready", flush=True)
for step in range(int(sys.argv[1])):
    loss = model(rows).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item().hex(), flush=True)
    time.sleep(0.02)
"""
_CUDA = """
import sys, time, torch
held = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(7)]
print("ready", flush=True)
print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), flush=True)
while True:
    time.sleep(0.05)
"""
#: Of frames that came by different ways.
_TIMES = ("time_ns", "wall_time", "phase_since_ns", "step_since_ns", "lost_frames", "kind")


@contextlib.contextmanager
def training(
    env: dict[str, str], code: str = _HOST, steps: int = 100_000, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A program that knows nothing of memtui, once it is ready."""
    command = [*before, sys.executable, "-c", code, str(steps)]
    clean = {name: value for name, value in env.items() if name != "MEMTUI_SSH"}
    process = subprocess.Popen(command, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        said = b""
        while not said.endswith(b"\n"):  # no byte more: `communicate` does not know of what a stream has read ahead
            byte = os.read(process.stdout.fileno(), 1)
            assert byte, "it has ended"
            said += byte
        assert said == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def lines(path: pathlib.Path, kind: str) -> list[dict[str, Any]]:
    """The lines of a log that are of a kind."""
    found = []
    for text in path.read_text().splitlines():
        with contextlib.suppress(ValueError):  # the last one may be under way
            found.append(json.loads(text))
    return [line for line in found if line["kind"] == kind]


def test_frames_are_those_of_a_viewer_beside_the_process(
    servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """Every figure of every frame; only instants are moved, by no more than a round trip takes."""
    programs.require_torch()
    servers.start("box")
    with training(env) as target:
        there, here = tmp_path / "there.jsonl", tmp_path / "here.jsonl"
        words = ("--headless", "--frames", "5", "--log")
        seen = sshd.attach(env, f"ssh://box/{target.pid}", *words, str(there))
        assert seen.returncode == 0, seen.stderr
        assert f"box: the agent runs in process {target.pid} (ptrace, a thread of it was held for" in seen.stderr
        beside = sshd.attach(env, "--pid", str(target.pid), *words, str(here))
        assert beside.returncode == 0, beside.stderr
        assert psutil.Process(target.pid).name() in lines(there, "host")[-1]["name"]

    assert seen.stdout.count("\n") == 5
    assert "allocated" in seen.stdout.splitlines()[-1]
    remote, local = ({line["sequence"]: line for line in lines(path, "frame")} for path in (there, here))
    common = remote.keys() & local.keys()  # the history is sent to both
    assert len(common) > 20
    for number in common:
        figures = [{key: value for key, value in side[number].items() if key not in _TIMES} for side in (remote, local)]
        assert figures[0] == figures[1]
        # Both are this machine's clock.
        assert abs(remote[number]["time_ns"] - local[number]["time_ns"]) < 500_000_000
    one, other = (lines(path, "hello")[0] for path in (there, here))
    assert one["argv"] == other["argv"]
    assert abs(one["wall_offset_ns"] - other["wall_offset_ns"]) < 1_000_000_000


def test_a_clock_of_its_own(servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """A machine that was started a day earlier: its instants are told by this one's clock, also in the history."""
    sshd.require_root()
    programs.require_torch()
    earlier = ["unshare", "-T", "--monotonic", "86400", "--boottime", "86400", "--"]
    if subprocess.run([*earlier, "true"], capture_output=True, check=False).returncode:
        pytest.skip("time namespaces cannot be made here")
    servers.start("box", before=earlier)
    log = tmp_path / "log.jsonl"
    begun_ns = time.monotonic_ns()
    with training(env, before=earlier) as target:
        seen = sshd.attach(env, f"ssh://box/{target.pid}", "--headless", "--frames", "3", "--log", str(log))
    assert seen.returncode == 0, seen.stderr
    ended_ns = time.monotonic_ns()
    frames = lines(log, "frame")
    assert len(frames) > 10
    times = [line["time_ns"] for kind in ("frame", "hello", "host", "event") for line in lines(log, kind)]
    assert begun_ns < min(times) <= max(times) < ended_ns
    assert all(line["phase_since_ns"] <= line["time_ns"] for line in frames)
    hello = lines(log, "hello")[0]
    assert abs(hello["time_ns"] + hello["wall_offset_ns"] - time.time_ns()) < 120_000_000_000


@pytest.mark.virtual_gpu
def test_a_device(servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The allocator's figures are torch's, and the driver's reading comes from there too."""
    servers.start("box")
    log = tmp_path / "log.jsonl"
    gpu = {
        **env,
        **virtual_environment(memory="8GiB", context="300MiB"),
        "MEMTUI_RUNTIME_DIR": env["MEMTUI_RUNTIME_DIR"],
    }
    gpu.pop("CUDA_VISIBLE_DEVICES")
    with training(gpu, _CUDA) as target:
        assert target.stdout is not None
        allocated, reserved = map(int, target.stdout.readline().split())
        seen = sshd.attach(env, f"ssh://box/{target.pid}", "--headless", "--frames", "6", "--log", str(log))
    assert seen.returncode == 0, seen.stderr
    device = lines(log, "frame")[-1]["devices"]["cuda:0"]
    assert (device["allocated_bytes"], device["reserved_bytes"]) == (allocated, reserved)
    driver = lines(log, "driver")[-1]["devices"][0]
    assert driver["total_bytes"] == 8 << 30
    assert driver["process_bytes"] == reserved + (300 << 20)


def test_nothing_listens_and_nothing_stays(servers: sshd.Servers, env: dict[str, str]) -> None:
    """No process of memtui's has a listening socket of a network; all of them are gone when the viewer is."""
    programs.require_torch()
    host = servers.start("box")
    with training(env) as target:
        command = sshd.attach_command(f"ssh://box/{target.pid}", "--headless")
        more = {"PYTHONPATH": str(sshd.FOLDER)}
        viewer = subprocess.Popen(command, env={**env, **more}, stdout=subprocess.PIPE, text=True)
        assert viewer.stdout is not None
        assert "allocated" in viewer.stdout.readline()
        own = psutil.Process(viewer.pid)
        processes = [own, *own.children(recursive=True), *host.relays(), psutil.Process(target.pid)]
        assert len(processes) >= 4
        listening = {inode for inode, state in _network_sockets() if state == "0A"}
        assert listening  # sshd itself
        for process in processes:
            assert not _sockets_of(process.pid) & listening, process
        assert [path for path in host.relays()[0].open_files() if "/tmp" in path.path] == []
        sshd.end(viewer)
        programs.wait_for(lambda: not host.relays(), 20, "the relay goes")
        assert target.poll() is None

        # A viewer that is killed says no goodbye.
        killed = subprocess.Popen(command, env={**env, **more}, stdout=subprocess.PIPE, text=True)
        assert killed.stdout is not None
        assert "allocated" in killed.stdout.readline()
        assert host.relays()
        killed.kill()
        killed.communicate()
        programs.wait_for(lambda: not host.relays(), 20, "the relay goes")
        assert target.poll() is None


def test_the_agent_is_taken_out_over_the_link(servers: sshd.Servers, env: dict[str, str]) -> None:
    """--unload; and --dry-run before it touches nothing."""
    programs.require_torch()
    servers.start("box")
    sockets = pathlib.Path(env["MEMTUI_RUNTIME_DIR"])
    with training(env) as target:
        name = sockets / paths.agent_socket_name(target.pid)
        dry = sshd.attach(env, f"ssh://box/{target.pid}", "--dry-run")
        assert dry.returncode == 0, dry.stderr
        assert f"box: the agent would get into process {target.pid} by ptrace" in dry.stdout
        assert not name.exists()
        seen = sshd.attach(env, f"ssh://box/{target.pid}", "--headless", "--frames", "1", "--unload")
        assert (seen.returncode, seen.stdout.count("\n")) == (0, 1), seen.stderr
        programs.wait_for(lambda: not name.exists(), 20, "the agent goes")
        assert target.poll() is None


def test_a_process_that_ends(servers: sshd.Servers, env: dict[str, str]) -> None:
    """Its end ends the viewer, with how it ended."""
    programs.require_torch()
    servers.start("box")
    with training(env, steps=200) as target:
        seen = sshd.attach(env, f"ssh://box/{target.pid}", "--headless")
    assert seen.returncode == 0, seen.stderr
    assert "ended" in seen.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ssh://-oProxyCommand=true",), "is no host's name, ssh would take it for an option"),
        (("ssh://box;touch /1",), "is no host's name"),
        (("ssh://box/$(id)",), "what follows the host is a process id"),
        (("ssh://nowhere.invalid",), "Could not resolve hostname"),
        (("ssh://box/2147483647",), "box: no such process: 2147483647; memtui attach ssh://box watches"),
        (("ssh://box/1",), "process 1"),
        (("ssh://box", "--all"), "--all is for this machine"),
        (("ssh://other",), "Permission denied"),
        (("--slurm",), "this is no Slurm job"),
        (("--hosts", "/nowhere"), "cannot read /nowhere"),
    ],
)
def test_bad_input(servers: sshd.Servers, env: dict[str, str], words: tuple[str, ...], said: str) -> None:
    """One line, and a status."""
    host = servers.start("box")
    with open(servers.folder / "client", "a") as client:
        client.write(f"Host other\n  HostName 127.0.0.1\n  Port {host.port}\n  IdentityFile {servers.folder}/host\n")
        client.write(f"  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {servers.folder}/known\n")
        client.write("  StrictHostKeyChecking accept-new\n")
    seen = sshd.attach(env, *words, "--headless", "--frames", "1")
    assert seen.returncode in {1, 2}
    assert said in seen.stderr
    assert seen.stderr.count("memtui: ") == 1
    assert "Traceback" not in seen.stderr
    assert not seen.stdout


def test_no_ssh(env: dict[str, str]) -> None:
    """Where the client is not installed, or is another command."""
    seen = sshd.attach({**env, "MEMTUI_SSH": "/nowhere/ssh -F x"}, "ssh://box", "--headless")
    assert (seen.returncode, seen.stderr) == (1, "memtui: /nowhere/ssh is not installed: apt install openssh-client\n")


def test_a_host_of_a_list_that_is_down(servers: sshd.Servers, env: dict[str, str]) -> None:
    """It is told, and the others are watched; a file may come by standard input."""
    programs.require_torch()
    servers.start("box")
    with training(env) as target:
        command = ("--hosts", "-", f"ssh://box/{target.pid}", "--headless", "--frames", "2")
        seen = sshd.attach(env, *command, stdin="# mine\nnowhere.invalid slots=8\n")
    assert seen.returncode == 0, seen.stderr
    assert "nowhere.invalid: ssh: Could not resolve hostname" in seen.stderr
    assert "allocated" in seen.stdout


def _network_sockets() -> list[tuple[str, str]]:
    found = []
    for name in ("tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                found.append((fields[9], fields[3]))
    return found


def _sockets_of(pid: int) -> set[str]:
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def test_the_training_is_as_without(servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Watched, cut off in mid-stream, watched again: its output is what it is unwatched, and no frame is missing."""
    programs.require_torch()
    host = servers.start("box")
    log = tmp_path / "log.jsonl"
    with training(env, steps=700) as target:
        command = sshd.attach_command(f"ssh://box/{target.pid}", "--headless", "--log", str(log))
        more = {"PYTHONPATH": str(sshd.FOLDER)}
        viewer = subprocess.Popen(command, env={**env, **more}, stdout=subprocess.PIPE, text=True)
        assert viewer.stdout is not None
        said = [viewer.stdout.readline() for _ in range(3)]
        host.stop()
        said += [viewer.stdout.readline() for _ in range(4)]
        servers.again(host)
        output, _ = target.communicate(timeout=120)
        assert target.returncode == 0
        assert viewer.wait(60) == 0
        said += viewer.stdout.read().splitlines()
        viewer.stdout.close()
    with training(env, steps=700) as unwatched:
        alone, _ = unwatched.communicate(timeout=120)
    assert output == alone
    assert any("no link to box since" in line for line in said)
    numbers = [line["sequence"] for line in lines(log, "frame")]
    assert len(numbers) == len(set(numbers))
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    events = [(line["name"], line["step"], line.get("text")) for line in lines(log, "event")]
    assert len(events) == len(set(events))
    assert lines(log, "frame")[-1]["step"] > 600


def test_what_ends_while_the_link_is_down(servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """GIVEN a training that ends in order while nobody hears of it, THEN it is not said to have been killed."""
    programs.require_torch()
    host = servers.start("box")
    log = tmp_path / "log.jsonl"
    with training(env) as target:
        command = sshd.attach_command(f"ssh://box/{target.pid}", "--headless", "--log", str(log))
        more = {"PYTHONPATH": str(sshd.FOLDER)}
        viewer = subprocess.Popen(command, env={**env, **more}, stdout=subprocess.PIPE, text=True)
        assert viewer.stdout is not None
        assert any("allocated" in viewer.stdout.readline() for _ in range(9))
        host.stop()
        target.terminate()
        target.wait()
        servers.again(host)
        said = viewer.communicate(timeout=90)[0].splitlines()
    assert viewer.returncode == 0
    assert said[-1].startswith("memtui: ended: it went while the link to its machine was down; how is not known")
    again = subprocess.run(
        [sys.executable, "-m", "memtui", "open", str(log), "--headless"],
        env={**env, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "it went while the link to its machine was down; how is not known" in again.stdout.splitlines()[-1]


def test_a_terminal_that_is_closed(servers: sshd.Servers, env: dict[str, str]) -> None:
    """With --unload the agent goes all the same."""
    programs.require_torch()
    servers.start("box")
    with training(env) as target:
        name = pathlib.Path(env["MEMTUI_RUNTIME_DIR"], paths.agent_socket_name(target.pid))
        command = sshd.attach_command(f"ssh://box/{target.pid}", "--headless", "--unload")
        more = {"PYTHONPATH": str(sshd.FOLDER)}
        viewer = subprocess.Popen(command, env={**env, **more}, stdout=subprocess.PIPE, text=True)
        assert viewer.stdout is not None
        assert "allocated" in viewer.stdout.readline()
        assert name.exists()
        viewer.send_signal(signal.SIGHUP)
        viewer.communicate(timeout=60)
        programs.wait_for(lambda: not name.exists(), 20, "the agent goes")
        assert target.poll() is None
