"""Errors that a program catches again and again: how many of them are read whole, and how often it is held up."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memtui.agent.activity import Activity
from memtui.agent.failures import Failures
from memtui.agent.observer import Observer

_ERRORS = 40
_COST_NS = 50_000_000


def failures() -> Failures:
    observer = SimpleNamespace(
        torch=None,
        lock=threading.Lock(),
        readings=SimpleNamespace(devices=[]),
        notes=SimpleNamespace(latest=lambda: ("forward", 3)),
    )
    return Failures(cast(Observer, observer))


def test_the_first_is_read_and_few_of_those_that_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN readings that take long, THEN the rest are told with what costs nothing."""

    def held(self: Failures, device: str, now_ns: int, alone: bool) -> dict[str, Any]:
        begun = time.thread_time_ns()
        while time.thread_time_ns() - begun < _COST_NS:
            pass
        return {"undecided_bytes": 1}

    monkeypatch.setattr(Failures, "_held", held)
    noting = failures()
    events = [noting.note(0, 100, 50, 20, Activity()) for _ in range(_ERRORS)]
    whole = [event.failure is not None and event.failure.undecided_bytes == 1 for event in events]
    assert whole[0]
    assert sum(whole) <= 8
    for event in events:
        assert (event.phase, event.step, event.figures["asked_bytes"]) == ("forward", 3, 100)
        assert event.failure is not None
        assert event.failure.site


def test_a_program_that_goes_on_is_not_held_up_each_time() -> None:
    """GIVEN an agent's thread that is busy, THEN the program waits for it once."""
    noting, woken, over = failures(), [], threading.Event()
    busy = threading.Thread(target=over.wait)
    busy.start()
    try:
        for number in range(_ERRORS):
            noting.wait(busy, lambda number=number: woken.append(number))
    finally:
        over.set()
        busy.join()
    assert woken == [0]
