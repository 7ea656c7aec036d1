"""What an agent does not get into, said of real processes without doing anything to them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

import pytest

from memtui.inject.attach import attach
from memtui.inject.preflight import check
from tests.support import programs
from tests.support.targets import IDLE, WAIT, target

#: A Python that other users can run too.
EVERYBODYS = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CHECK = (
    "import json, sys; from memtui.inject.preflight import check; "
    "print(json.dumps([(each.kind, each.text) for each in check(int(sys.argv[1])).refusals]))"
)
_SECCOMP = """
import ctypes, struct, sys
def forbid_ptrace():
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 101), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(rules), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0
forbid_ptrace()
"""


def refusal_of(pid: int) -> tuple[str, str]:
    found = check(pid)
    assert found.refusal is not None
    assert not found.ways
    outcome = attach(pid)
    assert (outcome.status, outcome.text) == ("refused", found.refusal.text)
    return found.refusal.kind, found.refusal.text


def refusals_elsewhere(pid: int, *before: str, code: str = "", **options: object) -> list[tuple[str, str]]:
    """As another process sees it."""
    done = subprocess.run(
        [*before, EVERYBODYS, "-c", code + _CHECK, str(pid)],
        env={**programs.plain_environment(), "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stderr
    return [(kind, text) for kind, text in json.loads(done.stdout)]


@contextlib.contextmanager
def of_another_user(code: str, runtime: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    with target(code, runtime, python=EVERYBODYS, user=4242, group=4242, extra_groups=[]) as process:
        yield process


def test_a_pid_that_is_no_process(tmp_path: pathlib.Path) -> None:
    with target(IDLE + WAIT, tmp_path) as process:
        assert check(process.pid).refusal is None
        thread = next(int(tid) for tid in os.listdir(f"/proc/{process.pid}/task") if int(tid) != process.pid)
        assert refusal_of(thread)[1].endswith(
            f"is a thread of process {process.pid}: memtui attach --pid {process.pid}"
        )
        pid = process.pid
    assert refusal_of(pid)[0] == "missing"


def test_stopped_and_ended(tmp_path: pathlib.Path) -> None:
    with target(IDLE + WAIT, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        programs.wait_for(lambda: check(process.pid).refusal, what="stopped")
        assert refusal_of(process.pid) == (
            "stopped",
            f"process {process.pid} is stopped: kill -CONT {process.pid} lets it go on",
        )
        process.send_signal(signal.SIGCONT)
        programs.wait_for(lambda: check(process.pid).refusal is None, what="going on")
        process.kill()
        kinds = set()
        while "zombie" not in kinds:
            refusal = check(process.pid).refusal
            kinds.add("none" if refusal is None else refusal.kind)
        assert kinds <= {"none", "ending", "zombie"}
        assert refusal_of(process.pid)[0] == "zombie"


def test_a_thread_of_the_kernel() -> None:
    try:
        found = pathlib.Path("/proc/2/comm").read_text() == "kthreadd\n"
    except OSError:
        found = False
    if not found:
        pytest.skip("the kernel's own threads are not seen from here")
    assert refusal_of(2)[0] == "kernel"


def test_traced_already(tmp_path: pathlib.Path) -> None:
    from memtui.inject.ptrace import Tracee

    with target(IDLE + WAIT, tmp_path) as process:
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            Tracee(process.pid)
            held.set()
            release.wait()

        tracer = threading.Thread(target=hold)
        tracer.start()
        held.wait()
        try:
            kind, text = refusal_of(process.pid)
            assert kind == "traced"
            assert f"by process {os.getpid()}" in text or "by process" in text
        finally:
            release.set()
            tracer.join()
        programs.wait_for(lambda: check(process.pid).refusal is None, what="let go of")


def test_no_python_and_no_torch(tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            programs.wait_for(lambda: "sleep" in os.readlink(f"/proc/{process.pid}/exe"))
            assert refusal_of(process.pid)[0] == "python"
        finally:
            process.kill()
    with target("import time\nprint('ready', flush=True)\n" + WAIT, tmp_path) as other:
        kind, text = refusal_of(other.pid)
        assert (kind, "memtui run" in text) == ("torch", True)


def test_of_another_user(tmp_path: pathlib.Path) -> None:
    with target(IDLE + WAIT, tmp_path) as process:
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        found = refusals_elsewhere(process.pid, user=4242, group=4242, extra_groups=[], cwd="/")
        assert found[0] == (
            "user",
            f"process {process.pid} belongs to user root: sudo memtui attach --pid {process.pid}",
        )


def test_not_dumpable(tmp_path: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        code = IDLE + "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint('done', flush=True)\n" + WAIT
        with of_another_user(code, pathlib.Path(folder)) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            found = refusals_elsewhere(process.pid, user=4242, group=4242, extra_groups=[], cwd="/")
            assert found[0][0] == "dumpable"
            assert found[0][1].endswith(f"sudo memtui attach --pid {process.pid}")


def test_root_of_a_container_without_the_capability(tmp_path: pathlib.Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    with target(IDLE + WAIT, tmp_path) as process:
        drop = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
        found = refusals_elsewhere(process.pid, *drop)
        # Where the process has rights that the other has not, it may not be traced.
        assert found[0][0] == "capability"
        assert "--cap-add SYS_PTRACE" in found[0][1]


def test_a_seccomp_filter(tmp_path: pathlib.Path) -> None:
    with target(IDLE + WAIT, tmp_path) as process:
        found = refusals_elsewhere(process.pid, code=_SECCOMP + "\n")
        assert found[0] == (
            "seccomp",
            "this process's seccomp filter forbids ptrace: start the container with --security-opt seccomp=unconfined",
        )
