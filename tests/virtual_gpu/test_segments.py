"""Segments as the agent tells them of a real training: they add up, by category, and what would fit is known."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from memtui.analysis.segments.summary import Space, limits_of
from memtui.analysis.segments.words import space_lines
from tests.support import programs, watching

pytestmark = pytest.mark.virtual_gpu

PROGRAM = str(programs.PROGRAMS / "ragged.py")
ROOT = str(pathlib.Path(__file__).resolve().parents[2])


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_a_training_told_by_segment(settings: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN batches of many lengths, THEN all that is reserved is told, with its owners, its holes and the limits.

    The log holds it too: `memtui open` says the same of it.
    """
    environment = programs.virtual_environment_with_agent(tmp_path, memory="16GiB")
    environment |= {"PYTORCH_CUDA_ALLOC_CONF": settings, "PYTHONPATH": f"{environment['PYTHONPATH']}:{ROOT}"}
    monkeypatch.setenv("MEMTUI_RUNTIME_DIR", str(tmp_path))
    for name, value in environment.items():
        if name.startswith("VGPU_") or name == "LD_PRELOAD":
            monkeypatch.setenv(name, value)
    log = str(tmp_path / "run.jsonl")
    with programs.started(PROGRAM, "0.3", "170", environment=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        capacity = int(process.stdout.readline())
        session = watching.watch(process.pid, watching.has_segments, log=log, seconds=120, ask="segments")
    told = session.segments("cuda:0")
    assert told is not None
    space = Space(told, limits_of(session, "cuda:0", told.time_ns))
    live = sum(segment.bytes_of("live") for segment in space.segments)
    assert live == told.allocated_bytes
    assert all(segment.expandable == bool(settings) for segment in space.segments)
    sizes: dict[str, int] = {}
    for segment in space.segments:
        for piece in segment.pieces:
            if piece.state == "live":
                sizes[piece.category] = sizes.get(piece.category, 0) + piece.size_bytes
    model = session.model
    assert model is not None
    # A block may be up to 1 MiB larger than its tensor; AdamW keeps two of its size for each parameter.
    for category, size in (("parameters", 4 * model.parameters), ("optimizer_state", 8 * model.parameters)):
        assert 0 <= sizes[category] - size < size // 50
    named = {piece.name for segment in space.segments for piece in segment.pieces}
    assert "blocks.0.qkv.weight" in named
    limits = limits_of(session, "cuda:0", told.time_ns)
    assert limits.capacity_bytes is not None
    assert abs(limits.capacity_bytes - capacity) <= 64 << 20  # what libraries have loaded since
    most = space.largest.bytes_at_all
    assert most is not None
    assert space.ask(most).how in {"cache", "driver", "returned"}
    assert space.ask(most + 512).how in {"no", "perhaps"}
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "open", log, "--headless", "--fits", str(most)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(line in done.stdout.splitlines() for line in space_lines(space, most))
