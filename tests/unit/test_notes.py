"""Boundaries taken in many at once come to the same as one at a time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from memtui.agent.naps import NAP
from memtui.agent.notes import Notes
from memtui.agent.phases import Phases

LOOPS = {
    "plain": "fbBoO",
    "accumulated": "fbBfbBfbBfbBoO",
    "nested backward": "fbbBBoO",
    "two optimizers": "fbB1oOfbB2oO",
    "critic and generator": "fbB1oOfbB1oOfbB1oOfbB2oO",
    "optimizer in backward": "fb1oO2oO3oOB",
    "no optimizer": "fbB",
    "inference": "f",
    "inference without gradients": "e",
    "evaluation between steps": "fbBoOfbBoOeee",
    "evaluation in each step": "efbBoO",
    "evaluation beside the forward": "febBoO",
    "roots run again in backward": "eebfbBfbBBoO",
    "told by the program": "fbBoOs",
    "beginnings left out for a while": "OOOOOOfbBoOfbBoOfbBoO",
    "beginnings left out after one": "fbBoOfO",
}
_KINDS = {
    "f": "forward_start",
    "e": "evaluation_start",
    "b": "backward_start",
    "o": "optimizer_start",
    "O": "optimizer_end",
    "s": "step",
}


def notes_of(sequence: str, start_ns: int) -> list[Any]:
    """A note a letter, a nanosecond apart."""
    found: list[Any] = []
    key = 0
    for letter in sequence:
        now = start_ns + len(found)
        if letter.isdigit():
            key = int(letter)
        elif letter == "B":
            found.append(now)
        else:
            found.append((_KINDS[letter], now, key if letter in "oO" else 0))
    return found


class Peaks:
    """What notes tell of the peaks that were taken: for each step, the most."""

    taken = True

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self._reached = 0

    def carry(self, taken: Any, *, by_program: bool) -> None:
        self._reached = max(self._reached, *(height for _, height in taken))

    def close(self, step: int) -> None:
        self.steps.append((step, self._reached))
        self._reached = 0


def with_peaks(sequence: list[Any], chance: random.Random) -> list[Any]:
    """What is taken at the end of optimizers' steps and where the program says that one is over, and some resets."""
    found: list[Any] = []
    for note in sequence:
        if type(note) is tuple and note[0] in ("optimizer_end", "step"):
            found.append((*note, ((0, chance.randrange(1, 1 << 30)),)))
            continue
        if chance.random() < 0.03:
            found.append(("reset", 0, 0, ((0, chance.randrange(1, 1 << 30)),)))
        found.append(note)
    return found


def expected_peaks(sequence: list[Any], first_end: str) -> list[int]:
    """The most in each step, where all of them end with a note of this kind."""
    found, reached = [], 0
    for note in sequence:
        if type(note) is tuple and len(note) > 3:
            reached = max(reached, note[3][0][1])
            if note[0] == first_end:
                found.append(reached)
                reached = 0
    return found


def taken_in(sequence: list[Any], chance: random.Random, one: Notes, many: Notes) -> Iterator[None]:
    """The sequence bit by bit: by `one` each note for itself, by `many` all at one go."""
    at = 0
    while at < len(sequence):
        part = sequence[at : at + chance.randrange(1, 90)]
        at += len(part)
        one.waiting.extend(part)
        many.waiting.extend(part)
        while one.waiting:
            one.take_in_oldest()
        many.take_in_all()
        yield


def state(phases: Phases, notes: Notes, steps: dict[int, int]) -> tuple[Any, ...]:
    """All that anybody reads."""
    times = phases.since_ns, phases.step_since_ns, phases.last_step_ns
    return (*phases.regular(), *times, phases.step, notes.at_start, notes.in_backward, steps)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_many_at_once_come_to_the_same(loop: str) -> None:
    chance = random.Random(loop)
    one, many = Phases(0), Phases(0)
    one_steps: dict[int, int] = {}
    many_steps: dict[int, int] = {}
    one_notes, many_notes = Notes(deque(), one, one_steps), Notes(deque(), many, many_steps)
    for _ in taken_in(notes_of(loop * 120, 1_000), chance, one_notes, many_notes):
        assert not many_notes.waiting
        assert state(many, many_notes, many_steps) == state(one, one_notes, one_steps)
    assert one.step > 50


@pytest.mark.parametrize("loop", ["plain", "accumulated", "nested backward", "two optimizers"])
def test_each_step_has_the_highest_of_what_was_taken_in_it(loop: str) -> None:
    """Also where steps are taken in at one go; the program's own resets belong to the step they fall in."""
    chance = random.Random(loop)
    one, many = Peaks(), Peaks()
    one_notes, many_notes = (Notes(deque(), Phases(0), {}, peaks) for peaks in (one, many))  # type: ignore[arg-type]
    sequence = with_peaks(notes_of(LOOPS[loop] * 120, 1_000), chance)
    for _ in taken_in(sequence, chance, one_notes, many_notes):
        assert many.steps == one.steps
    assert [step for step, _ in one.steps] == list(range(1, len(one.steps) + 1))
    if loop != "two optimizers":
        assert [height for _, height in one.steps] == expected_peaks(sequence, "optimizer_end")


def test_a_step_that_ends_with_its_backward_is_closed_by_the_next_boundary_that_takes() -> None:
    """The end of a backward pass is noted where nothing can be taken."""
    peaks = Peaks()
    notes = Notes(deque(), Phases(0), {}, peaks)  # type: ignore[arg-type]
    for number in range(70):
        notes.take_in("forward_start", number, 0, ((0, number),) if notes.unclosed else None)
        notes.take_in("backward_start", number, 0)
        notes.take_in("backward_end", number, 0)
    assert notes.ended_by == "backward_end"
    assert peaks.steps == [(1, 65), (2, 66), (3, 67), (4, 68), (5, 69)]


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("at_once", [True, False])
def test_the_steps_that_end_in_a_nap_are_the_nap_s_own(count: int, at_once: bool) -> None:
    """As if each of them had been noted; also one that ends while the others are being taken in."""
    plain, phases = Phases(0), Phases(0)
    waiting: deque[Any] = deque()
    steps: dict[int, int] = {}
    notes, each = Notes(waiting, phases, steps), Notes(deque(), plain, {})
    notes.nap.key = 3
    for sequence in ["3fbBoO"] * 20:
        waiting.extend(notes_of(sequence, 100 * len(waiting)))
    waiting.append(NAP)
    now = waiting[-2][1]
    notes.nap.ends.extend(now + 10 * number for number in range(1, count + 1))
    after = notes_of("3fbBoO" * 3, now + 10 * (count + 1))
    for note in [*waiting, *(("optimizer_end", end, 3) for end in notes.nap.ends), *after]:
        if note is not NAP:
            each.waiting.append(note)
            each.take_in_oldest()
    waiting.extend(after)
    if at_once:
        notes.take_in_all()
    while waiting:
        notes.take_in_oldest()
    assert (phases.step, steps[3]) == (23 + count, 23 + count)
    assert phases.regular() == plain.regular()
    assert (phases.step_since_ns, phases.last_step_ns) == (plain.step_since_ns, plain.last_step_ns)
    notes.nap.ends.append(after[-1][1] + 5)
    notes.take_in_all()
    assert phases.step == 24 + count
