"""What tests over ssh share."""

from __future__ import annotations

import pathlib
import platform
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.support import programs, sshd
from tests.support.supervised import runtime_folder


@pytest.fixture
def sockets() -> Iterator[pathlib.Path]:
    """A runtime folder of the test's own; its path is short, as a socket's has to be."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-"))
    with runtime_folder(folder):
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def servers() -> Iterator[sshd.Servers]:
    """Servers that end with the test."""
    if platform.machine() != "x86_64":
        pytest.skip("memtui's own way in is for x86-64")
    with sshd.servers() as made:
        yield made


@pytest.fixture
def env(servers: sshd.Servers, sockets: pathlib.Path) -> dict[str, str]:
    """What the viewer is started with; the programs too, but for what only it reads."""
    inherited = {name: value for name, value in programs.plain_environment().items() if not name.startswith("XDG_")}
    more = {"MEMTUI_RUNTIME_DIR": str(sockets), "CUDA_VISIBLE_DEVICES": "", "MEMTUI_SSH": servers.command}
    return {**inherited, **more}
