"""Without an interface, memtui is not to be noticed: streams, signals and the way of ending are the program's."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.support.supervised import Gate, Programs, alive, wait_until

RUNNER = """
import os, sys
from memtui.sources.program import ProgramError
from memtui.sources.program_headless import leave_as, run
def started(start):
    with open(os.environ["PIDS"], "w") as file:
        file.write(f"{start.pid} {start.supervisor_pid}\\n")
try:
    leave_as(run(sys.argv[1:], dict(os.environ), os.getcwd(), started=started))
except ProgramError as error:
    sys.exit(f"memtui: {error}")
"""


class Headless:
    """`python RUNNER -c CODE` as a child process."""

    def __init__(self, folder: pathlib.Path, code: str) -> None:
        self._pids = folder / "pids"
        self._pids.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PIDS": str(self._pids), "PYTHONPATH": os.getcwd()},
            start_new_session=True,
        )

    def pids(self) -> tuple[int, int]:
        """Of the program and of its supervisor, as soon as it is started."""
        wait_until(lambda: self._pids.exists() and self._pids.read_text().endswith("\n"), "the program")
        program, supervisor = self._pids.read_text().split()
        return int(program), int(supervisor)

    def expect(self, line: bytes) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == line


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


pytestmark = pytest.mark.usefixtures("sockets")


def test_streams_and_exit_code(tmp_path: pathlib.Path) -> None:
    code = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data * 2); sys.exit('problem')"
    headless = Headless(tmp_path, code)
    out, err = headless.process.communicate(bytes(range(256)))
    assert out == bytes(range(256)) * 2
    assert err == b"problem\n"
    assert headless.process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV])
def test_it_dies_as_the_program_did(tmp_path: pathlib.Path, number: int) -> None:
    code = f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {number})"
    if number == signal.SIGINT:
        code = "import signal; signal.signal(2, signal.SIG_DFL); " + code
    headless = Headless(tmp_path, code)
    headless.process.communicate()
    assert headless.process.returncode == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_are_passed_on(tmp_path: pathlib.Path, number: int) -> None:
    code = (
        f"import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [{number}]); print('up', flush=True)\n"
        f"signal.sigwait([{number}]); print('heard'); sys.exit(5)"
    )
    headless = Headless(tmp_path, code)
    headless.expect(b"up\n")
    headless.process.send_signal(number)
    headless.expect(b"heard\n")
    headless.process.communicate()
    assert headless.process.returncode == 5


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_without_memtui_the_program_goes_on(tmp_path: pathlib.Path, gate: Gate, number: int) -> None:
    headless = Headless(tmp_path, f"print('up', flush=True); {gate.wait}; print('end')")
    headless.expect(b"up\n")
    program, supervisor = headless.pids()
    headless.process.send_signal(number)
    headless.process.wait()
    assert headless.process.returncode == -number
    assert alive(program)
    gate.open()
    headless.expect(b"end\n")
    wait_until(lambda: not alive(program), "the program's end")
    os.kill(supervisor, signal.SIGKILL)  # it would wait for somebody to collect the status


def test_job_control(tmp_path: pathlib.Path, gate: Gate) -> None:
    headless = Headless(tmp_path, f"print('up', flush=True); {gate.wait}; print('end')")
    headless.expect(b"up\n")
    program, _ = headless.pids()
    headless.process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(headless.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert state(program) == "T"
    headless.process.send_signal(signal.SIGCONT)
    gate.open()
    headless.expect(b"end\n")
    headless.process.communicate()
    assert headless.process.returncode == 0


def test_in_the_background_only_the_program_is_stopped(tmp_path: pathlib.Path, gate: Gate) -> None:
    """Whoever stops the program wakes it, and would not think of memtui."""
    headless = Headless(tmp_path, f"print('up', flush=True); {gate.wait}; print('end')")
    headless.expect(b"up\n")
    program, _ = headless.pids()
    os.kill(program, signal.SIGSTOP)
    wait_until(lambda: state(program) == "T", "the stop")
    time.sleep(0.3)
    assert state(headless.process.pid) == "S"
    os.kill(program, signal.SIGCONT)
    gate.open()
    headless.expect(b"end\n")
    headless.process.communicate()
    assert headless.process.returncode == 0


def test_in_the_foreground_the_shell_sees_its_job_stopped(
    tmp_path: pathlib.Path, gate: Gate, programs: Programs
) -> None:
    """GIVEN memtui on a terminal of its own, WHEN the program is stopped, THEN memtui stops as well."""
    pids = tmp_path / "pids"
    env = {**os.environ, "PIDS": str(pids), "PYTHONPATH": os.getcwd()}
    outer = programs.start(sys.executable, "-c", RUNNER, sys.executable, "-c", gate.wait, env=env)
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"), "the program")
    program = int(pids.read_text().split()[0])

    os.kill(program, signal.SIGSTOP)
    wait_until(lambda: state(outer.pid) == "T", "memtui's stop")
    os.kill(outer.pid, signal.SIGCONT)
    wait_until(lambda: state(program) == "S", "the program's waking")
    gate.open()
    wait_until(lambda: not alive(outer.pid), "the end")


def test_what_does_not_start_is_said_in_a_line(tmp_path: pathlib.Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", RUNNER, "no-such-command"],
        capture_output=True,
        env={**os.environ, "PIDS": "/dev/null", "PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert found.returncode == 1
    assert found.stderr == b"memtui: cannot run no-such-command: No such file or directory\n"
