"""Which processes below a launcher are its ranks."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from memtui.sources.launched import has_ranks, with_agents, without_agents

#: Starts a process for each word, "RANK" or "RANK>RANK" for one that starts another; each says its pid.
LAUNCHER = """
import os, subprocess, sys
words = sys.argv[1:]
for word in words:
    rank, _, below = word.partition(">")
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
    if rank != "-":
        env.update(RANK=rank, LOCAL_RANK=rank)
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    if below:
        program = [sys.executable, sys.argv[0], below]
    if below:
        env["NESTED"] = "1"
    print(subprocess.Popen(program, env=env).pid, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def launched(folder: pathlib.Path, *words: str) -> Iterator[tuple[int, list[int]]]:
    script = folder / "launcher.py"
    script.write_text(LAUNCHER)
    count = sum(1 + (">" in word) for word in words)
    process = subprocess.Popen(
        [sys.executable, str(script), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.pid, [int(process.stdout.readline()) for _ in range(count)]
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def agent(folder: pathlib.Path, pid: int) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / f"agent-{pid}.sock"))


@pytest.fixture
def below(sockets: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[tuple[int, list[int]]]:
    with launched(tmp_path, "0", "1>1", "-") as found:
        yield found


def test_ranks_without_an_agent_are_those_of_their_environment(below: tuple[int, list[int]]) -> None:
    """GIVEN two ranks, a worker of one that inherited its number, and a helper, THEN the two are the ranks."""
    root, pids = below
    found = without_agents(root, ())
    assert [each.rank for each in found] == [0, 1]
    assert [each.local_rank for each in found] == [0, 1]
    assert {each.pid for each in found} < set(pids)
    assert has_ranks(root)


def test_what_the_driver_lists_may_be_a_rank_too(below: tuple[int, list[int]]) -> None:
    root, _ = below
    ranked = {each.pid for each in without_agents(root, ())}
    others = {each.pid for each in without_agents(root, set(below[1]))} - ranked
    assert len(others) == 1  # the one without a number; never the worker of a rank


def test_a_worker_with_an_agent_is_no_second_rank_of_its_number(
    sockets: pathlib.Path, below: tuple[int, list[int]]
) -> None:
    """GIVEN a data loader's worker that uses a device, THEN it is left out, and the rank itself is not."""
    root, pids = below
    for pid in pids:
        agent(sockets, pid)
    found = with_agents(root)
    assert sorted(each.rank for each in found if each.rank is not None) == [0, 1]
    assert len(found) == 3
    assert without_agents(root, set(pids)) == []


def test_a_rank_itself_has_none(below: tuple[int, list[int]]) -> None:
    """GIVEN a rank that has started a worker, THEN attaching to it is attaching to it alone."""
    root, _ = below
    for each in without_agents(root, ()):
        assert not has_ranks(each.pid)
