"""Two machines, as far as network namespaces make two of one: the ranks of one torchrun job stand side by side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil
import pytest

from memtui.ranks.view import RanksView, build_ranks
from memtui.sources.gathered import Gathered, Spot
from memtui.sources.remote_link import Link
from memtui.sources.ssh_address import parse_host
from memtui.sources.ssh_connection import Connection
from tests.support import programs, sshd

_RANK = """
import os, time, torch
from torch import distributed, nn
torch.set_num_threads(1)
distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 128)))
optimizer = torch.optim.AdamW(model.parameters())
end = time.monotonic() + 240
while time.monotonic() < end:
    model(torch.randn(8, 128)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
"""


class Namespace(NamedTuple):
    """A network of its own; it reaches the others and this machine."""

    name: str
    address: str
    device: str


@contextlib.contextmanager
def networks(count: int) -> Iterator[list[Namespace]]:
    """So many, joined by a bridge; skips where they cannot be made."""
    sshd.require_root()
    tag, made = os.getpid() % 100_000, []
    net = f"10.{213 + tag % 20}.{tag // 20 % 250}"

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"ip {' '.join(words)}: {done.stderr.strip()}")

    bridge = f"mtb{tag}"
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{net}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number in range(count):
            space = Namespace(f"mt{tag}n{number}", f"{net}.{number + 1}", f"mtv{tag}i{number}")
            ip("netns", "add", space.name)
            made.append(space)
            ip("link", "add", f"mtv{tag}o{number}", "type", "veth", "peer", "name", space.device, "netns", space.name)
            ip("link", "set", f"mtv{tag}o{number}", "master", bridge, "up")
            ip("-n", space.name, "addr", "add", f"{space.address}/24", "dev", space.device)
            ip("-n", space.name, "link", "set", space.device, "up")
            ip("-n", space.name, "link", "set", "lo", "up")
        yield made
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "del", space.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


@contextlib.contextmanager
def torchrun(spaces: list[Namespace], env: dict[str, str], program: pathlib.Path) -> Iterator[list[int]]:
    """One job across all of them, a rank on each; the launchers' pids."""
    processes = []
    program.write_text(_RANK)
    clean = {name: value for name, value in env.items() if name != "MEMTUI_SSH"}
    try:
        for number, space in enumerate(spaces):
            launcher = ["--nnodes", str(len(spaces)), "--node-rank", str(number), "--nproc-per-node", "1"]
            launcher += ["--master-addr", spaces[0].address, "--master-port", "29577", str(program)]
            command = ["ip", "netns", "exec", space.name, sys.executable, "-m", "torch.distributed.run", *launcher]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            gloo = {"GLOO_SOCKET_IFNAME": space.device, "TP_SOCKET_IFNAME": space.device}
            processes.append(subprocess.Popen(command, env={**clean, **gloo}, **quiet))  # type: ignore[call-overload]
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            tree = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            for each in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            process.kill()
            process.wait()


def _has_rank(launcher: int) -> bool:
    """Whether the launcher's rank has PyTorch loaded, and so can get an agent."""
    for each in psutil.Process(launcher).children(recursive=True):
        with contextlib.suppress(OSError):
            environment = pathlib.Path(f"/proc/{each.pid}/environ").read_bytes()
            maps = pathlib.Path(f"/proc/{each.pid}/maps").read_text(errors="replace")
            if b"\0LOCAL_RANK=" in environment and "/libtorch" in maps:
                return True
    return False


def test_one_job_on_two_hosts(
    servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks keep their numbers, have their hosts' names, and step together on one clock."""
    programs.require_torch()
    monkeypatch.setenv("MEMTUI_SSH", servers.command)
    with networks(2) as spaces, torchrun(spaces, env, tmp_path / "rank.py") as launchers:
        for name, space in zip(("left", "right"), spaces):
            before = ["ip", "netns", "exec", space.name]
            servers.start(name, address=space.address, port=2022, before=before)
        programs.wait_for(lambda: all(map(_has_rank, launchers)), 90, "the ranks")
        view = asyncio.run(_watched(["left", "right"], launchers))
        assert [(row.rank, row.host, row.world_size) for row in view.rows] == [(0, "left", 2), (1, "right", 2)]
        assert (view.hosts, view.world_size, view.apart) == (("left", "right"), 2, False)
        steps = [row.step for row in view.rows]
        assert None not in steps
        assert view.program == "rank.py"
        words = [f"ssh://{name}/{pid}" for name, pid in zip(("left", "right"), launchers)]
        seen = sshd.attach({**env, "MEMTUI_SSH": servers.command}, *words, "--headless", "--frames", "3")
        assert seen.returncode == 0, seen.stderr
        assert "2 ranks" in seen.stdout.splitlines()[-1]


async def _watched(names: list[str], launchers: list[int]) -> RanksView:
    connections = [Connection(parse_host(name), batch=True) for name in names]
    spots = [Spot([pid], Link(connection, [pid])) for connection, pid in zip(connections, launchers)]
    feed = Gathered(spots)
    await feed.start()
    try:
        end = time.monotonic() + 90
        while True:
            await asyncio.sleep(0.2)
            view = build_ranks(feed.members, feed.now_ns(), feed.driver, feed.label)
            sessions = [member.session for member in feed.members]
            if len(view.rows) == 2 and all(session.frame and session.frame.step > 5 for session in sessions):
                break
            assert time.monotonic() < end, (feed.members, [session.notices for session in sessions])
        return view
    finally:
        await feed.stop()


def test_everything_of_a_user_on_a_host(servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Without a pid: what has an agent there; with nothing there, what could be watched is named.

    In a pid namespace, where nothing else of this user is.
    """
    sshd.require_root()
    programs.require_torch()
    inner = servers.start("box", before=["unshare", "-p", "-f", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"])
    nothing = sshd.attach(env, "ssh://box", "--headless", "--frames", "1")
    assert nothing.returncode == 1
    assert nothing.stderr == (
        "memtui: box: no process of this user has an agent, and none is a rank or has PyTorch loaded\n"
    )
    entered = ["nsenter", "-t", str(inner.server().pid), "-p", "-m", "--"]
    code = "import time, torch\nprint('ready', flush=True)\nwhile True: torch.ones(3).sum(); time.sleep(0.05)"
    clean = {name: value for name, value in env.items() if name != "MEMTUI_SSH"}
    process = subprocess.Popen([*entered, sys.executable, "-c", code], env=clean, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        named = sshd.attach(env, "ssh://box", "--headless", "--frames", "1")
        assert named.returncode == 1
        assert "with PyTorch loaded: memtui attach ssh://box/" in named.stderr
        pid = named.stderr.partition("memtui attach ssh://box/")[2].partition(" ")[0]
        one = sshd.attach(env, f"ssh://box/{pid}", "--headless", "--frames", "1")
        assert one.returncode == 0, one.stderr
        assert "allocated" in one.stdout
        every = sshd.attach(env, "ssh://box", "--headless", "--frames", "2")
        assert every.returncode == 0, every.stderr
        assert "allocated" in every.stdout
    finally:
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()
        process.communicate()
