"""What a report needs of the whole course of a session, and what is not in the session at its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from memtui.session.session import Session
from memtui.wire.frames import Frame

from .stages import Stages


@dataclass(frozen=True)
class Counted:
    """The highest that PyTorch's own peak counter was seen at, in bytes, and when it came there.

    It rose to that between a frame with `first` and one with `last` steps completed; None where it was so high when it
    was first read. `resets` are those by the program that were noticed.
    """

    bytes_held: int
    first: Optional[int] = None
    last: Optional[int] = None
    resets: int = 0


class Seen:
    """Notes the first step's boundaries and the peak counters' rises. A frame costs O(devices)."""

    def __init__(self) -> None:
        self._session: Optional[Session] = None
        self._begin()

    def _begin(self) -> None:
        self.stages = Stages()
        self.counted: dict[str, Counted] = {}
        self._before: Optional[Frame] = None
        self._counters: dict[str, int] = {}

    @property
    def session(self) -> Optional[Session]:
        """What it is of; None before the first frame."""
        return self._session

    def __call__(self, session: Session) -> None:
        """After a frame of `session`; one that is another than before begins afresh."""
        if self._session is not None and session is not self._session:
            self._begin()  # what was watched so far only launched what is watched now
        self._session = session
        frame = session.frame
        if frame is None or frame is self._before:
            return
        self.stages.add(frame)
        for device in frame.devices:
            counter = device.allocated_peak_bytes
            if counter is not None and device.device != "host":
                self._count(device.device, counter, frame)
        self._before = frame

    def _count(self, device: str, counter: int, frame: Frame) -> None:
        known, last = self.counted.get(device), self._counters.get(device)
        self._counters[device] = counter
        if known is None:
            self.counted[device] = Counted(counter)
        elif last is not None and counter < last:
            self.counted[device] = replace(known, resets=known.resets + 1)
        elif counter > known.bytes_held and self._before is not None:
            self.counted[device] = Counted(counter, self._before.step, frame.step, known.resets)
