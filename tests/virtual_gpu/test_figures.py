"""The allocator's figures on a virtual GPU against a published run."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.virtual_gpu import virtual_environment

_MLP = """
import json, torch, torch.nn as nn
def used(): return round(torch.cuda.memory_allocated() / 2**20, 1)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
figures = [used()]
optimizer = torch.optim.Adam(model.parameters())
batch = torch.randn(2048, 1024, device='cuda')
loss = model(batch).pow(2).mean()
figures.append(used())
loss.backward(); figures.append(used())
optimizer.step(); figures.append(used())
figures.append(round(torch.cuda.max_memory_allocated() / 2**20, 1))
print(json.dumps(figures))
"""


def test_mlp_training_has_the_published_figures() -> None:
    child = subprocess.run(
        [sys.executable, "-c", _MLP], env=virtual_environment(), capture_output=True, text=True, check=True
    )
    assert json.loads(child.stdout) == [96.0, 184.2, 216.3, 408.4, 504.4]
