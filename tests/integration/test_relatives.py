"""Which of several processes is watched."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from memtui.sources.relatives import ancestors, choose_agent, other_agents, rank_of

#: Stays until its standard input ends; says the pids of those it starts, one for each word: a rank, or "-".
LAUNCHER = """
import os, subprocess, sys
sleeper = "import sys; sys.stdin.read()"
for word in sys.argv[1:]:
    env = {name: value for name, value in os.environ.items() if name != "RANK"}
    if word != "-":
        env["RANK"] = word
    print(subprocess.Popen([sys.executable, "-c", sleeper], env=env).pid, flush=True)
sys.stdin.read()
"""


class Family:
    """A launcher and its children, with sockets of agents for those named."""

    def __init__(self, folder: pathlib.Path, *words: str) -> None:
        self.folder = folder
        command = [sys.executable, "-c", LAUNCHER, *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.children = [int(self.process.stdout.readline()) for _ in words]
        self.root = self.process.pid

    def agent(self, pid: int) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.folder / f"agent-{pid}.sock"))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture
def family(sockets: pathlib.Path) -> Iterator[Family]:
    made = Family(sockets, "1", "0", "-")
    yield made
    made.end()


def test_ancestors_and_ranks(family: Family) -> None:
    """As the kernel has them."""
    assert ancestors(family.children[0])[:2] == [family.root, os.getpid()]
    assert [rank_of(pid) for pid in family.children] == [1, 0, None]
    assert ancestors(4_194_303) == []


def test_nobody_has_an_agent(family: Family) -> None:
    """Then there is nobody to choose."""
    assert choose_agent(family.root) is None


def test_a_launcher_that_imports_torch_is_not_the_training(family: Family) -> None:
    """Ranks come first, the lowest of them; without ranks the program itself."""
    family.agent(family.root)
    family.agent(family.children[2])
    assert choose_agent(family.root) == family.root
    assert other_agents(family.root, family.root) == [family.children[2]]

    family.agent(family.children[0])
    assert choose_agent(family.root) == family.children[0]
    family.agent(family.children[1])
    assert choose_agent(family.root) == family.children[1]


def test_strangers_are_never_chosen(family: Family) -> None:
    """With several sockets there the first readable one is not good enough."""
    family.agent(os.getpid())

    assert choose_agent(family.root) is None
