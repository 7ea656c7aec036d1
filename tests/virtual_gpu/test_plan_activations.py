"""What a plan says of activations a token or a sample, beside what the program itself measures."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.support.planning import FITS, plan, write_script

_MODEL = """
import os, pathlib, torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(500, 128)
        self.block = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    def forward(self, texts, mask=None):
        return self.block(texts if texts.is_floating_point() else self.embedding(texts))
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    inputs = INPUTS
    before = torch.cuda.memory_allocated()
    loss = LOSS
    kept = torch.cuda.memory_allocated() - before
    loss.backward()
    del loss
    optimizer.step()
    optimizer.zero_grad()
    if step == 3:
        pathlib.Path(os.environ["MEMTUI_RUNTIME_DIR"], "kept").write_text(str(kept))
"""
_TEXTS = "torch.randint(0, 500, (4, 32), device='cuda')"
_ONE = "model(inputs, mask=inputs > 0).square().mean()"


def _activations(tmp_path: pathlib.Path, inputs: str, loss: str) -> Any:
    program = write_script(tmp_path, _MODEL.replace("INPUTS", inputs).replace("LOSS", loss))
    answer = plan(tmp_path, "--gpu", "24GiB", "--steps", "7", "--json", program, status=FITS)
    return answer["activations"]


@pytest.mark.parametrize(
    ("inputs", "unit", "count", "shape"),
    [
        (_TEXTS, "token", 128, "4 x 32"),
        ("torch.randn(4, 32, 128, device='cuda')", "sample", 4, "4 x 32 x 128"),
    ],
)
def test_they_are_what_the_program_measures(
    tmp_path: pathlib.Path, inputs: str, unit: str, count: int, shape: str
) -> None:
    found = _activations(tmp_path, inputs, _ONE.replace(", mask=inputs > 0", ""))
    seed_bytes = 512  # the loss's own gradient, which is made before the pass begins
    assert found["kept_bytes"] == int((tmp_path / "runtime" / "kept").read_text()) + seed_bytes
    assert (found["unit"], found["count"], found["shape"]) == (unit, count, shape)
    assert found["bytes_each"] == round(found["kept_bytes"] / count)


def test_texts_with_masks_of_the_same_shape_are_counted_once(tmp_path: pathlib.Path) -> None:
    found = _activations(tmp_path, _TEXTS, _ONE.replace("inputs > 0", "torch.ones_like(inputs)"))
    assert (found["unit"], found["count"]) == ("token", 128)


@pytest.mark.parametrize(
    "loss",
    ["(model(inputs) + model(inputs)).square().mean()", "model(inputs, mask=inputs[:, :9]).square().mean()"],
)
def test_where_it_is_not_known_nothing_is_said(tmp_path: pathlib.Path, loss: str) -> None:
    """Two forward passes before one backward pass; texts of two lengths."""
    assert _activations(tmp_path, _TEXTS, loss) is None


def test_the_shape_is_that_of_the_recorded_step(tmp_path: pathlib.Path) -> None:
    """GIVEN batches of another length in each step, THEN what is kept is told of the one that was recorded."""
    program = """
import torch
model = torch.nn.Sequential(torch.nn.Embedding(16, 64), torch.nn.Linear(64, 64), torch.nn.GELU()).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(30):
    tokens = torch.zeros(4, 128 * (1 + step % 5), dtype=torch.long, device="cuda")
    model(tokens).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    told = plan(tmp_path, write_script(tmp_path, program), "--gpu", "2GiB", "--json", status=FITS)["activations"]
    # The embedding's result and the linear layer's, of 64 numbers of four bytes each.
    assert told["kept_bytes"] // told["count"] == 2 * 64 * 4
