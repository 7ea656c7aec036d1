"""Gradients of a thread that nothing is known of are not asked for: torch may be dropping one, and crashes then."""

from __future__ import annotations

import pathlib
import subprocess

from memtui.wire.frames import Frame
from tests.support import programs
from tests.support.targets import Viewer, attached, target

PROGRAM = programs.PROGRAMS / "gradients_of_others.py"


def test_after_getting_in(tmp_path: pathlib.Path) -> None:
    """GIVEN a thread that trains without an optimizer, WHEN it is followed, THEN the other's gradients stay unread."""
    programs.require_torch()
    code = f"import runpy, sys; sys.argv[1:] = ['late']; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    with target(code, tmp_path) as process:
        outcome = attached(process.pid)
        assert outcome.socket is not None
        with Viewer(outcome.socket) as viewer:
            for _ in range(3):
                step = viewer.until(Frame).step
                looked = viewer.until(Frame, lambda frame, step=step: frame.step > step + 100)
                assert looked.devices[0].classification is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "0\n"


def test_between_naps(tmp_path: pathlib.Path) -> None:
    """GIVEN short steps, in whose naps nobody else's backward passes are seen, THEN the other's stay unread too."""
    environment = programs.host_environment(tmp_path)
    with (
        programs.started(
            str(PROGRAM), "naps", environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
        programs.AgentConnection(tmp_path, process.pid) as viewer,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        answers, begun = [], 0
        for _ in range(2):
            until = begun + 1500
            frame = viewer.until(lambda message, until=until: isinstance(message, Frame) and message.step > until)
            assert frame.devices[0].categories()["parameters"] > 0
            process.stdin.write(b"\n")
            answers.append(process.stdout.readline())
            begun = frame.step
        assert answers[1] == b"0\n"  # before the first nap every pass is seen, and all may be read
