"""What is worked out while a session goes on, a little after each frame: steps done again, forecasts scored."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Optional, Union

from memtui.session.readings import SteadyStep
from memtui.session.session import Session
from memtui.wire.frames import DeviceFrame, Event, RecordedStep

from .allocator.replay import Replayed, replaying
from .forecast import beside_allocator_bytes
from .ladder import build_ladder
from .policy import DEFAULT, Policy
from .scores import Scorer
from .steady import steady

#: Steps that are waiting to be done again; of more, the oldest are left out.
_WAITING = 4


class Analyst:
    """Gives what was found since it was asked last; some 10 ms of processor time at most, nothing while nothing is due.

    Each recorded step is done again as if it went on like that, within what the process can have of the device.
    """

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self._policy = policy
        self._scorer = Scorer()
        self._known: set[tuple[Optional[int], str, int]] = set()
        self._waiting: deque[RecordedStep] = deque(maxlen=_WAITING)
        self._under_way: Optional[tuple[RecordedStep, Generator[None, None, Replayed], Optional[DeviceFrame]]] = None

    def __call__(self, session: Session) -> list[Union[Event, SteadyStep]]:
        """After a frame of `session`."""
        found: list[Union[Event, SteadyStep]] = [*self._scorer.due(session)]
        for device in session.devices:
            for recorded in session.recorded(device.device):
                key = session.pid, recorded.device, recorded.time_ns
                if key not in self._known:
                    self._known.add(key)
                    self._waiting.append(recorded)
        done = self._advance(session)
        return found if done is None else [*found, done]

    def _advance(self, session: Session) -> Optional[SteadyStep]:
        if self._under_way is None:
            if not self._waiting:
                return None
            self._under_way = self._begun(session, self._waiting.popleft())
        recorded, replay, frame = self._under_way
        try:
            next(replay)
        except StopIteration as end:
            self._under_way = None
            return steady(recorded, end.value, frame)
        except ValueError:  # recorded by an agent that tells nothing of the allocator's memory
            self._under_way = None
        return None

    def _begun(
        self, session: Session, recorded: RecordedStep
    ) -> tuple[RecordedStep, Generator[None, None, Replayed], Optional[DeviceFrame]]:
        now_ns = recorded.time_ns if session.frame is None else session.frame.time_ns
        ladder = build_ladder(session, recorded.device, now_ns, self._policy)
        beside = beside_allocator_bytes(ladder)
        capacity = None if beside is None or ladder.reach_bytes is None else max(0, ladder.reach_bytes - beside)
        torch = "" if session.hello is None else session.hello.torch
        replay = replaying(recorded, torch=torch, capacity_bytes=capacity, total_bytes=ladder.total_bytes)
        return recorded, replay, session.device_frame(recorded.device)
