"""What a piece of work is charged with: not with a collection of all objects, which falls to whoever makes one."""

from __future__ import annotations

import gc
import time

from memtui.agent.budget import Meter

USUAL_NS = 1_000


def _work() -> None:
    end = time.thread_time_ns() + 5_000_000
    while time.thread_time_ns() < end:
        pass


def test_what_was_spent_is_charged() -> None:
    meter = Meter()
    _work()
    assert meter.spent_ns(USUAL_NS) >= 5_000_000


def test_a_collection_of_all_objects_is_not() -> None:
    meter = Meter()
    gc.collect()
    _work()
    assert meter.spent_ns(USUAL_NS) == USUAL_NS


def test_one_of_the_youngest_is_part_of_the_work() -> None:
    meter = Meter()
    gc.collect(0)
    _work()
    assert meter.spent_ns(USUAL_NS) >= 5_000_000
