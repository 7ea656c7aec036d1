"""Boundaries that were only noted when they came, and are taken in later, many at once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Optional

from .naps import NAP, Nap
from .phases import BEGINS, Phases

if TYPE_CHECKING:
    from .exact import Taken
    from .readings import Readings

_Mark = tuple[str, int]  # a note's kind and its optimizer's key
#: What kind of note it is that an optimizer has stepped in a hook, on a thread of autograd's.
IN_HOOK = "in_hook"
_BACKWARD_END: _Mark = ("backward_end", 0)
_NAP: _Mark = (NAP[0], NAP[2])
_MOST_REGULAR = 8
#: So many are taken in one by one: less is gone through for them than to see that their steps are alike.
_FEW = 24


class Notes:
    """Brings phases and step counts up to date from notes. One thread at a time; others may append meanwhile.

    A note is (kind, monotonic nanoseconds, key of the optimizer or 0), or the nanoseconds of a backward pass's end. One
    of kind "nap" stands for the steps that ended in the nap.
    Where peaks are taken, what was taken may come fourth, and `readings` is told of it and of each step's end.
    """

    def __init__(
        self,
        waiting: deque[Any],
        phases: Phases,
        steps: dict[int, int],
        readings: Optional[Readings] = None,
        nap: Optional[Nap] = None,
    ) -> None:
        self.waiting = waiting
        self.nap = nap or Nap()
        self.ended_by = ""  # the kind of boundary that ended the latest step
        self.unclosed = 0  # the step that has ended and whose peak is still to be taken
        self._readings = readings
        self.in_backward = False  # a backward pass has ended since the latest boundary of another kind
        self.at_start = False  # the latest boundary ended a step, or began an evaluation right after one
        self._phases, self._steps = phases, steps
        #: By all that decides what boundaries mean: the marks of a step that has left it as it was.
        self._regular: dict[tuple[object, ...], list[_Mark]] = {}

    def take_in(self, kind: str, at_ns: int, key: int, taken: Optional[Taken] = None) -> Optional[bool]:
        """One boundary; as `Phases.boundary`. "step" is the program's own word that a step has ended.

        "reset" is no boundary: the program has reset the peak counter, and what it was is `taken`.
        """
        readings = self._readings
        if taken is not None and readings is not None:
            readings.carry(taken, by_program=kind == "reset")
            if kind != "reset" and self.unclosed:
                readings.close(self.unclosed)
                self.unclosed = 0
        if kind == "reset":
            return None
        phases = self._phases
        finished: Optional[bool]
        if kind == "step":
            phases.explicit_step(at_ns)
            self.at_start = finished = True
        elif kind == IN_HOOK:
            finished = phases.boundary("optimizer_end", at_ns, key) if phases.depth else None
        else:
            if kind == "optimizer_end":
                self._steps[key] = self._steps.get(key, 0) + 1
            finished = phases.boundary(kind, at_ns, key)
            if finished is not None:
                self.in_backward = kind == "backward_end"
                # A step that begins after evaluation begins there.
                if phases.phase != "evaluation":
                    self.at_start = finished
        if finished:
            self.ended_by = kind
            if taken is not None and readings is not None:
                readings.close(phases.step)
            else:
                self.unclosed = phases.step
        return finished

    def take_in_oldest(self) -> Optional[bool]:
        """The note that has waited longest."""
        note = self.waiting.popleft()
        if type(note) is int:
            return self.take_in("backward_end", note, 0)
        if note is NAP:
            self._take_in_nap()
            return None
        return self.take_in(*note)

    def latest(self) -> tuple[str, int]:
        """(phase, steps completed) at this moment, with what is not taken in yet; from the training's thread.

        The phase is empty where it is not known.
        """
        phase, step = self._phases.phase, self._phases.step + len(self.nap.ends)
        for note in list(self.waiting):
            kind = "backward_end" if type(note) is int else note[0]
            phase = BEGINS.get(kind, phase)
            step += kind in ("optimizer_end", "step")
        return ("" if self.nap.asleep else phase), step

    def _take_in_nap(self) -> None:
        """The steps that have ended in a nap: each as the one before it."""
        ends = self.nap.taken()
        if not ends:
            return
        self._phases.repeat(len(ends), ends[-2] if len(ends) > 1 else self._phases.step_since_ns, ends[-1])
        self._steps[self.nap.key] = self._steps.get(self.nap.key, 0) + len(ends)
        self.unclosed = self._phases.step

    def take_in_all(self) -> None:
        """All that wait now, regular steps at one go: short ones leave thousands of notes a second."""
        notes = list(self.waiting)
        if len(notes) <= _FEW:
            for _ in notes:
                self.take_in_oldest()
        else:
            self._take_in_many(notes)
        if self.nap.ends and not self.nap.asleep:
            self._take_in_nap()  # an end that came while the others were taken

    def _take_in_many(self, notes: list[Any]) -> None:
        marks = [_BACKWARD_END if type(note) is int else (note[0], note[2]) for note in notes]
        phases, at, begun = self._phases, 0, 0
        before = phases.regular() if self.at_start else None
        while at < len(notes):
            if before is not None and at == begun and before in self._regular:
                at = begun = self._repeat(notes, marks, self._regular[before], at)
                if at == len(notes):
                    break
            finished = self.take_in_oldest()
            at += 1
            if marks[at - 1] == _NAP:
                begun = at
            if not finished:
                continue
            after = phases.regular()
            if after == before and marks[at - 1][0] == "optimizer_end":
                if len(self._regular) >= _MOST_REGULAR:
                    self._regular.clear()
                self._regular[after] = marks[begun:at]
            before, begun = after, at

    def _repeat(self, notes: list[Any], marks: list[_Mark], pattern: list[_Mark], begun: int) -> int:
        """Takes in the steps from `begun` on that are like this one, which changes nothing but the count; their end."""
        length, at = len(pattern), begun
        while marks[at : at + length] == pattern:
            at += length
        count = (at - begun) // length
        if count:
            last_but_one_ns = notes[at - length - 1][1] if count > 1 else self._phases.step_since_ns
            self._phases.repeat(count, last_but_one_ns, notes[at - 1][1])
            for kind, key in pattern:
                if kind == "optimizer_end":
                    self._steps[key] += count
            if self._readings is None or not self._readings.taken:
                self.unclosed = self._phases.step
            else:
                for number in range(count):
                    place = begun + number * length
                    self._close(self._readings, self._phases.step - count + 1 + number, notes[place : place + length])
            for _ in range(count * length):
                self.waiting.popleft()
        return at

    @staticmethod
    def _close(readings: Readings, step: int, notes: list[Any]) -> None:
        """A step that was like the one before it has ended, with these notes."""
        for note in notes:
            if type(note) is tuple and len(note) > 3 and note[3]:
                readings.carry(note[3], by_program=note[0] == "reset")
        readings.close(step)
