"""What a person types reaches the program as in any terminal."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random

from memtui.sources.program import TerminalSize
from tests.support.supervised import Gate, Programs, wait_for_end, watch


def test_input(programs: Programs) -> None:
    start = programs.python("print('hello', input('name? '))")

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.output == b"name? ")
        client.send_input("Zoë\r".encode())
        await heard.until(lambda heard: heard.closed)
        assert heard.output.decode() == "name? Zoë\r\nhello Zoë\r\n"

    asyncio.run(check())


def test_a_debugger_session(programs: Programs) -> None:
    start = programs.python("def f(x):\n    breakpoint()\n    return x\nprint('result', f(20))")

    async def check() -> None:
        client, heard = await watch(start.pid)
        for prompts, command in enumerate((b"p x + 22", b"x = 33", b"c"), 1):
            await heard.until(lambda heard, prompts=prompts: heard.output.count(b"(Pdb) ") == prompts)
            client.send_input(command + b"\r")
        await heard.until(lambda heard: heard.closed)
        assert b"42" in heard.output
        assert heard.output.endswith((b"result 33\r\n", b"result 20\r\n"))  # Python 3.13 writes locals through
        assert heard.status is not None
        assert heard.status.code == 0

    asyncio.run(check())


def test_the_interrupt_key(programs: Programs, gate: Gate) -> None:
    start = programs.python(
        f"try:\n  print('up', flush=True); {gate.wait}\n"
        "except KeyboardInterrupt: print('interrupted'); raise SystemExit(2)"
    )

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        client.send_input(b"\x03")
        await heard.until(lambda heard: heard.closed)
        assert b"interrupted" in heard.output
        assert heard.status is not None
        assert heard.status.code == 2

    asyncio.run(check())


def test_the_end_of_file_key(programs: Programs) -> None:
    start = programs.python("import sys; print('up', flush=True); print(repr(sys.stdin.read()))")

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        client.send_input(b"line\r\x04")
        await heard.until(lambda heard: heard.closed)
        assert heard.output.endswith(b"'line\\n'\r\n")

    asyncio.run(check())


def test_keys_that_would_freeze_a_training_are_plain_characters(programs: Programs) -> None:
    start = programs.python("print(repr(input('? ')))")

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.output == b"? ")
        client.send_input(b"\x13\x1a\r")
        await heard.until(lambda heard: heard.closed)
        assert b"'\\x13\\x1a'" in heard.output
        assert heard.stopped == []

    asyncio.run(check())


def test_the_window_size(programs: Programs) -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGWINCH, lambda *_: None); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
        "print('first', *os.get_terminal_size(), os.environ['TERM'], flush=True)\n"
        "signal.sigwait([signal.SIGWINCH]); print('changed', *os.get_terminal_size())"
    )
    start = programs.python(code, size=TerminalSize(101, 33), env={**os.environ, "COLUMNS": "7", "LINES": "7"})

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: b"first 101 33 xterm-256color" in heard.output)
        client.resize(64, 20)
        await heard.until(lambda heard: b"changed 64 20" in heard.output)

    asyncio.run(check())


def test_the_terminal_is_the_programs_own(programs: Programs) -> None:
    code = (
        "import os; tty = os.open('/dev/tty', os.O_RDWR); print(os.tcgetpgrp(tty) == os.getpgrp() == os.getpid(), "
        "[os.isatty(n) for n in range(3)], os.getsid(0) == os.getppid())"
    )
    start = programs.python(code)

    async def check() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.closed)
        assert heard.output == b"True [True, True, True] True\r\n"

    asyncio.run(check())


def test_a_paste_nobody_reads_blocks_nothing(programs: Programs, gate: Gate) -> None:
    start = programs.python(f"import tty; tty.setraw(0); print('up', flush=True); {gate.wait}; print('end')")

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        client.send_input(b"x" * 3_000_000)
        client.resize(50, 20)
        gate.open()
        await heard.until(lambda heard: heard.closed)
        assert b"end" in heard.output

    asyncio.run(check())


def test_a_long_paste_arrives_whole(programs: Programs) -> None:
    size = 200_000
    code = (
        "import hashlib, os, tty; tty.setraw(0); print('up', flush=True); data = b''\n"
        f"while len(data) < {size}: data += os.read(0, 65536)\n"
        "print(hashlib.sha256(data).hexdigest())"
    )
    paste = random.Random(1).randbytes(size)
    start = programs.python(code)

    async def check() -> None:
        client, heard = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        client.send_input(paste)
        await heard.until(lambda heard: heard.closed)
        assert hashlib.sha256(paste).hexdigest().encode() in heard.output

    asyncio.run(check())


def test_a_query_is_answered_though_nobody_looks(programs: Programs) -> None:
    code = (
        "import os, tty; tty.setraw(0); os.write(1, b'\\x1b[6n'); answer = b''\n"
        "while not answer.endswith(b'R'): answer += os.read(0, 1)\n"
        "print(repr(answer))"
    )
    start = programs.python(code)
    wait_for_end(start)

    async def check() -> None:
        _, heard = await watch(start.pid)
        await heard.until(lambda heard: heard.closed)
        assert b"b'\\x1b[1;1R'" in heard.output

    asyncio.run(check())


def test_one_viewer_answers(programs: Programs) -> None:
    code = (
        "import os, tty; tty.setraw(0); print('up', flush=True); data = b''\n"
        "while b'.' not in data: data += os.read(0, 1)\n"
        "print(data)\n"
        "while data.count(b'.') < 2: data += os.read(0, 1)\n"
        "print(data)"
    )
    start = programs.python(code)

    async def check() -> None:
        first, heard = await watch(start.pid)
        second, _ = await watch(start.pid)
        await heard.until(lambda heard: b"up" in heard.output)
        second.send_reply(b"unheard")
        second.send_input(b"typed.")
        await heard.until(lambda heard: b"b'typed.'" in heard.output)
        first.send_reply(b"answered.")
        await heard.until(lambda heard: b"b'typed.answered.'" in heard.output)

    asyncio.run(check())
