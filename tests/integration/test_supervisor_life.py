"""The program's surroundings are its own, and the supervisor is small, private and hard to lose."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import pathlib
import pty
import signal
import socket
import stat
import subprocess
import sys
import textwrap

import pytest

from memtui.sources.program import NotSupervised, ProtocolMismatch, find_program, hello_frame
from memtui.sources.program_client import connect
from memtui.sources.program_connection import ProgramConnection
from memtui.supervisor import framing, messages
from memtui.supervisor.messages import Kind
from tests.support.supervised import Gate, Programs, Recorder, alive, wait_for_end, wait_until, watch


def output_of(programs: Programs, code: str, **options: object) -> str:
    async def collect() -> str:
        _, heard = await watch(programs.python(code, **options).pid)
        await heard.until(lambda heard: heard.closed)
        return heard.output.decode().replace("\r\n", "\n")

    return asyncio.run(collect())


def test_the_environment_is_the_one_given(programs: Programs) -> None:
    code = "import os; print(sorted(os.environ.items()), os.environ['MEMTUI_DIRECT'] == str(os.getpid()))"
    heard = output_of(programs, code, env={"A": "ü", "LC_ALL": "C.UTF-8"})
    expected = [("A", "ü"), ("LC_ALL", "C.UTF-8"), ("TERM", "xterm-256color")]
    for name, value in expected:
        assert f"({name!r}, {value!r})" in heard
    assert heard.count("', '") == len(expected) + 1
    assert heard.endswith("True\n")


def test_the_folder_umask_and_arguments(programs: Programs, tmp_path: pathlib.Path) -> None:
    before = os.umask(0o027)
    try:
        start = programs.start(
            sys.executable,
            "-c",
            "import os, sys; print(os.getcwd(), oct(os.umask(0)), [os.fsencode(a) for a in sys.argv[1:]])",
            os.fsdecode(b"\xff\xfe x"),
            cwd=str(tmp_path),
        )
    finally:
        os.umask(before)

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.closed)
        assert heard.output.decode() == f"{tmp_path} 0o27 [b'\\xff\\xfe x']\r\n"
        assert client.start is not None
        assert client.start.argv[-1] == os.fsdecode(b"\xff\xfe x")
        assert client.start.cwd == str(tmp_path)
        assert client.start.supervisor_pid == start.supervisor_pid
        assert client.start.pty

    asyncio.run(check())


def descriptors() -> list[int]:
    listed = sorted(map(int, os.listdir("/proc/self/fd")))
    return [fd for fd in listed if os.path.exists(f"/proc/self/fd/{fd}")]


@pytest.mark.parametrize("with_pty", [True, False])
def test_the_program_has_its_descriptors_and_no_others(
    programs: Programs, tmp_path: pathlib.Path, with_pty: bool
) -> None:
    with open(tmp_path / "inherited", "wb") as inherited, open(tmp_path / "out", "wb") as out:
        os.set_inheritable(inherited.fileno(), True)
        expected = [fd for fd in descriptors() if os.get_inheritable(fd) or fd < 3]
        code = inspect.getsource(descriptors) + f"os.write({inherited.fileno()}, repr(descriptors()).encode())"
        start = programs.python("import os\n" + code, pty=with_pty, stdio=(0, out.fileno(), 2))
        os.set_inheritable(inherited.fileno(), False)
        wait_for_end(start)
    assert ast.literal_eval((tmp_path / "inherited").read_text()) == expected


def test_signals_are_as_the_launcher_had_them(programs: Programs) -> None:
    code = (
        "import signal\n"
        "status = dict(line.split(':\\t') for line in open('/proc/self/status'))\n"
        "print(status['SigBlk'].strip(), [n for n in range(1, 65) if int(status['SigIgn'], 16) >> (n - 1) & 1])"
    )
    python_ignores = [int(signal.SIGPIPE), int(signal.SIGXFSZ)]
    assert output_of(programs, code) == f"{0:016x} {python_ignores}\n"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup memtui run
    try:
        assert output_of(programs, code) == f"{0:016x} {[1, *python_ignores]}\n"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_socket_is_private(programs: Programs, sockets: pathlib.Path, gate: Gate) -> None:
    start = programs.python(gate.wait)
    [path] = sockets.iterdir()
    assert path.name == f"run-{start.pid}.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700


def test_a_socket_swept_away_comes_back(programs: Programs, sockets: pathlib.Path, gate: Gate) -> None:
    start = programs.python(f"{gate.wait}; print('still here')", check_seconds=0.05)
    path = find_program(start.pid).path
    path.unlink()
    wait_until(path.exists, "the socket")
    path.unlink()
    sockets.rmdir()  # as at a logout
    wait_until(path.exists, "the socket and its folder")

    async def check() -> None:
        _, heard = await watch(start.pid)
        gate.open()
        await heard.until(lambda heard: heard.closed)
        assert heard.output == b"still here\r\n"

    asyncio.run(check())


def test_a_successor_keeps_the_name(programs: Programs, gate: Gate) -> None:
    start = programs.python(gate.wait, check_seconds=0.02, keep_seconds=0.0)
    path = find_program(start.pid).path
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as successor:
        successor.bind(str(path))
        inode = path.stat().st_ino
        gate.open()
        wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end")
        assert path.stat().st_ino == inode


def exchange(pid: int, data: bytes) -> list[tuple[int, bytes]]:
    """Send bytes, and read frames until the supervisor hangs up."""
    decoder = framing.Decoder()
    frames: list[tuple[int, bytes]] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(find_program(pid).path))
        peer.sendall(data)
        while True:
            try:
                received = peer.recv(4096)
            except ConnectionResetError:
                return frames
            if not received:
                return frames
            frames += decoder.feed(received)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100,
        messages.write(Kind.HELLO, protocol=messages.PROTOCOL, version=messages.VERSION + 1),
        messages.write(Kind.HELLO, protocol="another", version=messages.VERSION),
        messages.write(Kind.RESIZE, columns=1, rows=1),
        framing.encode(Kind.HELLO, b"[]"),
        framing.encode(Kind.HELLO, b"\xff"),
        hello_frame() + messages.write(Kind.RESIZE, columns=0, rows=1),
        hello_frame() + messages.write(Kind.RESIZE, columns="wide"),
        hello_frame() + messages.write(Kind.SIGNAL, signal=999),
        hello_frame() + framing.HEADER.pack(Kind.INPUT, framing.MAX_PAYLOAD_BYTES + 1),
    ],
    ids=lambda data: f"{data[:1].hex()}-{len(data)}",
)
def test_who_speaks_otherwise_is_hung_up_on(programs: Programs, gate: Gate, data: bytes) -> None:
    start = programs.python(f"{gate.wait}; print('fine')")
    frames = exchange(start.pid, data)
    # Also to those it says who it is, so that they can tell their user.
    assert [kind for kind, _ in frames] in ([Kind.HELLO, Kind.START], [])

    async def check() -> None:
        _, heard = await watch(start.pid)
        gate.open()
        await heard.until(lambda heard: heard.closed)
        assert heard.output == b"fine\r\n"

    asyncio.run(check())


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (messages.write(Kind.HELLO, protocol=messages.PROTOCOL, version=9), r"another memtui \(protocol 9"),
        (messages.write(Kind.HELLO, protocol="other"), "not a memtui supervisor"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a memtui supervisor|frame of"),
        (
            messages.write(Kind.HELLO, protocol=messages.PROTOCOL, version=messages.VERSION),
            "history_start|supervisor_pid",
        ),
    ],
)
def test_a_strange_supervisor_is_refused(sockets: pathlib.Path, greeting: bytes, words: str) -> None:
    async def check() -> None:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting)
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(greet, str(sockets / "run-77.sock"))
        async with server:
            with pytest.raises(ProtocolMismatch, match=words):
                await connect(77, Recorder())

    asyncio.run(check())


def test_an_idle_supervisor_uses_no_time(programs: Programs, gate: Gate) -> None:
    start = programs.python(f"print('up', flush=True); {gate.wait}")

    def ticks() -> int:
        with open(f"/proc/{start.supervisor_pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def switches() -> int:
        with open(f"/proc/{start.supervisor_pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("voluntary"))

    async def check() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        await asyncio.sleep(0.1)
        before = ticks(), switches()
        await asyncio.sleep(0.5)
        # It has not even woken up, but for a check of its socket that may fall into this time.
        assert ticks() - before[0] <= 1
        assert switches() - before[1] <= 3

    asyncio.run(check())
    with open(f"/proc/{start.supervisor_pid}/status") as file:
        resident_kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    assert resident_kib < 24 * 1024


def test_losing_the_terminal_leaves_the_program_running(programs: Programs, gate: Gate, tmp_path: pathlib.Path) -> None:
    viewer = textwrap.dedent(
        f"""
        import os, sys, time
        from memtui.sources.program_launch import launch
        start = launch([sys.executable, "-c", {f"print('one', flush=True); {gate.wait}; print('two')"!r}],
                       dict(os.environ), "/", pty=True, grace_seconds=0.0)
        os.write(1, b"%d %d\\n" % (start.pid, start.supervisor_pid))
        time.sleep(1000)
        """
    )
    viewer_pid, master = pty.fork()
    if viewer_pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", viewer])
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(master, 1)
    program_pid, supervisor_pid = map(int, line.split())
    os.close(master)  # the window is closed, the connection lost
    _, status = os.waitpid(viewer_pid, 0)
    assert os.WTERMSIG(status) == signal.SIGHUP
    assert alive(program_pid)

    async def check() -> None:
        client, heard = await watch(program_pid)
        await heard.until(lambda heard: b"one" in heard.output)
        gate.open()
        await heard.until(lambda heard: heard.closed)
        assert heard.output == b"one\r\ntwo\r\n"
        client.close()

    asyncio.run(check())
    wait_until(lambda: not alive(supervisor_pid), "the supervisor's end")


@pytest.mark.skipif(sys.version_info < (3, 10), reason="has no list of the standard library's modules")
def test_nothing_but_the_wire_is_loaded() -> None:
    code = (
        "import sys; before = set(sys.modules); import memtui.supervisor.__main__; "
        "print(sorted(name for name in sys.modules if name.startswith('memtui')), "
        "sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded, foreign = found.split("] [")
    assert foreign == "'memtui']\n"
    others = [name for name in ast.literal_eval(loaded + "]") if not name.startswith("memtui.supervisor")]
    assert others == ["memtui", "memtui.wire", "memtui.wire.paths"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as somebody else")
def test_another_users_socket_is_not_typed_into(sockets: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trap:
        trap.bind(str(sockets / "run-78.sock"))
        os.seteuid(65534)  # whose credentials listening records
        try:
            trap.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(NotSupervised, match="belongs to another user"):
            asyncio.run(watch(78))
        with pytest.raises(NotSupervised, match="belongs to another user"):
            ProgramConnection(78)


def test_sigterm_after_the_end_dismisses_the_supervisor(programs: Programs, sockets: pathlib.Path) -> None:
    """Nobody has collected the status, and nobody has to kill the process for it."""
    start = programs.python("pass")
    wait_for_end(start)
    assert alive(start.supervisor_pid)

    os.kill(start.supervisor_pid, signal.SIGTERM)

    wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end")
    assert not list(sockets.iterdir())
