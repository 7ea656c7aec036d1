"""Lazy clones share memory until one is written to; a look writes to none."""

from __future__ import annotations

import json
import pathlib
import subprocess
import types
from typing import Any

import pytest

from memtui.agent import pointers
from memtui.wire.frames import Frame, RecordedStep, Tensors
from tests.support import programs

PROGRAM = str(programs.PROGRAMS / "clones.py")
ROOT = str(pathlib.Path(__file__).resolve().parents[2])
#: Of them, with a rest that is smaller.
CLONE_BYTES = 4 << 20


def lazy_torch() -> Any:
    """Skips where torch cannot tell lazy clones from other tensors."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C, "_is_cow_tensor") or not hasattr(torch, "_lazy_clone"):
        pytest.skip("this torch does not tell lazy clones")
    return torch


@pytest.mark.parametrize("gpu", [pytest.param(True, marks=pytest.mark.virtual_gpu), False])
def test_looked_at_listed_and_recorded_they_are_shared_still(gpu: bool, tmp_path: pathlib.Path) -> None:
    """Parameters, gradients, buffers, state and what is tagged; their memory is counted once."""
    lazy_torch()
    if gpu:
        environment = programs.virtual_environment_with_agent(tmp_path, memory="2GiB")
    else:
        environment = programs.host_environment(tmp_path)
    environment["PYTHONPATH"] += f":{ROOT}"
    with (
        programs.started(
            PROGRAM, environment=environment, direct=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
        programs.AgentConnection(tmp_path, process.pid) as viewer,
    ):
        viewer.until(
            lambda message: (
                isinstance(message, Frame)
                and message.step > 10
                and message.devices[0].classification is not None
                and message.devices[0].classification.step > 5
            )
        )
        viewer.ask("tensors")
        found = viewer.until(lambda message: isinstance(message, Tensors))
        if gpu:
            viewer.ask("record")
            viewer.until(lambda message: isinstance(message, RecordedStep))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        told = json.loads(process.stdout.readline())
    assert len(told) == 7
    # The view has an offset into the storage, whose beginning is what is compared.
    assert all(shared == [True, True] for shared in told.values()), told
    assert [row.size_bytes for row in found.tensors if row.name and row.size_bytes >= CLONE_BYTES] == [CLONE_BYTES]


def test_a_torch_that_has_only_the_test() -> None:
    """GIVEN a torch older than `const_data_ptr`, THEN the same is told, and as little touched."""
    torch = lazy_torch()
    old = types.SimpleNamespace(Tensor=types.SimpleNamespace(data_ptr=torch.Tensor.data_ptr), _C=torch._C)
    base = torch.randn(4096)
    clone = torch._lazy_clone(base)
    tensors = [base, clone[1024:], clone, torch.empty(0), torch.empty(4, device="meta")]
    start = torch._C._data_address(base)
    for each in (torch, old):
        found = pointers.beginnings(each)(tensors)
        assert found[:3] == [start, start + 4096, start]
        assert found[4] == 0
        assert [torch._C._is_cow_tensor(tensor) for tensor in tensors[:3]] == [True] * 3
        assert pointers.beginnings(each)([torch.ones(8)])[0] != 0
    assert pointers.storage_beginning(torch)(clone[1024:]) == start
