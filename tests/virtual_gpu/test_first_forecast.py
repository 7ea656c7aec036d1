"""During the first forward it is known what the first backward will take, and the steps after it, on torch's own."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest

from memtui.analysis.errors import SCORED
from memtui.analysis.firststep import after_forward
from memtui.sources.log_reader import LogReader
from tests.bench import surroundings

_HEAD = """
    import time, torch
    from torch import nn
    from torch.nn import functional
    device = "cuda"

    def train(model, optimizer, x, y):
        for _ in range(60):
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.02)
"""
_CONVOLUTIONS = """
    block = lambda c, k: [nn.Conv2d(c, k, 3, padding=1), nn.BatchNorm2d(k), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    model = nn.Sequential(*block(3, 64), *block(64, 128), *block(128, 256), nn.Flatten(), nn.Linear(256 * 64, 1000))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, torch.randn(64, 3, 64, 64, device=device), torch.randint(0, 1000, (64,), device=device))
"""
_LATE_PEAK = """
    layers = [nn.Linear(512, 8192), nn.ReLU(), nn.Linear(8192, 4096), nn.ReLU(), nn.Linear(4096, 10)]
    model = nn.Sequential(*layers).to(device)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(1024, 512, device=device),
          torch.randint(0, 10, (1024,), device=device))
"""
_HOLES = """
    layers = [nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(512, 1000)).to(device)
    x, y = torch.randn(16, 128, 512, device=device), torch.randint(0, 1000, (16, 1000), device=device)
    train(model, torch.optim.AdamW(model.parameters()), x, y.float()[:, None, :].expand(16, 128, 1000).softmax(-1))
"""


@pytest.mark.parametrize(("program", "within"), [(_CONVOLUTIONS, 0.01), (_LATE_PEAK, 0.002), (_HOLES, 0.006)])
def test_the_first_backward_is_foretold(program: str, within: float) -> None:
    """GIVEN a training whose peak is not at its largest activation, THEN the forecast knows it before it is there."""
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        log, script = runtime / "log", pathlib.Path(runtime) / "train.py"
        script.write_text(textwrap.dedent(_HEAD) + textwrap.dedent(program), encoding="utf-8")
        command = (sys.executable, "-m", "memtui", "run", "--headless", "--quiet", "--log", str(log), str(script))
        subprocess.run(command, env=environment, capture_output=True, timeout=300, check=True)
        reader = LogReader(str(log))
        try:
            session = reader.whole
            assert session.graph is not None
            told, first, highest = (
                after_forward(session, "cuda:0"),
                session.steps.first,
                session.steps.highest("cuda:0"),
            )
            scored = [
                event for event in session.events if event.name == SCORED and "after the first forward" in event.text
            ]
        finally:
            reader.close()
    # Of which step the score is depends on when it is made: the first later ones may be lower than those after them.
    assert [event.text.partition(",")[0] for event in scored] == ["first step", "later steps"]
    assert told is not None
    assert first is not None
    assert highest is not None
    actual = first.peak("cuda:0")
    assert actual is not None
    assert abs(told.first_bytes / actual.bytes_held - 1) <= within
    assert abs(told.later_bytes / highest.bytes_held - 1) <= within


_WATCHED = """
    import torch, sys
    from torch import nn
    model = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    enabled = torch._C._cuda_isHistoryEnabled
    {before}
    said = []
    for step in range(3):
        out = model(torch.randn(64, 256, device="cuda"))
        said.append(enabled())
        {forward}
        out.sum().backward()
        said.append(enabled())
        optimizer.step()
        optimizer.zero_grad()
    print(*map(int, said), sum(map(len, torch.cuda.memory._snapshot()["device_traces"])))
"""


def _watched(**parts: str) -> list[int]:
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        script = pathlib.Path(runtime) / "train.py"
        whole = {"before": "", "forward": "", **parts}
        script.write_text(textwrap.dedent(_WATCHED).format(**whole), encoding="utf-8")
        command = (sys.executable, "-m", "memtui", "run", "--headless", "--quiet", str(script))
        done = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=True, text=True)
    return [int(word) for word in done.stdout.split()]


def test_the_first_forward_alone_is_recorded() -> None:
    """GIVEN a training, THEN torch keeps a history from its first forward to its first backward, and not after."""
    assert _watched()[:-1] == [1, 0, 0, 0, 0, 0]


def test_a_history_of_the_programs_own_is_left_alone() -> None:
    """GIVEN a program that records itself, before its first forward or in it, THEN its history is as it would be."""
    start = 'torch.cuda.memory._record_memory_history("all")'
    before = _watched(before=start)
    assert before[:-1] == [1, 1, 1, 1, 1, 1]
    within = _watched(forward=f"step or {start}")
    assert within[:-1] == [1, 1, 1, 1, 1, 1]
    # What came before it began is not in it.
    assert before[-1] > within[-1] > 0
