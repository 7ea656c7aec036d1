"""How many elements `nonzero()` finds: none, or a share that is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtui.virtual_gpu.report_file import read_reports
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

_SELECTS = """
import json, torch
found = []
for dtype in (torch.float32, torch.bool, torch.int64, torch.bfloat16):
    x = torch.zeros(1000, 300, device="cuda", dtype=dtype)
    mask = x.bool()
    found.append([list(x.nonzero().shape), list(x[mask].shape), list(x.masked_select(mask).shape),
                  list(torch.where(x[:3, 0])[0].shape), x.sum().item() == 0])
large = torch.zeros(2**31 + 8, dtype=torch.bool, device="cuda")
found.append(list(large.nonzero().shape))
counts = torch.full((5,), 3, device="cuda")
found.append(list(large[:5].repeat_interleave(counts).shape))
print(json.dumps(found))
"""


@pytest.mark.parametrize(("share", "of_300_000", "of_3", "of_large"), [(0.0, 0, 0, 0), (0.25, 75_000, 1, 2**29 + 2)])
def test_a_share_of_the_elements(
    share: float, of_300_000: int, of_3: int, of_large: int, tmp_path: Path, run_child: RunChild
) -> None:
    environment = virtual_environment(memory="200GiB", selected=share, report_file=tmp_path / "run")
    *found, large, repeated = run_child(_SELECTS, environment)
    assert found == [[[of_300_000, 2], [of_300_000], [of_300_000], [of_3], True]] * 4
    assert large == [of_large, 1]
    assert repeated == [0]  # a sum of counts is a value like any other
    (report,) = read_reports(tmp_path / "run")
    assert ("estimated" in {note.kind for note in report.notes}) == (share > 0)
    assert {read.what for read in report.host_reads if read.drives_a_shape} == {"nonzero", "repeat_interleave"}


@pytest.mark.parametrize("cc", ["8.9", "10.3", "12.1"])
def test_devices_that_run_the_kernels_of_an_older_capability(cc: str, run_child: RunChild) -> None:
    """CUB looks for kernels that torch was built with: for these devices those of 8.6, 10.0 and 12.0."""
    source = "import json, torch; x = torch.ones(64, 3, device='cuda'); print(json.dumps(list(x[x[:, 0] > 0].shape)))"
    assert run_child(source, virtual_environment(cc=cc)) == [0, 3]
