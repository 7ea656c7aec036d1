"""torch.linalg on a virtual GPU: it runs, its results have the shapes they have on a host, and its workspaces count."""

from __future__ import annotations

import pytest

from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

_SHAPES = """
import json, sys, torch
from torch import linalg

def shapes(found):
    return list(found.shape) if isinstance(found, torch.Tensor) else [shapes(part) for part in found]

def results(device, dtype):
    torch.manual_seed(0)
    def drawn(*shape):
        return torch.randn(*shape, dtype=dtype, device=device)
    for outer in ((), (3,), (2, 2)):
        for size in (5, 40):
            square, tall, columns = drawn(*outer, size, size), drawn(*outer, size + 3, size), drawn(*outer, size, 2)
            definite = square @ square.mH + torch.eye(size, dtype=dtype, device=device)
            yield "cholesky", linalg.cholesky(definite)
            yield "cholesky_solve", torch.cholesky_solve(columns, linalg.cholesky(definite))
            yield "svd", linalg.svd(tall)
            yield "thin svd", linalg.svd(tall, full_matrices=False)
            yield "svdvals", linalg.svdvals(square)
            yield "eigh", linalg.eigh(definite)
            yield "eigvalsh", linalg.eigvalsh(definite)
            yield "eig", linalg.eig(square)
            yield "qr", linalg.qr(tall)
            yield "complete qr", linalg.qr(tall, mode="complete")
            yield "inv", linalg.inv(square)
            yield "pinv", linalg.pinv(tall)
            yield "solve", linalg.solve(square, columns)
            yield "lstsq", linalg.lstsq(tall, drawn(*outer, size + 3, 2)).solution
            yield "lu", linalg.lu(square)
            yield "lu_solve", linalg.lu_solve(*linalg.lu_factor(square), columns)
            yield "ldl", linalg.ldl_factor(definite)
            yield "det", linalg.det(square)

dtype = getattr(torch, sys.argv[1])
host = [(name, shapes(found)) for name, found in results("cpu", dtype)]
card = [(name, shapes(found)) for name, found in results("cuda", dtype)]
print(json.dumps([host, card]))
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_shapes_are_those_of_the_host(dtype: str, run_child: RunChild) -> None:
    host, card = run_child(_SHAPES, virtual_environment(memory="8GiB"), dtype)
    assert len(host) == 6 * 18
    assert card == host


_BACKWARD = """
import json, torch
a = torch.eye(64, device="cuda", requires_grad=True)
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
torch.linalg.eigh(a)
workspace = torch.cuda.max_memory_allocated() - before
for function in (torch.linalg.cholesky, torch.linalg.inv, torch.linalg.svdvals, torch.linalg.eigvalsh):
    function(a).sum().backward()
print(json.dumps([workspace, list(a.grad.shape)]))
"""


def test_a_workspace_is_allocated_and_backward_runs(run_child: RunChild) -> None:
    workspace, shape = run_child(_BACKWARD, virtual_environment(memory="8GiB"))
    # 1 + 6n + 2n^2 floats on top of a copy of the matrix and of what comes out
    assert workspace >= 4 * (1 + 6 * 64 + 2 * 64 * 64) + 4 * 64 * 64
    assert shape == [64, 64]
