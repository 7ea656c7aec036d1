"""Far ends that have little: an old Python alone, no memtui, nothing to write on; nothing is left behind on any."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from memtui.wire import paths
from tests.ssh.test_ssh_attach import training
from tests.support import programs, sshd

#: Lists every file of what a login could write to.
_LIST = "find /tmp /dev/shm /run/user $HOME -xdev 2>/dev/null | sort"


def _python(version: str) -> str:
    """A real interpreter of this version; skips where there is none."""
    found = shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"Python {version} is not here")
    done = subprocess.run(
        [found, "-c", "import sys; print(sys.base_prefix)"],
        env={**os.environ, "PYENV_VERSION": version},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"Python {version} does not run here")
    return f"{done.stdout.strip()}/bin/python{version}"  # the one itself, where the other is a version manager's


def _path_with(folder: pathlib.Path, python: str) -> str:
    """A folder with nothing but this Python."""
    folder.mkdir()
    (folder / "python3").symlink_to(python)
    return str(folder)


def test_python_3_9_and_nothing_else(servers: sshd.Servers, env: dict[str, str]) -> None:
    """Neither memtui nor psutil can be imported there, nor any other program be found."""
    programs.require_torch()
    path = _path_with(servers.folder / "bin", _python("3.9"))
    servers.start("box", path=path)
    there = subprocess.run(
        [*servers.command.split(), "box", 'python3 -c "import memtui"'], capture_output=True, text=True, check=False
    )
    assert "No module named 'memtui'" in there.stderr
    with training(env) as target:
        seen = sshd.attach(env, f"ssh://box/{target.pid}", "--headless", "--frames", "2")
    assert seen.returncode == 0, seen.stderr
    assert "allocated" in seen.stdout


@pytest.mark.parametrize("version", ["", "3.8"])
def test_no_python_that_is_new_enough(servers: sshd.Servers, env: dict[str, str], version: str) -> None:
    """One line, with what there is."""
    if version:
        path = _path_with(servers.folder / "bin", _python(version))
    else:
        (servers.folder / "bin").mkdir()
        path = str(servers.folder / "bin")
    servers.start("box", path=path)
    seen = sshd.attach(env, "ssh://box", "--headless")
    there = f" (there is python3 {version})" if version else ""
    assert seen.stderr == f"memtui: box: no Python 3.9 or newer on the PATH there{there}\n"
    assert seen.returncode == 1


def test_login_scripts_that_talk(servers: sshd.Servers, env: dict[str, str]) -> None:
    """What they print is no part of it."""
    programs.require_torch()
    command = servers.folder / "talks"
    command.write_text('#!/bin/sh\necho "Welcome to the box"\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    command.chmod(0o755)
    servers.start("box")
    servers.start("loud", more=f"ForceCommand {command}")
    with training(env) as target:
        seen = sshd.attach(env, f"ssh://loud/{target.pid}", "--headless", "--frames", "1")
    assert seen.returncode == 0, seen.stderr
    assert "allocated" in seen.stdout


def test_nothing_is_left_behind(servers: sshd.Servers, env: dict[str, str]) -> None:
    """Not a file in /tmp, in shared memory or at home, in a mount namespace where nobody else writes."""
    sshd.require_root()
    programs.require_torch()
    empty = "for each in /tmp /dev/shm $HOME; do mount -t tmpfs tmpfs $each || exit 9; done; exec "
    servers.start("box", before=["unshare", "-m", "sh", "-c", f'{empty}"$@"', "sh"])
    look = [*servers.command.split(), "box", _LIST]
    with training(env) as target:
        before = subprocess.run(look, capture_output=True, text=True, check=True).stdout
        seen = sshd.attach(env, f"ssh://box/{target.pid}", "--headless", "--frames", "2", "--unload")
        assert seen.returncode == 0, seen.stderr
        assert "allocated" in seen.stdout
        after = subprocess.run(look, capture_output=True, text=True, check=True).stdout
        name = pathlib.Path(env["MEMTUI_RUNTIME_DIR"], paths.agent_socket_name(target.pid))
        programs.wait_for(lambda: not name.exists(), 20, "the agent goes")
    assert "/tmp" in before
    assert after == before


def test_where_nothing_can_be_written(servers: sshd.Servers, env: dict[str, str]) -> None:
    """A home and a /tmp that are read-only do not matter to the link."""
    sshd.require_root()
    programs.require_torch()
    script = (
        "for each in / /tmp /dev/shm; do mount --bind $each $each && mount -o remount,ro,bind $each || exit 9; done; "
    )
    servers.start("box", before=["unshare", "-m", "sh", "-c", f'{script}cd /tmp; exec "$@"', "sh"])
    tried = subprocess.run(
        [*servers.command.split(), "box", "touch ~/x || touch /tmp/x"], capture_output=True, text=True, check=False
    )
    assert tried.stderr.count("Read-only file system") == 2
    with training(env) as target:
        seen = sshd.attach(env, f"ssh://box/{target.pid}", "--headless", "--frames", "2")
    assert seen.returncode == 0, seen.stderr
    assert "allocated" in seen.stdout


def test_a_training_that_can_write_nowhere(servers: sshd.Servers, env: dict[str, str]) -> None:
    """Its agent can make no socket: one clear line says what is missing, and the training goes on."""
    sshd.require_root()
    programs.require_torch()
    servers.start("box")
    script = (
        "for each in / /tmp /dev/shm; do mount --bind $each $each && mount -o remount,ro,bind $each || exit 9; done; "
    )
    code = (
        "import sys, time, torch\nprint('ready', flush=True)\n"
        "while True:\n    torch.ones(5).sum()\n    time.sleep(0.01)\n"
    )
    clean = {name: value for name, value in env.items() if name not in ("MEMTUI_SSH", "MEMTUI_RUNTIME_DIR")}
    command = ["unshare", "-m", "sh", "-c", f'{script}exec "$@"', "sh", sys.executable, "-c", code]
    process = subprocess.Popen(command, env=clean, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        seen = sshd.attach(env, f"ssh://box/{process.pid}", "--headless", "--frames", "2")
        assert seen.returncode == 1
        assert "no private folder for sockets" in seen.stderr
        assert "set MEMTUI_RUNTIME_DIR to a folder you own" in seen.stderr
        assert seen.stderr.count("\n") <= 2
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_a_process_of_another_user(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Told in a line, with what to type; the command stands where ssh is, and logs in as nobody."""
    sshd.require_root()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not installed (Debian: util-linux)")
    command = tmp_path / "nobody"
    command.write_text(
        '#!/bin/sh\nfor last in "$@"; do :; done\ncd /\n'
        f'exec env -i PATH=/usr/bin:/bin {setpriv} --reuid 65534 --regid 65534 --clear-groups /bin/sh -c "$last"\n'
    )
    command.chmod(0o755)
    with training(env, "import time; print('ready', flush=True); time.sleep(100)") as target:
        words = (f"ssh://box/{target.pid}", "--headless", "--frames", "1")
        seen = sshd.attach({**env, "MEMTUI_SSH": str(command)}, *words)
    assert (seen.returncode, seen.stdout) == (1, "")
    assert seen.stderr == (
        f"memtui: box: process {target.pid} belongs to user root; "
        f"log in as that user: memtui attach ssh://root@box/{target.pid}\n"
    )
