"""What is worked out while a session goes on: steps done again, forecasts scored, verdicts that turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Optional, Union

from memtui.session.readings import ShapeForecast, SteadyStep
from memtui.session.session import Session
from memtui.wire.frames import Event, RecordedStep

from .allocator.replay import replaying
from .forecast import beside_allocator_bytes
from .ladder import Ladder, build_ladder
from .policy import DEFAULT, Policy
from .scores import Scorer
from .shapes.asked import AskedShape
from .shapes.outlook import UNTOLD, outlook, unforeseen
from .steady import steady
from .turns import Turns

#: Steps that are waiting to be done again; of more, the oldest are left out.
_WAITING = 4
#: The largest batch is looked at anew where a step's peak has risen by this much.
_RISEN = 1.02

Found = Union[Event, SteadyStep, ShapeForecast]
_Job = Generator[None, None, list[Found]]


class Analyst:
    """Gives what was found since it was asked last; some 10 ms of processor time at most, nothing while nothing is due.

    Each recorded step is done again as if it went on like that, within what the process can have of the device.
    Before that, steps of several sizes tell what other batches take: the largest that was seen, and the `asked` one.
    """

    def __init__(self, policy: Policy = DEFAULT, asked: Optional[AskedShape] = None) -> None:
        self._policy, self._asked = policy, asked
        self._scorer = Scorer()
        self._turns = Turns(policy)
        self._known: set[tuple[Optional[int], str, int]] = set()
        self._waiting: deque[RecordedStep] = deque(maxlen=_WAITING)
        self._shapes_due: dict[str, None] = {}  # devices, the one that waits longest first
        self._looked: dict[tuple[Optional[int], str], int] = {}  # the highest step's peak when shapes were looked at
        self._told: set[tuple[Optional[int], str]] = set()  # of which it was said that nothing can be foretold yet
        self._under_way: Optional[_Job] = None

    def __call__(self, session: Session) -> list[Found]:
        """After a frame of `session`."""
        found: list[Found] = [*self._scorer.due(session), *self._turns.due(session)]
        for device in session.devices:
            self._consider(session, device.device)
        return [*found, *self._unforeseen(session), *self._advance(session)]

    def _unforeseen(self, session: Session) -> list[Found]:
        """That the size which is asked for cannot be foretold yet, once for each device that is trained on."""
        device, frame = session.default_device(), session.frame
        key = session.pid, device
        if self._asked is None or frame is None or not frame.step or key in self._told:
            return []
        self._told.add(key)
        return [] if session.recorded(device) else [unforeseen(device, self._asked, frame.time_ns)]

    def _consider(self, session: Session, device: str) -> None:
        for recorded in session.recorded(device):
            key = session.pid, device, recorded.time_ns
            if key not in self._known:
                self._known.add(key)
                self._waiting.append(recorded)
                self._shapes_due[device] = None
        looked = self._looked.get((session.pid, device))
        if looked is not None and _highest(session, device) > _RISEN * looked:
            self._shapes_due[device] = None

    def _advance(self, session: Session) -> list[Found]:
        if self._under_way is None:
            self._under_way = self._next(session)
        if self._under_way is None:
            return []
        try:
            next(self._under_way)
        except StopIteration as end:
            self._under_way = None
            found: list[Found] = end.value
            return found
        except ValueError:  # recorded by an agent that tells nothing of the allocator's memory
            self._under_way = None
        return []

    def _next(self, session: Session) -> Optional[_Job]:
        if self._shapes_due:
            device = next(iter(self._shapes_due))
            del self._shapes_due[device]
            return self._other_shapes(session, device)
        return self._done_again(session, self._waiting.popleft()) if self._waiting else None

    def _done_again(self, session: Session, recorded: RecordedStep) -> _Job:
        ladder, frame = self._ladder(session, recorded), session.device_frame(recorded.device)
        capacity, torch = _capacity_bytes(ladder), "" if session.hello is None else session.hello.torch
        replayed = yield from replaying(recorded, torch=torch, capacity_bytes=capacity, total_bytes=ladder.total_bytes)
        return [steady(recorded, replayed, frame)]

    def _other_shapes(self, session: Session, device: str) -> _Job:
        recorded = session.recorded(device)
        if not recorded:
            return []
        ladder, highest = self._ladder(session, recorded[-1]), _highest(session, device)
        self._looked[session.pid, device] = highest
        try:
            found = yield from outlook(
                recorded,
                self._asked,
                highest_bytes=highest or None,
                capacity_bytes=_capacity_bytes(ladder),
                total_bytes=ladder.total_bytes,
            )
        except ValueError:  # recorded by an agent that tells nothing of the allocator's memory
            when = recorded[-1].time_ns + recorded[-1].duration_ns
            found = [] if self._asked is None else [unforeseen(device, self._asked, when, UNTOLD)]
        return [*found]

    def _ladder(self, session: Session, recorded: RecordedStep) -> Ladder:
        now_ns = recorded.time_ns if session.frame is None else session.frame.time_ns
        return build_ladder(session, recorded.device, now_ns, self._policy)


def _capacity_bytes(ladder: Ladder) -> Optional[int]:
    """What the allocator can have of the device, or may."""
    beside = beside_allocator_bytes(ladder)
    capacity = None if beside is None or ladder.reach_bytes is None else max(0, ladder.reach_bytes - beside)
    if ladder.allowed_bytes is None:
        return capacity
    return ladder.allowed_bytes if capacity is None else min(capacity, ladder.allowed_bytes)


def _highest(session: Session, device: str) -> int:
    """The highest step's peak so far, 0 where none is known."""
    highest = session.steps.highest(device)
    return 0 if highest is None else highest.bytes_held
