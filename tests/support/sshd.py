"""A real sshd of a test's own: its configuration, keys and port, on the loopback or within namespaces."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

import psutil
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2]


def require_sshd() -> str:
    """The server's path; skips where it, or the client, is not installed."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    for name, path in (("sshd", found), ("ssh", shutil.which("ssh")), ("ssh-keygen", shutil.which("ssh-keygen"))):
        if path is None:
            pytest.skip(f"{name} is not installed (Debian: openssh-server and openssh-client)")
    assert found is not None
    return found


def require_root() -> None:
    """Skips where there are no namespaces to be made."""
    if os.geteuid() != 0:
        pytest.skip("namespaces take root")
    made = subprocess.run(["unshare", "-m", "-p", "-f", "true"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("namespaces cannot be made here")


class Host:
    """One server; `alias` is what it is called in the client's configuration."""

    def __init__(self, alias: str, process: subprocess.Popen[bytes], address: str, port: int) -> None:
        self.alias, self.process, self.address, self.port = alias, process, address, port

    def server(self) -> psutil.Process:
        """The process that listens: the wrappers of namespaces are above it."""
        process = psutil.Process(self.process.pid)
        while process.name() != "sshd":
            process = process.children()[0]
        return process

    def relays(self) -> list[psutil.Process]:
        """What runs for viewers now."""
        below = self.server().children(recursive=True)
        return [each for each in below if "marshal.loads" in " ".join(_words(each))]

    def cut(self) -> None:
        """Ends every connection, as a network does that goes away."""
        for each in self.server().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    def stop(self) -> None:
        """Nobody listens any more, and what was connected is cut."""
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = psutil.Process(self.process.pid).children(recursive=True)
            for each in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        self.process.kill()
        self.process.wait()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Servers:
    """Servers of one test, and the client's configuration for them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.program = folder, require_sshd()
        self.hosts: list[Host] = []
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=60
            )
        (folder / "client").write_text("")
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)

    @property
    def command(self) -> str:
        """The ssh command that knows these servers."""
        return f"ssh -F {self.folder}/client"

    def start(
        self,
        alias: str,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        before: Sequence[str] = (),
        path: str = "",
        more: str = "",
    ) -> Host:
        """A server called `alias`, within what `before` runs it in; `path` is where its logins find programs."""
        port = port or _free_port()
        lines = [
            f"Port {port}",
            f"ListenAddress {address}",
            f"HostKey {self.folder}/host",
            f"AuthorizedKeysFile {self.folder}/user.pub",
            "PidFile none",
            "UsePAM no",
            "StrictModes no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            *([f"ForceCommand {self._with_path(alias, path)}"] if path else []),
            more,
        ]
        config = self.folder / f"server-{alias}"
        config.write_text("\n".join(lines) + "\n")
        with open(self.folder / f"log-{alias}", "ab") as log:
            process = subprocess.Popen([*before, self.program, "-D", "-e", "-f", str(config)], stderr=log)
        with open(self.folder / "client", "a") as client:
            client.write(f"Host {alias}\n  HostName {address}\n  Port {port}\n")
            client.write(f"  User {pwd.getpwuid(os.geteuid()).pw_name}\n  IdentityFile {self.folder}/user\n")
            client.write("  IdentitiesOnly yes\n  IdentityAgent none\n  StrictHostKeyChecking accept-new\n")
            client.write(f"  UserKnownHostsFile {self.folder}/known\n")
        host = Host(alias, process, address, port)
        self.hosts.append(host)
        self._await(host, alias)
        return host

    def _with_path(self, alias: str, path: str) -> str:
        """A login that finds programs there alone, whatever the user's own shell sets up."""
        command = self.folder / f"login-{alias}"
        command.write_text(f'#!/bin/sh\nPATH={path}; export PATH\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
        command.chmod(0o755)
        return str(command)

    def again(self, host: Host) -> Host:
        """The same server once more, at the same port."""
        config = self.folder / f"server-{host.alias}"
        with open(self.folder / f"log-{host.alias}", "ab") as log:
            host.process = subprocess.Popen([self.program, "-D", "-e", "-f", str(config)], stderr=log)
        return host

    def _await(self, host: Host, alias: str) -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end and host.process.poll() is None:
            done = subprocess.run(
                [*self.command.split(), "-o", "BatchMode=yes", alias, "exit 7"], capture_output=True, check=False
            )
            if done.returncode == 7:
                return
            time.sleep(0.1)
        log = (self.folder / f"log-{alias}").read_text(errors="replace")
        pytest.skip(f"this sshd does not run here: {log[-300:]!r}")

    def stop(self) -> None:
        """All of them."""
        for host in self.hosts:
            host.stop()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """Servers with a folder of their own, which is not in /tmp: that may be another one within a namespace."""
    base = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-ssh-", dir=base))
    try:
        made = Servers(folder)
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def attach_command(*words: str) -> list[str]:
    """What a user types."""
    return [sys.executable, "-m", "memtui", "attach", *words]


def attach(
    env: dict[str, str], *words: str, seconds: float = 120, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """The command, until it ends."""
    return subprocess.run(
        attach_command(*words),
        env={**env, "PYTHONPATH": str(FOLDER)},
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        start_new_session=True,  # no terminal to ask on
    )


def end(process: subprocess.Popen[str]) -> None:
    """Ctrl-C, and away."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
