"""The last way in: gdb queues the same call. It holds every thread for about half a second, and is never killed."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading

from .errors import InjectError
from .words import last_line

_PAGE = 4096
_SECONDS = 60.0
_DONE = re.compile(r"^memtui queued (-?\d+)$", re.MULTILINE)


def inject_with_gdb(pid: int, gdb: str, text: bytes) -> None:
    """Queues `PyRun_SimpleString(text)`; raises InjectError. gdb that does not come back is left to itself."""
    with tempfile.NamedTemporaryFile(prefix="memtui-", suffix=".bin") as file:
        data = text + b"\0"
        file.write(data)
        file.flush()
        size = (len(data) + _PAGE - 1) // _PAGE * _PAGE
        commands = [
            "set pagination off",
            "set confirm off",
            "set unwindonsignal on",
            "set debuginfod enabled off",
            f"attach {pid}",
            f"set $text = ((unsigned long (*)(long, long, int, int, int, long)) mmap)(0, {size}, 3, 0x22, -1, 0)",
            f"restore {file.name} binary $text",
            "set $said = ((int (*)(void *, void *)) Py_AddPendingCall)((void *) PyRun_SimpleString, (void *) $text)",
            'printf "memtui queued %d\\n", $said',
            "detach",
        ]
        arguments = [word for line in commands for word in ("-ex", line)]
        output, complaints = _run([gdb, "-nx", "-batch", *arguments])
    found = _DONE.search(output)
    if found is None:
        raise InjectError(f"gdb: {last_line(complaints)}")
    if found[1] != "0":
        raise InjectError("its Python's queue of calls is full")


def _run(command: list[str]) -> tuple[str, str]:
    # In a session of its own: an interrupt of this process must not end it halfway.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C", "DEBUGINFOD_URLS": ""},
    )
    answer: list[tuple[str, str]] = []
    waiter = threading.Thread(target=lambda: answer.append(process.communicate()), name="memtui-gdb", daemon=True)
    waiter.start()
    waiter.join(_SECONDS)
    if not answer:
        raise InjectError(f"gdb (process {process.pid}) does not come back; killing it could harm the program")
    return answer[0]
