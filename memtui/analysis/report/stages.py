"""What is in memory after the model's creation, and after forward, backward and optimizer of the first step."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from memtui.analysis import units
from memtui.session.session import Session
from memtui.wire.frames import CAME_LATE, CATEGORIES, DeviceFrame, Frame

from .facts import Row, Section, cell

CREATED, LAST = "after_creation", "after_first_step"
_TICK = "tick"
#: Key and label of each, the boundary at which it is read, how that is said, whether the first step is over then, and
#: what is new.
_STAGES = (
    (CREATED, "model created", ("forward_start",), "as forward began", False, ("parameters", "inputs")),
    ("after_forward", "after forward", ("backward_start",), "as backward began", False, ("activations",)),
    ("after_backward", "after backward", ("optimizer_start",), "as the optimizer began", False, ("gradients",)),
    (LAST, "after the step", ("optimizer_end", "backward_end"), "as it ended", True, ("optimizer_state",)),
)
_COLUMNS = (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved"))
_UNKNOWN = cell("allocated_bytes", None).figure
RUN = "memtui run --log FILE train.py sees it from its start"


def came_late(session: Session) -> bool:
    """Whether the agent came into a program that ran already: what it counts as the first step is none."""
    return session.hello is not None and CAME_LATE in session.hello.notices


class Stages:
    """The frames at the boundaries of the first step, as they come by. `add` is O(1)."""

    def __init__(self) -> None:
        self.frames: dict[str, Frame] = {}
        self.seen = False  # the first boundary has come
        self.before: Optional[Frame] = None  # the last one before the first boundary
        self.over = False

    def add(self, frame: Frame) -> None:
        """Takes in a frame; one after the first step's end changes nothing."""
        if self.over or frame.boundary == "evaluation_start":
            return
        if frame.boundary is None:
            if not self.seen and frame.phase == "startup":
                self.before = frame
            elif frame.step == 1 and frame.phase == "between":
                # The agent's thread may be at a step's end before the training's has told of it.
                self.frames.setdefault(_TICK, frame)
            self.over = frame.step > 1
            return
        self.seen = True
        for key, _, boundaries, _, ends, _ in _STAGES:
            if frame.boundary in boundaries and frame.step == int(ends):
                self.frames.setdefault(key, frame)
        self.over = LAST in self.frames or frame.step > 1 or (frame.step == 1 and frame.boundary == "forward_start")

    def at(self, key: str) -> Optional[Frame]:
        """The frame at one of the four boundaries; of the last also the first one after it."""
        return self.frames.get(key) or (self.frames.get(_TICK) if key == LAST else None)


def stages_section(session: Session, stages: Stages, device: str) -> Section:
    """A row for each of the four."""
    rows: list[Row] = []
    for stage in _STAGES:
        row = _row(session, stages, device, *stage)
        again = any(before.text == row.text for before in rows)
        rows.append(replace(row, text="as above") if again and row.figure("allocated_bytes") == _UNKNOWN else row)
    return Section("first_step", "First step", tuple(rows), _COLUMNS)


def _row(
    session: Session,
    stages: Stages,
    device: str,
    key: str,
    label: str,
    _boundaries: tuple[str, ...],
    when: str,
    ends: bool,
    new: tuple[str, ...],
) -> Row:
    frame = None if came_late(session) else stages.at(key)
    found = _on(frame, device)
    if found is not None and key == CREATED:
        created = _created(stages, device, found)
        if created is not None:
            return created
    if frame is None or found is None:
        cells = tuple(cell(name, None) for name, _ in _COLUMNS)
        return Row(key, label, cells, _why_not(session, stages, ends=ends))
    cells = (cell("allocated_bytes", found.allocated_bytes), cell("reserved_bytes", found.reserved_bytes))
    parts = _parts(found)
    named = ", ".join(f"{name.replace('_', ' ')} {units.size(held)}" for name, held in parts if name in new)
    if frame.boundary is None and frame.step_since_ns is not None:
        when = f"{units.duration(frame.time_ns - frame.step_since_ns)} after its end"
    return Row(
        key,
        label,
        (*cells, *(cell(f"{name}_bytes", held) for name, held in parts)),
        f"{when}: {named}" if named else when,
    )


def _on(frame: Optional[Frame], device: str) -> Optional[DeviceFrame]:
    return None if frame is None else next((each for each in frame.devices if each.device == device), None)


def _created(stages: Stages, device: str, began: DeviceFrame) -> Optional[Row]:
    """By the last sample before the first forward, if the whole model was there: its input may not have been yet."""
    sample, parts = _on(stages.before, device), dict(_parts(began))
    model = parts.get("parameters", 0) + parts.get("buffers", 0)
    if sample is None or not model or stages.before is None:
        return None
    allocated, until = sample.allocated_bytes, began.allocated_bytes
    if allocated is None or until is None or not model <= allocated <= until:
        return None
    cells = (cell("allocated_bytes", allocated), cell("reserved_bytes", sample.reserved_bytes))
    held = tuple(cell(f"{name}_bytes", parts[name]) for name in ("parameters", "buffers") if name in parts)
    ago = units.duration(stages.frames[CREATED].time_ns - stages.before.time_ns)
    return Row(CREATED, _STAGES[0][1], (*cells, *held), f"{ago} before the first forward")


def _parts(found: DeviceFrame) -> list[tuple[str, int]]:
    """Categories of that very instant, the largest first."""
    look = found.classification
    if look is None or look.age_ns or look.allocated_bytes != found.allocated_bytes:
        return []
    held = [(name, look.categories[name]) for name in CATEGORIES if look.categories.get(name)]
    return sorted(held, key=lambda part: -part[1])


def _why_not(session: Session, stages: Stages, *, ends: bool) -> str:
    if came_late(session):
        return f"memtui came while the program ran: {RUN}"
    if not stages.seen:
        return "no forward was seen"
    if session.end is not None and not stages.over:
        return "the program ended before"
    if ends and not stages.over:
        return "not reached while it was watched"
    return "not seen in the first step"
