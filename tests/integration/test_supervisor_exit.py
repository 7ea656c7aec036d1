"""How a program ends is known exactly, at once or a day later."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal

import psutil
import pytest

from memtui.sources.program import ExitStatus, LaunchFailed, NotSupervised
from tests.support.supervised import Gate, Programs, alive, wait_for_end, wait_until, watch


def status_of(pid: int, **options: bool) -> ExitStatus:
    async def collect() -> ExitStatus:
        client, heard = await watch(pid, **options)
        await heard.until(lambda heard: heard.closed)
        client.close()
        assert heard.status is not None
        return heard.status

    return asyncio.run(collect())


@pytest.mark.parametrize("pty", [True, False])
@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_codes(programs: Programs, code: int, pty: bool) -> None:
    status = status_of(programs.python(f"raise SystemExit({code})", pty=pty).pid)
    assert (status.code, status.signal, status.shell_code) == (code, None, code)
    assert str(status) == f"exit code {code}"


@pytest.mark.parametrize("pty", [True, False])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGHUP])
def test_deaths_by_signal(programs: Programs, number: signal.Signals, pty: bool) -> None:
    code = f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {int(number)})"
    status = status_of(programs.python(code, pty=pty).pid)
    assert (status.code, status.signal, status.shell_code) == (None, number, 128 + number)
    assert str(status) == f"killed by {number.name}"


@pytest.mark.parametrize("pty", [True, False])
def test_a_command_that_is_not_there(programs: Programs, pty: bool) -> None:
    with pytest.raises(LaunchFailed, match=r"^cannot run no-such-command: No such file or directory$") as caught:
        programs.start("no-such-command", pty=pty)
    assert caught.value.errno == 2


def test_a_script_without_permission(programs: Programs, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(LaunchFailed, match=r"^cannot run .*script: Permission denied$"):
        programs.start(str(script))


def test_a_script_without_an_interpreter_line_runs_in_a_shell(programs: Programs, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script"
    script.write_text("exit 6\n")
    script.chmod(0o700)
    assert status_of(programs.start(str(script)).pid).code == 6


def test_a_folder_that_is_not_there(programs: Programs) -> None:
    with pytest.raises(LaunchFailed, match=r"^cannot enter /nowhere: No such file or directory$"):
        programs.python("", cwd="/nowhere")


def test_an_argument_that_no_program_can_have(programs: Programs) -> None:
    with pytest.raises(LaunchFailed, match="Invalid argument"):
        programs.start("/bin/echo", "a\0b")


def test_a_runtime_folder_that_cannot_be_used(programs: Programs, sockets: pathlib.Path) -> None:
    os.environ["MEMTUI_RUNTIME_DIR"] = str(sockets / ("long" * 30))  # the fixture puts it back
    with pytest.raises(LaunchFailed, match="no socket for viewers: socket path too long"):
        programs.python("")


def test_nothing_has_run_when_starting_fails(programs: Programs, sockets: pathlib.Path, tmp_path: pathlib.Path) -> None:
    os.environ["MEMTUI_RUNTIME_DIR"] = str(sockets / ("long" * 30))
    with pytest.raises(LaunchFailed):
        programs.python(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert not (tmp_path / "ran").exists()


def test_the_launcher_has_no_child_to_reap(programs: Programs) -> None:
    before = {child.pid for child in psutil.Process().children()}  # other tests may have left some of their own
    programs.python("")
    assert {child.pid for child in psutil.Process().children()} <= before


def test_the_status_waits_for_somebody_to_collect_it(programs: Programs, sockets: pathlib.Path) -> None:
    start = programs.python("print('words'); raise SystemExit(3)")
    wait_for_end(start)
    # Looking without collecting leaves it there.
    assert status_of(start.pid, collect=False).code == 3
    assert status_of(start.pid, collect=False).code == 3
    assert alive(start.supervisor_pid)
    assert status_of(start.pid).code == 3
    wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end")
    assert not list(sockets.iterdir())
    with pytest.raises(NotSupervised, match=f"process {start.pid} was not started by memtui run"):
        status_of(start.pid)


def test_nobody_collects(programs: Programs, sockets: pathlib.Path) -> None:
    start = programs.python("", keep_seconds=0.1)
    wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end")
    assert not list(sockets.iterdir())


def test_a_stopped_program_is_told_of(programs: Programs, gate: Gate) -> None:
    start = programs.python(gate.wait)

    async def check() -> None:
        client, heard = await watch(start.pid)
        client.send_signal(signal.SIGSTOP)
        await heard.until(lambda heard: heard.stopped == [True])
        _, late = await watch(start.pid)
        await late.until(lambda heard: heard.stopped == [True])
        client.send_signal(signal.SIGCONT)
        await heard.until(lambda heard: heard.stopped == [True, False])
        client.send_signal(signal.SIGTERM)
        await heard.until(lambda heard: heard.status is not None)
        assert heard.status is not None
        assert heard.status.signal == signal.SIGTERM

    asyncio.run(check())


def test_a_signal_to_the_group_reaches_children(programs: Programs) -> None:
    start = programs.start("sh", "-c", "trap 'exit 9' INT; sh -c 'trap \"echo child; exit\" INT; echo up; read x'; :")

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        client.send_signal(signal.SIGINT, group=True)
        await heard.until(lambda heard: heard.closed)
        assert b"child" in heard.output
        assert heard.status is not None
        assert heard.status.code == 9

    asyncio.run(check())


def test_sigterm_for_the_supervisor_is_the_programs(programs: Programs, gate: Gate) -> None:
    start = programs.python(
        f"import signal, sys; signal.signal(15, lambda *_: sys.exit(8)); print('up', flush=True); {gate.wait}"
    )

    async def check() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            os.kill(start.supervisor_pid, number)
        await heard.until(lambda heard: heard.status is not None)
        assert heard.status is not None
        assert heard.status.code == 8

    asyncio.run(check())


def test_a_supervisor_killed_is_noticed(programs: Programs, gate: Gate) -> None:
    start = programs.python(gate.wait)

    async def check() -> None:
        _, heard = await watch(start.pid)
        os.kill(start.supervisor_pid, signal.SIGKILL)
        await heard.until(lambda heard: heard.closed)
        assert heard.close_reason == "the supervisor is gone"
        assert heard.status is None

    asyncio.run(check())


def test_connecting_to_nothing() -> None:
    with pytest.raises(NotSupervised):
        asyncio.run(watch(1))
