"""Convolutions on a virtual GPU: every kind runs, and asks for the workspace that its shapes make likely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memtui.virtual_gpu.report_file import read_reports
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

MIB = 1 << 20

# The context of an A100 under the same group's fully connected networks, as nvidia-smi has it.
_A100 = {"memory": "40GiB", "cc": "8.0", "multiprocessors": 108, "context": "1429MiB"}


def _a100(**others: Any) -> dict[str, str]:
    return virtual_environment(**{**_A100, **others})


_KINDS = """
import json, sys, torch, torch.nn as nn
torch.backends.cudnn.benchmark = sys.argv[1] == 'benchmark'
torch.backends.cudnn.deterministic = sys.argv[1] == 'deterministic'
torch.backends.cudnn.allow_tf32 = sys.argv[1] != 'no tf32'
kinds = {
    'plain': (nn.Conv2d(8, 16, 3, padding=1), (4, 8, 20, 20)),
    'strided': (nn.Conv2d(8, 16, 7, stride=2, dilation=2), (4, 8, 40, 40)),
    'grouped': (nn.Conv2d(8, 16, 3, groups=4), (4, 8, 20, 20)),
    'transposed': (nn.ConvTranspose2d(8, 16, 3, stride=2), (4, 8, 20, 20)),
    'one dimension': (nn.Conv1d(8, 16, 3), (4, 8, 40)),
    'three dimensions': (nn.Conv3d(8, 16, 3), (4, 8, 9, 9, 9)),
}
done = []
for name, (layer, shape) in kinds.items():
    layer.cuda()
    for how in ('float', 'bfloat16', 'channels last'):
        batch = torch.randn(shape, device='cuda', requires_grad=True)
        if how == 'channels last' and batch.dim() == 4:
            batch = batch.detach().to(memory_format=torch.channels_last).requires_grad_()
        for _ in range(2):
            with torch.autocast('cuda', dtype=torch.bfloat16, enabled=how == 'bfloat16'):
                loss = layer(batch).float().pow(2).mean()
            loss.backward()
        done.append(batch.grad is not None and all(p.grad is not None for p in layer.parameters()))
print(json.dumps(done))
"""


@pytest.mark.parametrize("how", ["default", "benchmark", "deterministic", "no tf32"])
def test_every_kind_of_convolution_trains(run_child: RunChild, how: str) -> None:
    assert run_child(_KINDS, _a100(), how) == [True] * 18


# One step's peak beside what stays allocated; arguments: channels in and out, batch, height and width, filter.
_STEP = """
import json, sys, torch, torch.nn as nn
channels, filters, batch, size, kernel = map(int, sys.argv[1:])
layer = nn.Conv2d(channels, filters, kernel, padding=kernel // 2, bias=False).cuda()
x = torch.empty(batch, channels, size, size, device='cuda', requires_grad=True)
y = layer(x)
torch.cuda.reset_peak_memory_stats()
y.sum().backward()
print(json.dumps(torch.cuda.max_memory_allocated()))
"""


def _workspace_bytes(run_child: RunChild, *arguments: str) -> int:
    """Of the larger of the two backward passes: the peak without a workspace is theirs too."""
    estimated = run_child(_STEP, _a100(), *arguments)
    return int(estimated) - int(run_child(_STEP, _a100(cudnn_workspace=0), *arguments))


def test_winograd_of_a_narrow_layer(run_child: RunChild) -> None:
    # VGG's second layer: 56x56 tiles of 36 points an image, in fp32, over 64 + 64 channels, and the filter's.
    expected = 4 * 36 * (8 * 56 * 56 * 128 + 64 * 64)
    assert _workspace_bytes(run_child, "64", "64", "8", "224", "3") == pytest.approx(expected, abs=2 * MIB)


def test_copies_of_a_wide_layer(run_child: RunChild) -> None:
    expected = 4 * (2 * 8 * 512 * 28 * 28 + 512 * 512 * 9)
    assert _workspace_bytes(run_child, "512", "512", "8", "28", "3") == pytest.approx(expected, abs=2 * MIB)


def test_no_workspace_for_a_pointwise_layer(run_child: RunChild) -> None:
    assert _workspace_bytes(run_child, "64", "256", "8", "56", "1") == 0


def test_a_convolution_takes_the_next_algorithm_where_memory_is_short(run_child: RunChild) -> None:
    # 196 MiB of tensors twice, and 437 MiB of workspace that are not there.
    environment = virtual_environment(memory="500MiB", cc="8.0", cudnn_load=0)
    assert run_child(_STEP, environment, "64", "64", "8", "224", "3") < 500 * MIB


_NETWORK = """
import json, sys, torch, torch.nn as nn
channels, filters, depth, batch, size, classes = map(int, sys.argv[1:7])
layers = []
for i in range(depth):
    layers += [nn.Conv2d(filters if i else channels, filters, 3, padding=1), nn.LeakyReLU()]
network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(filters, classes), nn.Softmax(1))
network.cuda()
with torch.no_grad():
    network(torch.empty(batch, channels, size, size, device='cuda'))
optimizer = torch.optim.Adam(network.parameters())
for _ in range(3):
    x = y = None
    x = torch.empty(batch, channels, size, size, device='cuda')
    y = torch.zeros(batch, dtype=torch.long, device='cuda')
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(x), y)
    loss.backward()
    optimizer.step()
free, total = torch.cuda.mem_get_info()
print(json.dumps((total - free) >> 20))
"""


# 18 and 17 % of it are missing without workspaces, which are estimated a little high here.
# GPUMemNet's cnn_data_step1.csv: 2 layers of 72 filters on 44 grey pictures of 104x104, and of 101 filters on 46
# coloured ones of 88x88; nvidia-smi on an A100.
@pytest.mark.parametrize(
    ("arguments", "measured_mib"), [("1 72 2 44 104 624", 2913), ("3 101 2 46 88 183", 2987)], ids=["72", "101"]
)
def test_a_small_network_has_nvidia_smis_figure(run_child: RunChild, arguments: str, measured_mib: int) -> None:
    assert run_child(_NETWORK, _a100(), *arguments.split()) == pytest.approx(measured_mib, rel=0.07)


def test_kernels_are_charged_once_and_estimates_are_counted(run_child: RunChild, tmp_path: Path) -> None:
    source = """
import json, torch
def used(): return (lambda free, total: (total - free) >> 20)(*torch.cuda.mem_get_info())
torch.zeros(1, device='cuda'); figures = [used()]
x = torch.zeros(2, 4, 8, 8, device='cuda')
for filters in (4, 5, 5):
    torch.nn.functional.conv2d(x, torch.zeros(filters, 4, 3, 3, device='cuda')); figures.append(used())
print(json.dumps(figures))
"""
    figures = run_child(source, _a100(cudnn_load="100MiB", report_file=tmp_path / "run"))
    assert figures == [1432, 1532, 1532, 1532]
    (report,) = read_reports(tmp_path / "run")
    counts = {note.name: note.count for note in report.notes if note.kind == "estimated"}
    assert counts == {"cuDNN convolution workspace": 2, "cuDNN's kernels": 1}
