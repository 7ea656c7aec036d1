"""What a program writes arrives, byte for byte, whoever watches and however slowly."""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import subprocess
import sys
import textwrap

from memtui.sources.program import find_program, hello_frame
from memtui.sources.program_replay import replay_to
from memtui.supervisor import messages
from memtui.supervisor.framing import Decoder
from memtui.supervisor.messages import Kind
from tests.support.supervised import Gate, Programs, alive, wait_for_end, wait_until, watch

#: All bytes but the interrupt, end-of-file and the like are the program's to write, and none is to be changed.
EVERY_BYTE = "bytes(range(256)) * 40"


def test_with_a_terminal_only_line_ends_change(programs: Programs) -> None:
    start = programs.python(f"import os; os.write(1, {EVERY_BYTE}); os.write(2, b'err')")

    async def check() -> bytes:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.closed)
        assert heard.close_reason is None
        assert heard.events[-2:] == ["exited", "closed"]
        return heard.output

    # The terminal's own newline is what the program would have had without memtui, too.
    assert asyncio.run(check()) == (bytes(range(256)) * 40).replace(b"\n", b"\r\n") + b"err"


def test_without_a_terminal_streams_are_the_callers(programs: Programs, tmp_path: pathlib.Path) -> None:
    code = f"import os, sys; os.write(1, {EVERY_BYTE}); os.write(2, sys.stdin.buffer.read())"
    (tmp_path / "in").write_bytes(bytes(range(256)))
    with (
        open(tmp_path / "in", "rb") as source,
        open(tmp_path / "out", "wb") as out,
        open(tmp_path / "err", "wb") as err,
    ):
        streams = (source.fileno(), out.fileno(), err.fileno())
        start = programs.python(code, pty=False, stdio=streams)

    async def check() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.closed)
        assert heard.output == b""

    asyncio.run(check())
    assert (tmp_path / "out").read_bytes() == bytes(range(256)) * 40
    assert (tmp_path / "err").read_bytes() == bytes(range(256))


def test_a_reader_of_a_pipe_sees_its_end_when_the_program_does(programs: Programs) -> None:
    read_end, write_end = os.pipe()
    start = programs.python("print('x')", pty=False, stdio=(0, write_end, 2))
    os.close(write_end)
    # The supervisor stays to keep the status, and must not keep the pipe.
    with open(read_end, "rb") as reader:
        assert reader.read() == b"x\n"
    assert alive(start.supervisor_pid)


def test_a_late_viewer_has_the_history_and_then_the_rest(programs: Programs, gate: Gate) -> None:
    start = programs.python(f"print('one', flush=True); {gate.wait}; print('two')")

    async def check() -> None:
        early, early_heard = await watch(start.pid)
        await early_heard.until(lambda heard: b"one" in heard.output)
        late, late_heard = await watch(start.pid)
        await late_heard.until(lambda heard: b"one" in heard.output)
        assert late_heard.replayed == b"one\r\n"
        assert late.start == early.start
        gate.open()
        for heard in (early_heard, late_heard):
            await heard.until(lambda heard: heard.closed)
            assert heard.output == b"one\r\ntwo\r\n"
        assert late_heard.live == b"two\r\n"
        assert late_heard.lost_bytes == 0

    asyncio.run(check())


def test_many_viewers_hear_the_same(programs: Programs, gate: Gate) -> None:
    start = programs.python(f"{gate.wait}; print('x' * 300_000)")

    async def check() -> None:
        watching = [await watch(start.pid) for _ in range(12)]
        gate.open()
        for _, heard in watching:
            await heard.until(lambda heard: heard.closed)
            assert heard.output == b"x" * 300_000 + b"\r\n"

    asyncio.run(check())


def test_what_the_ring_forgot_is_counted(programs: Programs) -> None:
    total = 1_000_000
    start = programs.python(f"print('a' * {total})", ring_bytes=200_000)
    wait_for_end(start)

    async def check() -> None:
        _, heard = await watch(start.pid, collect=False)
        await heard.until(lambda heard: heard.closed)
        assert heard.events[0] == "lost"
        assert heard.lost_bytes + len(heard.output) == total + 2
        assert 100_000 < len(heard.output) <= 200_000
        assert heard.output.endswith(b"a\r\n")

    asyncio.run(check())


def test_a_viewer_that_does_not_read_blocks_nobody(programs: Programs, gate: Gate, last_gate: Gate) -> None:
    count = 8_000_000
    code = f"import os; {gate.wait}; [os.write(1, b'y' * 80_000) for _ in range({count // 80_000})]; {last_gate.wait}"
    start = programs.python(code, ring_bytes=1_000_000)
    stuck = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stuck.connect(str(find_program(start.pid).path))
    stuck.sendall(hello_frame())

    async def check() -> None:
        _, heard = await watch(start.pid)
        await asyncio.to_thread(gate.open)
        # It comes to that gate only after all of its output has been taken.
        await asyncio.to_thread(last_gate.open)
        await heard.until(lambda heard: heard.closed)
        assert heard.lost_bytes + len(heard.output) == count

    asyncio.run(check())

    # Back again, it is told by the offsets what it missed, and goes on from there.
    position, lost, kinds = 0, 0, set()
    decoder = Decoder()
    with stuck:
        while Kind.END not in kinds:
            for kind, payload in decoder.feed(stuck.recv(1 << 16)):
                kinds.add(kind)
                if kind == Kind.OUTPUT:
                    offset, data = messages.read_output(payload)
                    assert set(data) == {ord("y")}
                    lost += offset - position
                    position = offset + len(data)
    assert position == count
    assert lost > count // 2


def test_output_of_grandchildren_goes_on_after_the_exit(programs: Programs, gate: Gate) -> None:
    grandchild = f"{gate.wait}; print('late')"
    start = programs.python(
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {grandchild!r}]); print('early'); sys.exit(5)"
    )

    async def check() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.status is not None)
        assert heard.status is not None
        assert heard.status.code == 5
        assert heard.output == b"early\r\n"
        assert not heard.closed
        gate.open()
        await heard.until(lambda heard: heard.closed)
        assert heard.output == b"early\r\nlate\r\n"

    asyncio.run(check())


def test_replay_prints_what_was_written(programs: Programs, tmp_path: pathlib.Path) -> None:
    text = "\\x1b[31mred\\x1b[0m\\x1b[6n\\x1b[?25l\\x1b[cplain"
    # Raw, because a terminal that echoes would echo its own answers to those questions, too.
    start = programs.python(f"import os, tty; tty.setraw(0); os.write(1, b'{text}'); raise SystemExit(4)")
    wait_for_end(start)
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        status = replay_to(start.pid, out.fileno(), error_fd=err.fileno()).status
    assert status is not None
    assert status.code == 4
    # Without its questions to the terminal, and with the cursor shown again.
    assert (tmp_path / "out").read_bytes() == b"\x1b[31mred\x1b[0m\x1b[?25lplain\x1b[?25h\x1b[m"
    assert (tmp_path / "err").read_bytes() == b""
    wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end, as the status is collected")


def test_replay_says_what_is_missing_and_begins_with_a_line(programs: Programs, tmp_path: pathlib.Path) -> None:
    start = programs.python("for i in range(50_000): print(f'line {i:07}')", ring_bytes=100_000)
    wait_for_end(start)
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        replay_to(start.pid, out.fileno(), error_fd=err.fileno())
    lines = (tmp_path / "out").read_bytes().split(b"\r\n")
    assert lines[0].startswith(b"line ")
    assert lines[-2:] == [b"line 0049999", b""]
    assert (tmp_path / "err").read_text().startswith("memtui: the first ")


def test_replay_of_a_running_program_does_not_wait(programs: Programs, gate: Gate, tmp_path: pathlib.Path) -> None:
    start = programs.python(f"print('so far', flush=True); {gate.wait}")

    async def arrived() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: b"so far" in heard.output)

    asyncio.run(arrived())
    with open(tmp_path / "out", "wb") as out:
        assert replay_to(start.pid, out.fileno()).status is None
    assert (tmp_path / "out").read_bytes() == b"so far\r\n"
    gate.open()


def test_killing_or_stopping_a_viewer_changes_nothing(programs: Programs, gate: Gate, last_gate: Gate) -> None:
    start = programs.python(
        f"import os; {gate.wait}; [os.write(1, b'z' * 50_000) for _ in range(40)]; {last_gate.wait}; print('end')"
    )
    viewer = textwrap.dedent(
        f"""
        import asyncio
        from tests.support.supervised import watch
        async def main():
            client, heard = await watch({start.pid})
            print("watching", flush=True)
            await heard.until(lambda heard: False)
        asyncio.run(main())
        """
    )
    viewers = [subprocess.Popen([sys.executable, "-c", viewer], stdout=subprocess.PIPE) for _ in range(2)]
    for process in viewers:
        assert process.stdout is not None
        assert process.stdout.readline() == b"watching\n"
    viewers[0].kill()
    os.kill(viewers[1].pid, 19)  # SIGSTOP
    gate.open()
    last_gate.open()

    async def check() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.closed)
        assert heard.output == b"z" * 2_000_000 + b"end\r\n"

    asyncio.run(check())
    for process in viewers:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
