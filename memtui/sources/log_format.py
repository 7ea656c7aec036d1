"""The log: one JSON object a line. Bytes are `*_bytes`, monotonic nanoseconds `*_ns`, `wall_time` Unix seconds.

Every line has a `kind` and a `time_ns` of the monitored machine:

- `log`, the first: `format` "memtui log", `version`, `written_by`.
- `hello`, `model`, `event`, `recorded_step`, `tensors`, `segments`, `bye`: what the agent said, as on the wire.
- `frame`: `step` (how many are completed: the number of the one under way is one more), `phase`, and `devices`, an
  object by torch's device name. Of each device the allocator's counters (`allocated_bytes`, `reserved_bytes`, ...),
  `categories` that add up to `allocated_bytes` (with the age and the phase of their measurement), `blocks`, and
  `device`: the driver's newest figures (`age_ns` before the frame). In a file that an agent has kept itself `devices`
  is a list, as on the wire.
- `driver`, `host`: a reading of the driver, and of the process and the machine by the operating system.
- `optimizer_trial`: what an optimizer's first steps will take, predicted before the first.
- `steady_step`: what a recorded step comes to when it goes on like that, predicted.
- `shape_forecast`: the peaks at batches of another size than the recorded ones, predicted.
- `rank`: which file beside this one is the log of a rank: `rank`, `life` (1, and one more after each restart), `pid`,
  `file`. Where a program starts several ranks, each has a log of its own.
- `end`: `exit_status` (-N for signal N), `exception`, `text`; `silent` where an agent said nothing of it, `unheard`
  where it could not be heard; what is not known is left out.

What cannot be had is left out, never 0.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, TypeVar

from memtui.session.readings import (
    DeviceReading,
    DriverReading,
    HostReading,
    OptimizerTrial,
    OtherProcess,
    ShapeForecast,
    SteadyStep,
)
from memtui.session.session import End, Session
from memtui.wire import codec
from memtui.wire.frames import DeviceFrame, Frame

FORMAT = "memtui log"
VERSION = 1

Plain = dict[str, Any]
_T = TypeVar("_T")


class LogError(Exception):
    """A file that is no log, or a line of one that cannot be read; the message is one line."""


def frame_line(frame: Frame, session: Session, wall_time: float) -> Plain:
    """A frame with what the driver said last, as a self-contained object."""
    plain = codec.to_json(frame)
    line = {"kind": "frame", "time_ns": frame.time_ns, "wall_time": round(wall_time, 3), **plain}
    line["devices"] = {device.device: _device(frame, device, session) for device in frame.devices}
    return line


def _device(frame: Frame, device: DeviceFrame, session: Session) -> Plain:
    plain = _given(device)
    del plain["device"]
    classification, blocks = plain.pop("classification", None), plain.pop("blocks", None)
    categories = device.categories()
    if classification is not None and categories is not None:
        plain["categories"] = categories
        plain["categories_age_ns"] = classification.age_ns
        plain["categories_phase"] = classification.phase
        plain["categories_step"] = classification.step
        if classification.largest_activation_bytes:
            plain["largest_activation_bytes"] = classification.largest_activation_bytes
    if blocks is not None:
        plain["blocks"] = dict(blocks.__dict__)
    reading = session.reading(device.device)
    if reading is not None:
        names = ("total_bytes", "used_bytes", "free_bytes", "driver_reserved_bytes", "process_bytes")
        driver: dict[str, Optional[int]] = {name: getattr(reading, name) for name in names}
        driver["other_process_bytes"] = reading.other_process_bytes()
        driver["age_ns"] = frame.time_ns - reading.time_ns
        plain["device"] = {name: value for name, value in driver.items() if value is not None}
    return plain


def read_frame(line: Plain) -> Frame:
    """The frame of a line; raises LogError."""
    if isinstance(line.get("devices"), list):
        return _as_on_the_wire(line)
    devices = []
    for name, figures in _object(line.get("devices", {}), "devices").items():
        plain = dict(_object(figures, name), device=name)
        categories = plain.pop("categories", None)
        if isinstance(categories, dict):
            plain["classification"] = {
                "age_ns": plain.pop("categories_age_ns", 0),
                "allocated_bytes": plain.get("allocated_bytes", 0),
                "phase": plain.pop("categories_phase", ""),
                "step": plain.pop("categories_step", 0),
                "categories": categories,
                "largest_activation_bytes": plain.pop("largest_activation_bytes", None),
            }
        devices.append(plain)
    return _as_on_the_wire({**line, "devices": devices})


def _as_on_the_wire(line: Plain) -> Frame:
    frame = read_message(line)
    assert isinstance(frame, Frame)
    return frame


def read_message(line: Plain) -> Any:
    """What the agent said in a line of its kind; raises LogError."""
    try:
        return codec.from_json(line)
    except codec.CodecError as error:
        raise LogError(str(error)) from None


def reading_line(
    kind: str, reading: DriverReading | HostReading | OptimizerTrial | SteadyStep | ShapeForecast | End
) -> Plain:
    """A reading of the viewer's own, or the end."""
    plain = _given(reading)
    return {"kind": kind, "time_ns": plain.pop("time_ns"), **plain}


def read_driver(line: Plain) -> DriverReading:
    """A reading of the driver; raises LogError."""
    devices = []
    for each in _list(line.get("devices", [])):
        device = _object(each, "a device")
        others = device.get("others")
        processes = None if others is None else tuple(_build(OtherProcess, other) for other in _list(others))
        devices.append(_build(DeviceReading, {**device, "others": processes}))
    return _build(DriverReading, {**line, "devices": tuple(devices)})


def read_host(line: Plain) -> HostReading:
    """A reading of the process and the machine; raises LogError."""
    return _build(HostReading, {**line, "cmdline": tuple(map(str, _list(line.get("cmdline", []))))})


def read_trial(line: Plain) -> OptimizerTrial:
    """What was predicted of an optimizer; raises LogError."""
    return _build(OptimizerTrial, line)


def read_steady(line: Plain) -> SteadyStep:
    """What a recorded step comes to; raises LogError."""
    return _build(SteadyStep, line)


def read_shape(line: Plain) -> ShapeForecast:
    """The peaks at a batch of another size; raises LogError."""
    return _build(ShapeForecast, line)


def read_end(line: Plain) -> End:
    """How the process ended; raises LogError."""
    return _build(End, line)


def _given(value: Any) -> Plain:
    """The fields that differ from their defaults."""
    fields = {field.name: field.default for field in dataclasses.fields(value)}
    return {key: _plain(item) for key, item in value.__dict__.items() if item != fields[key] and item is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, (DeviceReading, OtherProcess)):
        return _given(value)
    return value


#: Types that a field may have in a line, by its annotation as it is written in the class.
_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "Optional[int]": (int, type(None)),
    "str": (str,),
    "Optional[str]": (str, type(None)),
    "bool": (bool,),
    "Optional[float]": (int, float, type(None)),
}


def _build(cls: type[_T], line: object) -> _T:
    plain = _object(line, cls.__name__)
    given = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # only dataclasses are given
        if field.name not in plain:
            continue
        value = plain[field.name]
        allowed = _SCALARS.get(str(field.type))
        if (allowed is not None and not isinstance(value, allowed)) or (isinstance(value, int) and abs(value) >> 63):
            raise LogError(f"{cls.__name__}.{field.name}: {str(value)[:60]!r}")
        given[field.name] = value
    if cls is OtherProcess:
        given.setdefault("bytes_held", None)
        given.setdefault("name", "")
    try:
        return cls(**given)
    except TypeError as error:
        raise LogError(f"{cls.__name__}: {error}") from None


def _object(value: object, what: str) -> Plain:
    if not isinstance(value, dict):
        raise LogError(f"{what}: {str(value)[:60]!r} is no object")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise LogError(f"{str(value)[:60]!r} is no list")
    return value
