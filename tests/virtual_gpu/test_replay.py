"""A recorded step done again by the simulated allocator, against the process that goes on with it."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from memtui.analysis.allocator.course import prepared
from memtui.analysis.allocator.replay import Replayed, StepReplay, replayed
from memtui.analysis.allocator.settings import Settings
from memtui.wire.frames import RecordedStep
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


def from_empty(step: RecordedStep, **options: Any) -> Replayed:
    """What comes of the step in a new process."""
    replay = StepReplay(prepared(step), from_empty=True, **options)
    list(replay.run())
    return replay.result


def test_from_nothing_with_other_settings(tmp_path: pathlib.Path) -> None:
    """The same tensors are live, whatever the segments; expandable ones leave less of them unused."""
    (step,) = Watched(tmp_path, "accumulated").recorded
    usual, expandable = (from_empty(step, settings=each) for each in (Settings(), Settings(expandable_segments=True)))
    assert usual.settled
    assert expandable.settled
    assert usual.start_allocated_bytes >= step.before_bytes - step.before_bytes // 50  # what is not split is not again
    assert expandable.peak_allocated_bytes <= usual.peak_allocated_bytes
    assert expandable.peak_reserved_bytes <= usual.peak_reserved_bytes


def test_a_step_that_will_not_fit(tmp_path: pathlib.Path) -> None:
    """With less memory than the step needs the request that fails is told; with more none does."""
    (step,) = Watched(tmp_path, "accumulated").recorded
    needed = replayed(step).peak_reserved_bytes
    failure = from_empty(step, capacity_bytes=needed - needed // 4).failure
    assert failure is not None
    assert failure.asked_bytes > 0
    assert from_empty(step, capacity_bytes=needed * 2).failure is None
