"""Everything the viewer knows about one monitored process."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Optional, Union

from memtui.wire.frames import (
    BackwardGraph,
    BlockSummary,
    Bye,
    Classification,
    Device,
    DeviceFrame,
    Event,
    Frame,
    Hello,
    Model,
    Optimizer,
    RecordedStep,
    Segments,
    Tensors,
)

from .between import peak_between, peaks_between, peaks_of_ended
from .events import insert
from .firststep import FirstStep
from .floors import Floor, Floors
from .fragments import Fragments
from .history import CAPACITY, Series
from .phasepeaks import PhasePeak, PhasePeaks
from .phases import CHANGES_KEPT, PhaseHistory, follows
from .readings import (
    DeviceReading,
    DriverReading,
    HostReading,
    OptimizerTrial,
    ShapeForecast,
    SteadyStep,
    ToldForecast,
    bare_uuid,
)
from .steps import STEPS_KEPT, Step, StepHistory, StepPeak
from .trials import Trials

#: Events kept; the agent keeps fewer.
EVENTS_KEPT = 2_000
#: Of each name, also when others have pushed them out, the newest.
EVENTS_OF_A_NAME_KEPT = 64

#: Measured categories kept, the newest.
LOOKS_KEPT = 512
#: Recorded steps kept, the newest: each may be some megabytes.
RECORDED_KEPT = 8
#: The same classification in two frames has the same instant but for rounding.
SAME_LOOK_NS = 1_000_000

#: What a series can be of.
SERIES_KEYS = ("allocated_bytes", "reserved_bytes", "device_used_bytes", "process_bytes")

#: A driver reading further than this from the allocator's samples cannot be set beside them.
PAIRING_NS = 2_000_000_000

#: A settled pair is preferred to newer ones for so long.
SETTLED_FOR_NS = 10_000_000_000

#: What an agent says to a session.
Message = Union[Hello, Frame, Event, Model, RecordedStep, BackwardGraph, Tensors, Segments, Bye]

Connection = Literal["none", "connected", "lost", "refused"]


@dataclass(frozen=True)
class End:
    """How the process ended; what is not known is None."""

    time_ns: int
    exit_status: Optional[int] = None  # of the program; -N where signal N ended it
    exception: Optional[str] = None
    text: str = ""
    silent: bool = False  # its agent said nothing of it, as of a killed process
    unheard: bool = False  # nobody could hear what its agent said of it: the link to its machine was down


@dataclass(frozen=True)
class Paired:
    """A driver reading, and what the allocator had reserved at that instant.

    `settled` says that `reserved_bytes` was the same just before and just after: only then is the difference between
    the driver's figure and the allocator's to be trusted.
    """

    reading: DeviceReading
    reserved_bytes: Optional[int]
    settled: bool


class Session:
    """One process over time: fed by the sources, read by the analysis. Not thread-safe: one event loop owns it.

    `depth` bounds how much is kept of each history, for who shows the present alone.
    """

    def __init__(self, pid: Optional[int] = None, *, depth: int = CAPACITY) -> None:
        self.pid = pid
        self.revision = 0
        self.hello: Optional[Hello] = None
        self.model: Optional[Model] = None
        self.frame: Optional[Frame] = None
        self.frame_received_ns: Optional[int] = None
        self.driver: Optional[DriverReading] = None
        self.host: Optional[HostReading] = None
        self.end: Optional[End] = None
        self.connection: Connection = "none"
        self.connection_text = ""
        self._depth = depth
        self.events: deque[Event] = deque(maxlen=min(EVENTS_KEPT, depth))
        self._events_by_name: dict[str, deque[Event]] = {}
        self.steps = StepHistory(min(STEPS_KEPT, depth))
        self.phases = PhaseHistory(CHANGES_KEPT if depth == CAPACITY else depth)
        self.notices: dict[str, str] = {}  # by what gave them, so that each can take its own back
        self.program = ""  # what was asked to run, until the agent or the host says what does run
        self._tick_step_ns: Optional[int] = None  # when the step began that went on at the last frame without boundary
        self._records = True
        self._series: dict[tuple[str, str], Series] = {}
        self._device_frames: dict[str, DeviceFrame] = {}
        self._blocks: dict[str, tuple[BlockSummary, int]] = {}
        self._classifications: dict[str, tuple[Classification, int]] = {}
        self._looks: dict[str, deque[tuple[Classification, int]]] = {}
        self._floors: dict[str, Floors] = {}
        self._readings: dict[str, DeviceReading] = {}
        self._paired: dict[str, Paired] = {}
        self._first_steps: dict[str, FirstStep] = {}
        self._phase_peaks: dict[str, PhasePeaks] = {}
        self._recorded: deque[RecordedStep] = deque(maxlen=RECORDED_KEPT)
        self._tensors: dict[str, Tensors] = {}
        self._segments: dict[str, Segments] = {}
        self._fragments: dict[str, Fragments] = {}
        self.graph: Optional[BackwardGraph] = None  # of the first backward pass
        self._extra_devices: dict[str, Device] = {}
        self.trials = Trials()
        self._steady: dict[str, SteadyStep] = {}
        self._shapes: dict[tuple[str, str], ShapeForecast] = {}
        self.told_forecasts: dict[str, ToldForecast] = {}  # by device

    # What the agent says

    def apply(self, message: Message, received_ns: int) -> bool:
        """Takes in a message of the agent; O(1) in the length of the history. False for one that is known already."""
        if isinstance(message, Frame):
            news = self._apply_frame(message, received_ns)
        elif isinstance(message, Event):
            news = self._apply_event(message)
        elif isinstance(message, Model):
            news = self._apply_model(message)
        elif isinstance(message, Hello):
            news = self._apply_hello(message)
        elif isinstance(message, RecordedStep):
            news = self._apply_recorded(message)
        elif isinstance(message, BackwardGraph):
            self.graph, news = message, True
        elif isinstance(message, Tensors):
            self._tensors[message.device], news = message, True
        elif isinstance(message, Segments):
            self._segments[message.device], news = message, True
        else:
            news = self._apply_bye(message)
        self.revision += news
        return news

    def _apply_bye(self, bye: Bye) -> bool:
        before = self.end or End(bye.time_ns)
        self.end = replace(before, exception=bye.exception or before.exception, text=bye.text or before.text)
        return True

    def _apply_hello(self, hello: Hello) -> bool:
        if self.hello is not None and (hello.pid, hello.started_ns) != (self.hello.pid, self.hello.started_ns):
            self.frame = None  # an agent started afresh counts its frames from the beginning
        self.hello = hello
        if self.pid is None:
            self.pid = hello.pid
        return True

    def _apply_frame(self, frame: Frame, received_ns: int) -> bool:
        before = self.frame
        if before is not None and frame.sequence <= before.sequence:
            return False  # part of a history that was sent again after a reconnection
        for device in frame.devices:
            self._apply_device_frame(frame, device)
        # The host is no longer read once there is an accelerator: what was its latest is not its present.
        for gone in self._device_frames.keys() - {device.device for device in frame.devices}:
            del self._device_frames[gone]
        if before is not None and frame.step > before.step:
            self._apply_step(before, frame)
        if frame.boundary is None:
            self._apply_highest(frame)
        if self._records:
            known = before is None or follows(before, frame)
            self.phases.append(frame.phase_since_ns, frame.phase, frame.time_ns, follows=known)
        self.frame, self.frame_received_ns = frame, received_ns
        return True

    def _apply_device_frame(self, frame: Frame, device: DeviceFrame) -> None:
        name = device.device
        before = self._device_frames.get(name)
        self._device_frames[name] = device
        self._phase_peaks.setdefault(name, PhasePeaks()).add(frame, device)
        high = peak_between(before, frame.step if self.frame is None else self.frame.step, device, frame.step)
        self._record(name, "allocated_bytes", frame.time_ns, device.allocated_bytes, high)
        self._record(name, "reserved_bytes", frame.time_ns, device.reserved_bytes)
        if frame.boundary == "forward_start" and device.allocated_bytes is not None:
            floor = Floor(frame.step, frame.time_ns, device.allocated_bytes, device.num_blocks)
            self._floors.setdefault(name, Floors()).add(floor)
        if device.rss_bytes is not None:
            self._record(name, "device_used_bytes", frame.time_ns, device.rss_bytes)
            self._record(name, "process_bytes", frame.time_ns, device.rss_bytes)
        if device.blocks is not None:
            self._blocks[name] = (device.blocks, frame.time_ns - device.blocks.age_ns)
            self._fragments.setdefault(name, Fragments()).add(frame.step, *self._blocks[name])
        if device.classification is not None:
            measured_ns = frame.time_ns - device.classification.age_ns
            self._classifications[name] = (device.classification, measured_ns)
            looks = self._looks.setdefault(name, deque(maxlen=min(LOOKS_KEPT, self._depth)))
            if not looks or measured_ns > looks[-1][1] + SAME_LOOK_NS:
                looks.append((device.classification, measured_ns))
            if device.classification.categories.get("optimizer_state", 0) > 0:
                self.steps.optimizer_state_since(measured_ns)
        state_ns = self.steps.state_since_ns
        early = state_ns is None or frame.time_ns < state_ns or name in self._first_steps
        if self.steps.first is None and early:
            self._first_steps.setdefault(name, FirstStep()).add(frame, device)

    def _apply_step(self, before: Frame, frame: Frame) -> None:
        end_ns = frame.time_ns if frame.step_since_ns is None else frame.step_since_ns
        self.steps.add(Step(frame.step, end_ns, frame.last_step_ns, tuple(peaks_of_ended(frame))))
        for peak, since_ns in peaks_between(before, frame):
            self.steps.add_highest(peak, since_ns)

    def _apply_highest(self, frame: Frame) -> None:
        for device in frame.devices:
            peak_bytes, step = device.highest_step_peak_bytes, device.highest_step_peak_step
            if peak_bytes is not None and step is not None:
                peak = StepPeak(device.device, step, peak_bytes, True, device.highest_step_peak_phase)
                self.steps.add_highest(peak, self._tick_step_ns)
        self._tick_step_ns = frame.step_since_ns

    def _apply_event(self, event: Event) -> bool:
        if not insert(self.events, event):
            return False
        insert(self._events_by_name.setdefault(event.name, deque(maxlen=EVENTS_OF_A_NAME_KEPT)), event)
        if event.name == "optimizer_state_appeared":
            self.steps.optimizer_state_since(event.time_ns)
        return True

    def _apply_model(self, model: Model) -> bool:
        if self.model is not None and model.time_ns <= self.model.time_ns:
            return False
        self.model = model
        self.trials.described(model)
        if any(sum((optimizer.state_bytes or {}).values()) for optimizer in model.optimizers):
            self.steps.optimizer_state_since(model.time_ns)
        return True

    def _apply_recorded(self, recorded: RecordedStep) -> bool:
        if any(held.time_ns == recorded.time_ns and held.device == recorded.device for held in self._recorded):
            return False  # told again after a reconnection
        self._recorded.append(recorded)
        return True

    # What the viewer measures itself

    def apply_driver(self, reading: DriverReading) -> None:
        """Takes in what the driver says of the devices."""
        self.driver = reading
        for device in reading.devices:
            name = self._name_of(device)
            before = self.paired(name)
            if before is not None and before.settled:
                self._paired[name] = before
            self._readings[name] = device
            self._record(name, "device_used_bytes", device.time_ns, device.used_bytes)
            self._record(name, "process_bytes", device.time_ns, device.process_bytes)
        self.revision += 1

    def apply_host(self, reading: HostReading) -> None:
        """Takes in what the system says of the process and the machine; of a dead process the last figures stay."""
        if not reading.alive and self.host is not None:
            self.host = replace(self.host, alive=False, zombie=reading.zombie)
            self.revision += 1
            return
        self.host = reading
        told = self._device_frames.get("host")
        if told is None or told.rss_bytes is None:  # else the agent's own figure, of the same instant as its others
            self._record("host", "device_used_bytes", reading.time_ns, reading.rss_bytes)
            self._record("host", "process_bytes", reading.time_ns, reading.rss_bytes)
        self.revision += 1

    def apply_trial(self, trial: OptimizerTrial) -> None:
        """Takes in what an optimizer's first steps will take."""
        self.trials.tried(trial)
        self.revision += 1

    def trial(self, optimizer: Optimizer, device: str) -> Optional[OptimizerTrial]:
        """What was found of this optimizer before its first step; None where it was not tried."""
        return self.trials.trial(optimizer, device)

    def apply_steady(self, step: SteadyStep) -> None:
        """Takes in what a recorded step comes to; the newest of a device counts."""
        self._steady[step.device] = step
        self.revision += 1

    def steady_step(self, device: str) -> Optional[SteadyStep]:
        """What the newest recorded step of a device comes to; None where none was done again."""
        return self._steady.get(device)

    def apply_shape(self, forecast: ShapeForecast) -> None:
        """Takes in the peaks at a batch of another size; the newest of a device and size counts."""
        self._shapes[forecast.device, forecast.asked] = forecast
        self.revision += 1

    def shapes(self, device: str) -> tuple[ShapeForecast, ...]:
        """The peaks at batches of other sizes."""
        return tuple(found for (name, _), found in self._shapes.items() if name == device)

    def set_connection(self, connection: Connection, text: str = "") -> None:
        """Says how the agent can be reached, and why it cannot."""
        if (connection, text) != (self.connection, self.connection_text):
            self.connection, self.connection_text = connection, text
            self.revision += 1

    def notice(self, source: str, text: str = "") -> None:
        """Puts a line for the user on the screen, or takes the one of `source` away."""
        if text:
            self.notices[source] = text
        else:
            self.notices.pop(source, None)
        self.revision += 1

    def ended(self, time_ns: int, exit_status: Optional[int] = None, text: str = "") -> None:
        """Says that the process is gone; what is known of its end already is kept."""
        before = self.end or End(time_ns)
        status = before.exit_status if exit_status is None else exit_status
        self.end = replace(before, exit_status=status, text=before.text or text)
        self.revision += 1

    # What is known

    def series(self, device: str, key: str) -> Optional[Series]:
        """The history of one figure (SERIES_KEYS) of a device; None where there is none."""
        return self._series.get((device, key))

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices the process uses: as the agent names them, else those whose driver lists the process."""
        told = {device.device: device for device in (self.hello.devices if self.hello else ())}
        for name in self._device_frames:
            if name not in told:
                told[name] = Device(name, name.partition(":")[0], "", "caching allocator" if ":" in name else "host")
        if told:
            return tuple(told.values())
        listed = [name for name, reading in self._readings.items() if reading.process_bytes is not None]
        return tuple(self._extra_devices[name] for name in listed) or (Device("host", "host", "", "rss"),)

    def default_device(self) -> str:
        """The device to show first: the one with most memory reserved, a GPU before the host."""

        def weight(device: Device) -> tuple[bool, int]:
            frame = self._device_frames.get(device.device)
            held = None if frame is None else frame.reserved_bytes
            return device.kind != "host", held or 0

        return max(self.devices, key=weight).device

    def device(self, name: str) -> Optional[Device]:
        """What is known of the device itself."""
        return next((device for device in self.devices if device.device == name), None)

    def device_frame(self, name: str) -> Optional[DeviceFrame]:
        """The newest figures of the agent for a device."""
        return self._device_frames.get(name)

    def blocks(self, name: str) -> Optional[tuple[BlockSummary, int]]:
        """The newest look at the allocator's blocks, and when it was measured."""
        return self._blocks.get(name)

    def classification(self, name: str) -> Optional[tuple[Classification, int]]:
        """The newest categories, and when they were measured."""
        return self._classifications.get(name)

    def floors(self, name: str) -> Optional[Floors]:
        """What steps have left behind on a device, at the beginning of each forward that was read; None before one."""
        return self._floors.get(name)

    def looks(self, name: str) -> tuple[tuple[Classification, int], ...]:
        """The last measured categories with their instants, oldest first."""
        return tuple(self._looks.get(name, ()))

    def recorded(self, name: str) -> tuple[RecordedStep, ...]:
        """The recorded steps of a device, oldest first."""
        return tuple(each for each in self._recorded if each.device == name)

    def tensors(self, name: str) -> Optional[Tensors]:
        """The live tensors of a device, as of when they were asked for last."""
        return self._tensors.get(name)

    def segments(self, name: str) -> Optional[Segments]:
        """What the allocator of a device holds, by address, as of when it was asked for last."""
        return self._segments.get(name)

    def fragments(self, name: str) -> Optional[Fragments]:
        """How much of a device's memory was free and pinned over the steps; None where no blocks were read."""
        return self._fragments.get(name)

    def first_step(self, name: str) -> Optional[FirstStep]:
        """What the first step took before its optimizer ran; None where nobody watched it."""
        return self._first_steps.get(name)

    def phase_peaks(self, name: str) -> dict[str, PhasePeak]:
        """The most that was allocated on a device in each phase that was seen."""
        peaks = self._phase_peaks.get(name)
        return {} if peaks is None else peaks.by_phase

    def events_of(self, name: str) -> Sequence[Event]:
        """The newest events of a name, oldest first."""
        return self._events_by_name.get(name, ())

    def reading(self, name: str) -> Optional[DeviceReading]:
        """The driver's newest figures for a device."""
        return self._readings.get(name)

    def paired(self, name: str) -> Optional[Paired]:
        """The newest driver reading beside the allocator's figure of that instant; the settled one if there is one."""
        reading = self._readings.get(name)
        if reading is None:
            return None
        pair = self._pair(name, reading)
        older = self._paired.get(name)
        if pair.settled or older is None or reading.used_bytes is None:
            return pair
        return older if reading.time_ns - older.reading.time_ns < SETTLED_FOR_NS else pair

    def _pair(self, name: str, reading: DeviceReading) -> Paired:
        series = self._series.get((name, "reserved_bytes"))
        before, after = (None, None) if series is None else series.around(reading.time_ns)
        near = [sample for sample in (before, after) if sample and abs(sample[0] - reading.time_ns) <= PAIRING_NS]
        if not near:
            return Paired(reading, None, False)
        return Paired(reading, near[0][1], len(near) == 2 and near[0][1] == near[1][1])

    def snapshot(self) -> Session:
        """A copy that goes on independently but shares the series, and adds nothing to them: for going back in time."""
        twin = copy.copy(self)
        twin._records = False
        twin.events = self.events.copy()
        twin._events_by_name = {name: events.copy() for name, events in self._events_by_name.items()}
        twin.steps = self.steps.snapshot()
        twin.notices = dict(self.notices)
        twin._looks = {name: looks.copy() for name, looks in self._looks.items()}
        twin._floors = {name: floors.snapshot() for name, floors in self._floors.items()}
        twin._fragments = {name: found.snapshot() for name, found in self._fragments.items()}
        twin._first_steps = {name: copy.copy(first) for name, first in self._first_steps.items()}
        twin._phase_peaks = {name: peaks.snapshot() for name, peaks in self._phase_peaks.items()}
        twin._recorded = self._recorded.copy()
        twin.trials, twin._steady, twin._shapes = self.trials.copy(), self._steady.copy(), self._shapes.copy()
        for table in (
            *("_device_frames", "_blocks", "_classifications", "_tensors", "_segments"),
            *("_readings", "_paired", "_extra_devices", "told_forecasts"),
        ):
            setattr(twin, table, dict(getattr(self, table)))
        return twin

    # Helpers

    def _record(self, device: str, key: str, time_ns: int, value: Optional[int], high: Optional[int] = None) -> None:
        if value is None or not self._records:
            return
        series = self._series.get((device, key))
        if series is None:
            series = self._series[device, key] = Series(self._depth)
        series.append(time_ns, value, high)

    def _name_of(self, reading: DeviceReading) -> str:
        """torch's name for a device of the driver, by UUID: the two count them differently."""
        wanted = bare_uuid(reading.uuid)
        for device in self.hello.devices if self.hello else ():
            if device.uuid is not None and bare_uuid(device.uuid) == wanted:
                return device.device
        name = f"gpu:{reading.index}" if reading.index is not None else reading.uuid
        self._extra_devices[name] = Device(
            name, "cuda", reading.name, "driver", uuid=reading.uuid, total_bytes=reading.total_bytes
        )
        return name
