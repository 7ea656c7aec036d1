"""What one screen says, as frozen values: the only thing that widgets read besides the chart's series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from .leak import Leak

#: How a figure was had; the screen shows which. An `unknown` one is drawn as –.
Kind = Literal["measured", "derived", "predicted", "lower_bound", "unknown"]
Level = Literal["good", "warning", "bad", "unknown"]
#: Whether a predicted peak fits; empty while that is not known.
Answer = Literal["fits", "may not fit", "does not fit", ""]


@dataclass(frozen=True)
class Figure:
    """A number of bytes (or a count, where `unit` says so) and how it was had."""

    value: Optional[int]
    kind: Kind = "measured"
    unit: str = "bytes"  # bytes, count, percent, celsius, milliwatts
    age_ns: Optional[int] = None  # None: of this frame's instant
    source: str = ""  # "torch.cuda.memory_allocated", "NVML v2", ...


@dataclass(frozen=True)
class Row:
    """A labelled figure of the right-hand column; `key` is its glossary entry."""

    key: str
    label: str
    figure: Figure
    percent: Optional[float] = None  # of the device's total


@dataclass(frozen=True)
class Band:
    """One tenant of the device in the category bar. Bands follow each other and add up to the bar's `total`."""

    key: str  # parameters, ..., reusable_cache, inactive_split, non_torch, other_processes, device_free
    letter: str  # one character, for 16 colours, no colour and colour-blind eyes
    label: str
    figure: Figure


@dataclass(frozen=True)
class Bar:
    """The category bar: what it divides, and its bands in order.

    `bands` add up to `total` exactly. `note` says of which instant the categories are where that is not now.
    """

    label: str  # "device", "reserved" (no driver figures), "allocated"
    total: Figure
    bands: tuple[Band, ...]
    note: str = ""


@dataclass(frozen=True)
class Composition:
    """Categories of one instant: `parts` are (key, bytes), the largest first, and add up to `allocated_bytes`.

    `step` is how many were completed.
    """

    allocated_bytes: int
    phase: str
    step: int
    parts: tuple[tuple[str, int], ...]
    tagged: tuple[tuple[str, int], ...] = ()  # of these, what the program has named itself


@dataclass(frozen=True)
class Spread:
    """Activations as backward began, in the `looks` steps from `first_step` to `last_step` that were looked at.

    Each is told by how many were completed when it was under way.
    """

    looks: int
    first_step: int
    last_step: int
    least_step: int
    least_bytes: int
    most_step: int
    most_bytes: int


@dataclass(frozen=True)
class OptimizerState:
    """What optimizers keep on a device beside their parameters: `measured` once they have stepped, else `predicted`.

    A `lower_bound` where some have stepped and others have not. Bytes; 0 is of optimizers that keep nothing.
    """

    names: str  # "AdamW"
    state_bytes: int
    parameter_bytes: int  # of the parameters they step
    kind: Kind
    tried: bool = False  # predicted by their own steps; else by their classes


@dataclass(frozen=True)
class Verdict:
    """The answer of the top line: will it fit, and what is wrong."""

    level: Level
    text: str  # "fits, 17 % to spare: predicted peak 66.4 GiB of 80.0"
    peak: str = ""  # "peak allocated 57.3 GiB in backward, step 1,203"


@dataclass(frozen=True)
class EventLine:
    """One line of the events list."""

    time_text: str  # 12:03:11
    level: Level
    text: str
    time_ns: int = 0


@dataclass(frozen=True)
class Rule:
    """A horizontal line in the chart: capacity, predicted peak."""

    key: str
    label: str
    value_bytes: int
    kind: Kind


@dataclass(frozen=True)
class DeviceChoice:
    """A device that can be switched to."""

    device: str
    name: str
    used: Figure
    total: Figure


@dataclass(frozen=True)
class View:
    """One process on one device, at one instant."""

    program: str  # "train.py --model gpt-1.6b", escaped
    pid: int
    user: str
    host: str
    device: str  # cuda:0
    device_name: str
    devices: tuple[DeviceChoice, ...]
    state: Literal["starting", "live", "paused", "silent", "lost", "ended"]
    state_text: str  # "no frame for 3 s: the program is inside a long call", "exited with status 1: RuntimeError: ..."
    place: str  # "step 1,204 · 20.4 s · backward"
    phase: str
    verdict: Verdict
    rows: tuple[Row, ...]
    rules: tuple[Rule, ...]
    bar: Bar
    fragmentation: tuple[str, ...]  # lines, each a sentence or a row of figures
    forecast: tuple[str, ...]
    hardware: str  # utilisation, power, temperature in one quiet line
    growth: str  # "what grows", one line
    events: tuple[EventLine, ...]
    notices: tuple[str, ...]  # untested backend, host counters missing, agent of another version, frames lost
    now_ns: int
    frame_age_ns: Optional[int]
    phase_peaks: str = ""  # "GiB: forward ≥ 3.1 · backward 10.4 · …"
    phases_seen: tuple[str, ...] = ()  # of those that not every step has
    fullest: Optional[Composition] = None
    spread: Optional[Spread] = None
    optimizer_state: Optional[OptimizerState] = None
    step_peak: str = ""  # "step peak 10.4 GiB (step 1,203)"
    leak: Optional[Leak] = None
    larger: Optional[Leak] = None  # what rises as a leak does, but in as many blocks
