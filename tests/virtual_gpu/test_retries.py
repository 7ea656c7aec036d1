"""When allocations were tried again, beside the errors that some of them end in."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from memtui.session.session import Session
from memtui.wire.frames import Event, Frame, Hello
from tests.support import programs

pytestmark = pytest.mark.virtual_gpu


@pytest.mark.parametrize("known", [True, False])
def test_a_retry_comes_before_the_error_it_ends_in_and_after_it_where_it_was_later(
    tmp_path: pathlib.Path, known: bool
) -> None:
    """Also where the error comes before the agent knows of the device."""
    environment = programs.virtual_environment_with_agent(tmp_path, memory="24GiB")
    session, told = Session(), []
    with programs.started(
        str(programs.PROGRAMS / "exhausting.py"),
        environment=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            if known:
                viewer.until(_has_device)
            process.stdin.write(b"go\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) == 2
            for message in viewer.messages():
                if isinstance(message, (Hello, Event)):
                    session.apply(message, 0)
                    told.append(message)
                retries = [event for event in session.events if event.name == "alloc_retry"]
                if len(retries) == 2:
                    break
        process.stdin.close()
        process.wait(30)
    for message in told:  # as after a reconnection
        session.apply(message, 0)

    events = [event for event in session.events if event.name in ("alloc_retry", "oom")]
    assert [event.name for event in events] == ["alloc_retry", "oom", "alloc_retry"]
    counts = [event.figures.get("num_alloc_retries") for event in events]
    assert counts == [1, 1, 2] if known else counts in ([1, 1, 2], [None, None, 2])
    assert events[0].time_ns == events[1].time_ns < events[2].time_ns - 500_000_000


def _has_device(message: object) -> bool:
    return isinstance(message, Frame) and any(device.device == "cuda:0" for device in message.devices)
