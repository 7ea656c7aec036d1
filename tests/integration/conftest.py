"""Fixtures for tests that start real processes."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.support.supervised import Gate, Programs, runtime_folder


@pytest.fixture
def sockets() -> Iterator[pathlib.Path]:
    """A runtime folder of the test's own; its path is short, as a socket's has to be."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-"))
    with runtime_folder(folder):
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def programs(sockets: pathlib.Path) -> Iterator[Programs]:
    """Programs under supervisors, ended with the test."""
    started = Programs()
    yield started
    started.stop()


@pytest.fixture
def gate(tmp_path: pathlib.Path) -> Gate:
    """A FIFO to hold a program at."""
    return Gate(tmp_path, "gate")


@pytest.fixture
def last_gate(tmp_path: pathlib.Path) -> Gate:
    """Another one: a FIFO opened twice in a row may be opened by the same reader both times."""
    return Gate(tmp_path, "last-gate")
