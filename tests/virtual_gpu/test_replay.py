"""A recorded step done again by the simulated allocator, against the process that goes on with it."""

from __future__ import annotations

import pathlib

import pytest

from memtui.analysis.allocator.replay import StepReplay, replayed
from memtui.analysis.allocator.settings import Settings
from tests.virtual_gpu.test_recorded_step import Watched

pytestmark = pytest.mark.virtual_gpu


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("mlp", ""),
        ("sgd", ""),
        ("accumulated", ""),
        ("accumulated", "expandable_segments:True"),
        ("mlp", "roundup_power2_divisions:4"),
        ("gpt", "max_split_size_mb:21"),
    ],
)
def test_every_address_and_what_is_left(tmp_path: pathlib.Path, kind: str, settings: str) -> None:
    """The recorded step to the last address; and where each step is as the one before, what is there 50 steps later."""
    watched = Watched(tmp_path, kind, settings=settings)
    (step,) = watched.recorded
    assert step.heap is not None
    found = replayed(step)
    assert found.compared > 20
    assert found.exact
    assert found.start_allocated_bytes == step.before_bytes
    first = found.steps[0]
    if step.counted_peak_bytes is not None:
        assert first.peak_allocated_bytes == step.counted_peak_bytes
    if kind != "gpt":  # whose batches grow
        assert found.settled
        assert found.failure is None
        assert found.steps[-1].allocated_bytes == watched.steps[-1]["said"][-1][1]
        assert found.peak_allocated_bytes == watched.steps[-1]["peak"]


def test_from_nothing_with_other_settings(tmp_path: pathlib.Path) -> None:
    """The same tensors are live, whatever the segments; expandable ones leave less of them unused."""
    (step,) = Watched(tmp_path, "accumulated").recorded
    usual, expandable = (
        StepReplay(step, from_empty=True, settings=settings)
        for settings in (Settings(), Settings(expandable_segments=True))
    )
    for replay in (usual, expandable):
        list(replay.run())
        assert replay.result.settled
    assert usual.result.start_allocated_bytes == step.before_bytes
    assert expandable.result.peak_allocated_bytes <= usual.result.peak_allocated_bytes
    assert expandable.result.peak_reserved_bytes <= usual.result.peak_reserved_bytes


def test_a_step_that_will_not_fit(tmp_path: pathlib.Path) -> None:
    """With less memory than the step needs the request that fails is told, and that much less is too little."""
    (step,) = Watched(tmp_path, "accumulated").recorded
    needed = replayed(step).peak_reserved_bytes
    short = StepReplay(step, from_empty=True, capacity_bytes=needed - needed // 4)
    list(short.run())
    assert short.result.failure is not None
    assert short.result.failure.asked_bytes > 0
    enough = StepReplay(step, from_empty=True, capacity_bytes=needed * 2)
    list(enough.run())
    assert enough.result.failure is None
