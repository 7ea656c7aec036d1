"""What is asked of an agent over a link is answered as beside it; and what ssh asks is asked on the terminal."""

from __future__ import annotations

import asyncio
import os
import pathlib
import pty
import select
import subprocess
import sys
import time

import pytest

from memtui.session.session import Session
from memtui.snapshots.model import open_snapshot
from memtui.sources.gathered import Gathered, Spot
from memtui.sources.remote_link import Link
from memtui.sources.ssh_address import parse_host
from memtui.sources.ssh_connection import Connection
from memtui.wire.histories import HistoryNews
from tests.ssh.test_ssh_attach import training
from tests.support import programs, sshd
from tests.support.virtual_gpu import virtual_environment

_CUDA = """
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
print("ready", flush=True)
while True:
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""


@pytest.mark.virtual_gpu
def test_record_tensors_segments_and_history(
    servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the app asks for them."""
    servers.start("box")
    monkeypatch.setenv("MEMTUI_SSH", servers.command)
    monkeypatch.chdir(tmp_path)
    gpu = {**env, **virtual_environment(memory="8GiB"), "MEMTUI_RUNTIME_DIR": env["MEMTUI_RUNTIME_DIR"]}
    gpu.pop("CUDA_VISIBLE_DEVICES")
    with training(gpu, _CUDA) as target:
        session, news = asyncio.run(_asked(target.pid))
    assert session.recorded("cuda:0")[0].blocks
    tensors = session.tensors("cuda:0")
    assert tensors is not None
    assert "0.weight" in {tensor.name for tensor in tensors.tensors}
    segments = session.segments("cuda:0")
    assert segments is not None
    assert segments.pieces
    assert news.state == "written", news
    snapshot = open_snapshot(str(tmp_path / news.text))
    assert snapshot.devices


async def _asked(pid: int) -> tuple[Session, HistoryNews]:
    feed = Gathered([Spot([pid], Link(Connection(parse_host("box"), batch=True), [pid]))])
    await feed.start()
    told: list[HistoryNews] = []
    try:
        await _until(lambda: feed.session.frame is not None and feed.session.frame.step > 5)
        for name in ("record", "tensors", "segments"):
            assert feed.request(name)
        session = feed.session
        await _until(
            lambda: bool(session.recorded("cuda:0") and session.tensors("cuda:0") and session.segments("cuda:0"))
        )
        assert feed.save_history(told.append) is None
        await _until(lambda: bool(told) and told[-1].state in ("written", "refused"))
        return session, told[-1]
    finally:
        await feed.stop()


async def _until(condition: object) -> None:
    end = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


def test_a_question_of_ssh(servers: sshd.Servers, env: dict[str, str]) -> None:
    """A host key that is not known is asked about where there is a terminal, and refused where there is none."""
    programs.require_torch()
    host = servers.start("box")
    with open(servers.folder / "client", "a") as client:
        client.write(f"Host new\n  HostName 127.0.0.1\n  Port {host.port}\n  IdentityFile {servers.folder}/user\n")
        client.write(f"  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {servers.folder}/other\n")
        client.write("  StrictHostKeyChecking ask\n")
    with training(env) as target:
        words = (f"ssh://new/{target.pid}", "--headless", "--frames", "1")
        refused = sshd.attach(env, *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        said_last = refused.stderr.splitlines()[-1]
        assert said_last.startswith("memtui: new: Host key verification failed: the host's key is not known yet: ssh ")
        assert said_last.endswith(" new shows it, and asks")
        pid, terminal = pty.fork()
        if not pid:
            command = sshd.attach_command(*words)
            os.execve(command[0], command, {**env, "PYTHONPATH": str(sshd.FOLDER)})
        said = b""
        answered = False
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                said += os.read(terminal, 4096) if select.select([terminal], [], [], 1)[0] else b""
            except OSError:
                break  # it has ended
            if b"continue connecting" in said and not answered:
                answered = True
                os.write(terminal, b"yes\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
        os.close(terminal)
    assert answered
    assert b"allocated" in said


def test_a_slow_line_shows_what_is_new(
    servers: sshd.Servers, env: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over one of 600 bytes a second frames are left out and counted, and the agent never waits."""
    programs.require_torch()
    servers.start("box")
    slow = tmp_path / "slow"
    slow.write_text(
        "#!/usr/bin/env python3\n"
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen({servers.command.split()!r} + sys.argv[1:], stdout=subprocess.PIPE)\n"
        "while True:\n"
        "    data = os.read(child.stdout.fileno(), 60)\n"
        "    if not data:\n"
        "        break\n"
        "    os.write(1, data)\n"
        "    time.sleep(0.1)\n"
    )
    slow.chmod(0o755)
    with training(env) as target:
        monkeypatch.setenv("MEMTUI_SSH", str(slow))
        lost = asyncio.run(_lost(target.pid))
    assert lost > 0


async def _lost(pid: int) -> int:
    feed = Gathered([Spot([pid], Link(Connection(parse_host("box"), batch=True), [pid]))])
    await feed.start()
    try:
        await _until(lambda: feed.session.frame is not None and feed.session.frame.lost_frames > 0)
        assert feed.session.frame is not None
        return feed.session.frame.lost_frames
    finally:
        await feed.stop()


def test_what_is_wanted_alone_is_loaded() -> None:
    """A viewer of this machine loads nothing of links."""
    code = (
        "import sys; import memtui.commands.attach, memtui.commands.run, memtui.commands.headless, memtui.tui.app; "
        "print([name for name in sys.modules if 'ssh' in name or 'remote_' in name or 'relay' in name "
        "or name.startswith('memtui.') and 'gathered' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
