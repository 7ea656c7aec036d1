"""Gradients that the followed thread makes are counted, also where no optimizer of torch's has their parameters."""

from __future__ import annotations

import pathlib
import subprocess

from memtui.wire.frames import Frame
from tests.support import programs
from tests.support.targets import Viewer, attached, target

PROGRAM = programs.PROGRAMS / "gradients_of_nobody.py"


def test_between_naps(tmp_path: pathlib.Path) -> None:
    """GIVEN an encoder that somebody forgot to freeze, WHEN steps are so short that the agent naps, THEN they count."""
    environment = programs.host_environment(tmp_path)
    with (
        programs.started(
            str(PROGRAM), environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
        programs.AgentConnection(tmp_path, process.pid) as viewer,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        gradients = int(process.stdout.readline())
        frame = viewer.until(
            lambda message: (
                isinstance(message, Frame)
                and message.step > 2500
                and message.devices[0].classification is not None
                and message.devices[0].classification.step > 2000
            )
        )
        assert frame.devices[0].categories()["gradients"] == gradients


def test_after_getting_in(tmp_path: pathlib.Path) -> None:
    """GIVEN an optimizer of the program's own and another thread, THEN its gradients count from the next pass on."""
    programs.require_torch()
    code = f"import runpy, sys; sys.argv[1:] = ['late']; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    with target(code, tmp_path) as process:
        assert process.stdout is not None
        gradients = int(process.stdout.readline())
        outcome = attached(process.pid)
        assert outcome.socket is not None
        with Viewer(outcome.socket) as viewer:
            step = viewer.until(Frame).step
            frame = viewer.until(
                Frame, lambda frame: frame.step > step + 200 and frame.devices[0].categories().get("gradients", 0) > 0
            )
        assert frame.devices[0].categories()["gradients"] == gradients
