"""A viewer whose terminal goes away ends, and the training does not."""

from __future__ import annotations

import os
import pathlib
import pty
import subprocess
import sys

from tests.support import programs

CODE = """
import time, torch
model = torch.nn.Linear(8, 8)
while True:
    model(torch.randn(2, 8)).sum().backward()
    time.sleep(0.01)
"""


def test_without_a_signal_too(tmp_path: pathlib.Path) -> None:
    """The pty is nobody's controlling terminal here: no hang-up signal is sent when its other end closes."""
    environment = programs.host_environment(tmp_path)
    with programs.started("-c", CODE, environment=environment) as training:
        with programs.AgentConnection(tmp_path, training.pid):
            pass
        ours, theirs = pty.openpty()
        viewer = subprocess.Popen(
            [sys.executable, "-m", "memtui", "attach", "--pid", str(training.pid)],
            env={**programs.plain_environment(), "MEMTUI_RUNTIME_DIR": str(tmp_path), "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            seen = b""
            while b"memtui" not in seen:
                seen += os.read(ours, 65_536)
            os.close(ours)
            viewer.wait(30)
        finally:
            viewer.kill()
            viewer.wait()
        assert training.poll() is None
