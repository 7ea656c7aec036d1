"""Sessions made of frames that say only what a test is about."""

from __future__ import annotations

from typing import Any, Optional

from memtui.session.readings import DeviceReading, DriverReading, OtherProcess
from memtui.session.session import Session
from memtui.wire.frames import BlockSummary, Classification, Device, DeviceFrame, Frame, Hello, Model, Optimizer

SECOND = 1_000_000_000
MIB = 1 << 20
GIB = 1 << 30
UUID = "GPU-11111111-2222-3333-4444-555555555555"
CUDA = Device("cuda:0", "cuda", "A GPU", "caching allocator", uuid=UUID[4:], total_bytes=24 * GIB)


def hello(*devices: Device, pid: int = 4242, **fields: Any) -> Hello:
    """A greeting."""
    given: dict[str, Any] = {
        "protocol": 1,
        "agent": "0.1.0",
        "pid": pid,
        "python": "3.11",
        "torch": "2.14",
        "argv": ("train.py",),
        "cwd": "/",
        "hostname": "box",
        "time_ns": 0,
        "wall_offset_ns": 0,
        "started_ns": 1,
        "devices": devices or (CUDA,),
    }
    return Hello(**{**given, **fields})


class Run:
    """A made-up run that feeds a session frame by frame, 0.1 s apart."""

    def __init__(self, *devices: Device, **fields: Any) -> None:
        self.session = Session(4242)
        self.session.apply(hello(*devices, **fields), 0)
        self.session.set_connection("connected")
        self.now_ns = 0
        self.sequence = 0
        self.step = 0
        self.step_since_ns = 0

    def frame(self, allocated: Optional[int], reserved: Optional[int] = None, **fields: Any) -> Frame:
        """A frame of cuda:0; fields of Frame and of DeviceFrame by name."""
        self.now_ns += SECOND // 10
        self.sequence += 1
        own = set(Frame.__dataclass_fields__)
        outer = {name: value for name, value in fields.items() if name in own}
        inner = {name: value for name, value in fields.items() if name not in own}
        device = DeviceFrame(
            **{
                "device": "cuda:0",
                "allocated_bytes": allocated,
                "reserved_bytes": allocated if reserved is None else reserved,
                **inner,
            }
        )
        given: dict[str, Any] = {
            "sequence": self.sequence,
            "time_ns": self.now_ns,
            "late_ns": 0,
            "step": self.step,
            "phase": "between",
            "phase_since_ns": self.now_ns,
            "devices": (device,),
        }
        frame = Frame(**{**given, **outer})
        self.session.apply(frame, self.now_ns)
        return frame

    def end_step(
        self, allocated: int, peak: int, *, exact: bool = True, phase: str = "backward", **fields: Any
    ) -> None:
        """The frame after a step's end."""
        self.step += 1
        now = self.now_ns + SECOND // 10
        duration, self.step_since_ns = now - self.step_since_ns, now
        self.frame(
            allocated,
            last_step_peak_bytes=peak,
            last_step_peak_exact=exact,
            last_step_peak_phase=phase,
            step_since_ns=now,
            last_step_ns=duration,
            **fields,
        )

    def driver(
        self, used: Optional[int], process: Optional[int], *others: OtherProcess, **fields: Any
    ) -> DeviceReading:
        """A reading of the driver now, and a frame after it so that it is known to be settled."""
        total = fields.pop("total", 24 * GIB)
        reserved = fields.pop("driver_reserved_bytes", 0)
        given: dict[str, Any] = {
            "uuid": UUID,
            "time_ns": self.now_ns + 1,
            "index": 0,
            "name": "A GPU",
            "total_bytes": total,
            "used_bytes": used,
            "free_bytes": None if used is None or total is None else total - used - (reserved or 0),
            "driver_reserved_bytes": reserved,
            "process_bytes": process,
            "others": tuple(others),
        }
        reading = DeviceReading(**{**given, **fields})
        self.session.apply_driver(DriverReading(reading.time_ns, (reading,), "1.0"))
        return reading

    def adam(
        self, parameters: int, *, state: Optional[int] = None, steps: int = 0, name: str = "Adam", **options: Any
    ) -> None:
        """A model with one optimizer."""
        held = None if state is None else {"cuda:0": state}
        optimizer = Optimizer(name, options, {"cuda:0": parameters}, parameters // 4, held, steps)
        self.now_ns += 1
        self.session.apply(
            Model(self.now_ns, ("MLP",), parameters // 4, parameters // 4, {"cuda:0": parameters}, {}, (optimizer,)), 0
        )


def classified(
    allocated: int, *, age_ns: int = 0, step: int = 0, phase: str = "between", **categories: int
) -> Classification:
    """Categories that add up, with the rest unattributed."""
    rest = allocated - sum(categories.values())
    return Classification(age_ns, allocated, phase, step, {**categories, "unattributed": rest})


def blocks(**fields: int) -> BlockSummary:
    """A look at the blocks; what is not given is 0."""
    return BlockSummary(**{name: fields.get(name, 0) for name in BlockSummary.__dataclass_fields__})
