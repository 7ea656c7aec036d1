"""What is in memory after the model's creation, and after forward, backward and optimizer of the first step."""

from __future__ import annotations

from typing import Optional

from memtui.analysis import units
from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import CATEGORIES, DeviceFrame, Frame

from .facts import Row, Section, cell

CREATED = "after_creation"
#: Key and label of each, the boundary at which it is read, how that is said, whether the first step is over then, and
#: what is new.
_STAGES = (
    (CREATED, "model created", ("forward_start",), "as forward began", False, ("parameters", "inputs")),
    ("after_forward", "forward", ("backward_start",), "as backward began", False, ("activations",)),
    ("after_backward", "backward", ("optimizer_start",), "as the optimizer began", False, ("gradients",)),
    ("after_first_step", "first step", ("optimizer_end", "backward_end"), "as it ended", True, ("optimizer_state",)),
)
_COLUMNS = (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved"))
RUN = "memtui run --log FILE train.py sees it from its start"


class Stages:
    """The frames at the boundaries of the first step, as they come by. `add` is O(1)."""

    def __init__(self) -> None:
        self.frames: dict[str, Frame] = {}
        self.first_step: Optional[int] = None  # completed when the first boundary came
        self.before: Optional[Frame] = None  # the last one before the first boundary
        self.over = False

    def add(self, frame: Frame) -> None:
        """Takes in a frame; one after the first step's end changes nothing."""
        if self.over or frame.boundary == "evaluation_start":
            return
        if frame.boundary is None:
            if self.first_step is None and frame.phase == "startup":
                self.before = frame
            self.over = frame.step > 0
            return
        if self.first_step is None:
            self.first_step = frame.step
        for key, _, boundaries, _, ends, _ in _STAGES:
            if frame.boundary in boundaries and frame.step == int(ends):
                self.frames.setdefault(key, frame)
        self.over = frame.step > 0


def stages_section(session: Session, stages: Stages, device: str) -> Section:
    """A row for each of the four."""
    rows = [_row(session, stages, device, *stage) for stage in _STAGES]
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
    found = _on(stages.frames.get(key), device)
    if found is not None and key == CREATED:
        created = _created(stages, device, found)
        if created is not None:
            return created
    if found is None:
        cells = tuple(cell(name, None) for name, _ in _COLUMNS)
        return Row(key, label, cells, _why_not(session, stages, ends=ends))
    cells = (cell("allocated_bytes", found.allocated_bytes), cell("reserved_bytes", found.reserved_bytes))
    parts = _parts(found)
    named = ", ".join(f"{name.replace('_', ' ')} {units.size(held)}" for name, held in parts if name in new)
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
    if stages.first_step:
        return f"memtui came in step {step_number(stages.first_step):,}: {RUN}"
    if stages.first_step is None:
        return f"no step was seen from its beginning: {RUN}"
    if session.end is not None and not stages.over:
        return "the program ended before"
    if ends and not stages.over:
        return "not reached while it was watched"
    return "not seen in the first step"
