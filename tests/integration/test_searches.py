"""When a program's objects are searched for models that nothing announced: where something is missing."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from memtui.wire.frames import Event, Frame
from tests.support import programs

PROGRAM = str(programs.PROGRAMS / "copied.py")
STEPS = 120


def searches(kind: str, environment: dict[str, str], runtime: pathlib.Path) -> list[Event]:
    """Searches of all objects until so many steps, in which the copy is looked at several times."""
    found, more = [], 3  # what a tick has found follows its frame
    with (
        programs.started(PROGRAM, kind, environment=environment, stdin=subprocess.PIPE) as process,
        programs.AgentConnection(runtime, process.pid) as viewer,
    ):
        for message in viewer.messages():
            if isinstance(message, Event) and message.name == "discovery" and message.figures["objects"]:
                found.append(message)
            if isinstance(message, Frame) and message.step >= STEPS:
                more -= 1
            if not more:
                break
    return found


@pytest.mark.parametrize(("kind", "searched"), [("none", 0), ("kept", 0), ("trained", 1)])
def test_on_the_host(kind: str, searched: int, tmp_path: pathlib.Path) -> None:
    """What no tensor of a model explains is no reason, for there always is some: an optimizer's parameters are one."""
    found = searches(kind, programs.host_environment(tmp_path), tmp_path)
    assert len(found) == searched
    assert all(event.figures["roots"] == 2 and event.figures["new"] == 1 for event in found)


@pytest.mark.virtual_gpu
@pytest.mark.parametrize(("kind", "searched"), [("none", 0), ("kept", 1)])
def test_on_a_device(kind: str, searched: int, tmp_path: pathlib.Path) -> None:
    """What nobody owns there is a copy's."""
    found = searches(kind, programs.virtual_environment_with_agent(tmp_path, memory="2GiB"), tmp_path)
    assert len(found) == searched
    assert all(event.figures["roots"] == 2 and event.figures["new"] == 1 for event in found)
