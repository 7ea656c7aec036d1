"""A made-up training run as a feed: the real session fed with computed frames, on a clock that the test moves."""

from __future__ import annotations

import math
import random
from typing import Callable, Optional

from memtui.session.readings import DeviceReading, DriverReading, HostReading, OtherProcess
from memtui.session.session import Session
from memtui.wire.frames import (
    FREE_PIECE,
    BlockSummary,
    Bye,
    Classification,
    Device,
    DeviceFrame,
    Event,
    Failure,
    Frame,
    Hello,
    LiveSite,
    Model,
    Optimizer,
    Pinned,
    Segments,
    Tensor,
    Tensors,
)
from memtui.wire.histories import HistoryNews

GIB = 1 << 30
MIB = 1 << 20
SECOND = 1_000_000_000
#: Monotonic time at which the run begins; and the wall clock then, 2026-03-01 12:00:00 UTC.
BEGUN_NS = 5_000 * SECOND
WALL_NS = 1_772_366_400 * SECOND

UUID = "GPU-5f2c1d9e-0000-4000-8000-000000000001"
#: Shares of a step.
PHASES = (("forward", 0.34), ("backward", 0.42), ("optimizer", 0.14), ("between", 0.10))
#: Of the forward: then the loss, and all activations are there.
LAYERS = 0.30 / 0.34


class Training:
    """A GPT of 1.6 billion parameters on one A100 (or `total`), steps of `step_s`; sampled at 10 Hz."""

    def __init__(self, step_s: float = 20.4, total: int = 80 * GIB, devices: int = 1) -> None:
        self.step_ns = int(step_s * SECOND)
        self.total = total
        self.parameters = total * 61 // 800
        self.peak_activations = total * 21 // 100
        self.names = tuple(f"cuda:{index}" for index in range(devices))
        self.sequence = 0
        self.peak = 0
        self.step_peak = 0
        self.last_step_peak = 0
        self.step = 0

    def hello(self) -> Hello:
        """Who it is."""
        return Hello(
            protocol=1,
            agent="0.1.0",
            pid=4242,
            python="3.11.7",
            torch="2.14.1",
            argv=("train.py", "--model", "gpt-1.6b"),
            cwd="/home/user/gpt",
            hostname="gpu-box",
            time_ns=BEGUN_NS,
            wall_offset_ns=WALL_NS - BEGUN_NS,
            started_ns=BEGUN_NS,
            devices=tuple(
                Device(
                    name,
                    "cuda",
                    "NVIDIA A100-SXM4-80GB",
                    "caching allocator",
                    uuid=UUID[:-1] + str(index + 1),
                    total_bytes=self.total,
                )
                for index, name in enumerate(self.names)
            ),
        )

    def model(self, time_ns: int) -> Model:
        """What was discovered."""
        names = dict.fromkeys(self.names, self.parameters)
        adam = Optimizer("AdamW", {}, names, self.parameters // 4, dict.fromkeys(self.names, 2 * self.parameters), 2)
        count = self.parameters // 4
        return Model(time_ns, ("GPT",), count, count, names, {"float32": self.parameters}, (adam,))

    def place(self, time_ns: int) -> tuple[int, str, int, int, float]:
        """Steps completed, phase, since when, when the step began, and how far the phase is (0 to 1)."""
        since = time_ns - BEGUN_NS
        step, inside = divmod(since, self.step_ns)
        begun = time_ns - inside
        since_step = begun - int(PHASES[-1][1] * self.step_ns) if step else begun
        at = 0.0
        share = inside / self.step_ns
        for name, length in PHASES:
            if share < at + length:
                phase_ns, progress = begun + int(at * self.step_ns), (share - at) / length
                if name == "between":  # the optimizer's end has ended the step
                    return int(step) + 1, name, phase_ns, phase_ns, progress
                return int(step), name, phase_ns, since_step, progress
            at += length
        return int(step) + 1, "between", begun, begun, 1.0

    def figures(self, time_ns: int) -> dict[str, int]:
        """Categories at an instant."""
        step, phase, _, _, progress = self.place(time_ns)
        first = step == 0
        wobble = 1 + 0.04 * math.sin(step * 1.7)
        activations = gradients = temporaries = 0
        peak = int(self.peak_activations * wobble)
        if phase == "forward":
            activations = int(peak * min(1.0, progress / LAYERS))
        elif phase == "backward":
            activations = int(peak * (1 - progress))
            gradients = int(self.parameters * progress)
            temporaries = int(0.02 * self.total * math.sin(math.pi * min(1.0, progress * 1.1)) ** 2)
        elif phase == "optimizer":
            gradients = self.parameters
            temporaries = int(0.008 * self.total)
        state = 0 if first and phase != "between" else 2 * self.parameters
        return {
            "parameters": self.parameters,
            "buffers": 0,
            "gradients": gradients,
            "optimizer_state": state,
            "activations": activations,
            "temporaries": temporaries,
            "inputs": 12 * MIB,
            "workspaces": 8_519_680,
            "unattributed": 0,
        }

    def frame(self, time_ns: int) -> Frame:
        """The frame at an instant; to be asked for in order."""
        step, phase, since, begun, _ = self.place(time_ns)
        categories = self.figures(time_ns)
        allocated = sum(categories.values())
        if step != self.step:
            self.step, self.last_step_peak, self.step_peak = step, self.step_peak, 0
        self.peak = max(self.peak, allocated)
        self.step_peak = max(self.step_peak, allocated)
        self.sequence += 1
        reserved = self.reserved()
        free = reserved - allocated
        pinned = min(free, self.total * 19 // 800)
        devices = tuple(
            DeviceFrame(
                device=name,
                allocated_bytes=allocated,
                reserved_bytes=reserved,
                active_bytes=allocated,
                requested_bytes=allocated - 5 * MIB,
                inactive_split_bytes=pinned,
                allocated_peak_bytes=self.peak,
                reserved_peak_bytes=reserved,
                step_peak_bytes=self.step_peak,
                last_step_peak_bytes=self.last_step_peak or None,
                last_step_peak_phase="backward" if self.last_step_peak else None,
                num_alloc_retries=0,
                num_ooms=0,
                num_segments=612,
                num_blocks=4_310,
                blocks=BlockSummary(0, 612, 4_310, int(0.6 * GIB), free - pinned, pinned, 0, 0, 41),
                classification=Classification(0, allocated, phase, step, categories),
            )
            for name in self.names
        )
        return Frame(
            sequence=self.sequence,
            time_ns=time_ns,
            late_ns=80_000,
            step=step,
            phase=phase,
            phase_since_ns=since,
            devices=devices,
            step_since_ns=begun,
            last_step_ns=self.step_ns if step else None,
        )

    def tensors(self, time_ns: int, device: str = "cuda:0") -> Tensors:
        """The largest live tensors at an instant, as if it were a boundary."""
        step, phase, _, _, _ = self.place(time_ns)
        figures = self.figures(time_ns)
        rows: list[Tensor] = []
        weights = (("attn.c_attn", (4800, 1600), 3), ("mlp.c_fc", (6400, 1600), 4), ("mlp.c_proj", (1600, 6400), 4))
        owners = {"parameters": ("",), "gradients": (" (gradient)",), "optimizer_state": (" exp_avg", " exp_avg_sq")}
        for category, endings in owners.items():
            for layer in range(12):
                for ending in endings:
                    for name, shape, share in weights:
                        size = figures[category] // len(endings) * share // 140
                        full = f"transformer.h.{layer}.{name}.weight{ending}"
                        rows.append(Tensor(category, size, full, shape, "float32"))
        activations = figures["activations"]
        rows.append(Tensor("activations", activations // 5 // 48 * 48, phase="forward", count=48))
        rows.append(Tensor("activations", activations // 3 // 96 * 96, phase="forward", count=96))
        rows.append(Tensor("temporaries", figures["temporaries"]))
        rows.append(Tensor("inputs", figures["inputs"], "batch", (16, 1024), "int64"))
        rows.append(Tensor("workspaces", figures["workspaces"]))
        rows = sorted((row for row in rows if row.size_bytes), key=lambda row: -row.size_bytes)
        allocated = sum(figures.values())
        shown = sum(row.size_bytes for row in rows)
        return Tensors(time_ns, step, phase, device, allocated, tuple(rows), 1_234, allocated - shown, 900_000)

    def segments(self, time_ns: int, device: str = "cuda:0") -> Segments:
        """What the allocator holds at an instant: blocks of each category in segments, some of which have holes."""
        step, phase, _, _, _ = self.place(time_ns)
        figures = self.figures(time_ns)
        drawn, segments, pieces, names = random.Random(1), [], [], []
        categories = tuple(name for name, size in figures.items() if size)
        address, left, pinned = 0, self.reserved(), self.total * 19 // 800 >> 9
        for kind, category in enumerate(categories):
            blocks = max(1, min(48, figures[category] // (64 * MIB)))
            for block in range(blocks):
                size = figures[category] // blocks >> 9
                hole = min(pinned, drawn.choice((0, 0, size // 20, size // 5, size))) if kind else 0
                whole = -(-(size + hole) // 4096) * 4096
                pinned = max(0, pinned - (whole - size))
                if category == "optimizer_state":
                    names.append(f"transformer.h.{block}.mlp.c_fc.weight exp_avg")
                name = len(names) - 1 if category == "optimizer_state" else -1
                own = [(size, kind, 1, name), (whole - size, FREE_PIECE, 0, -1)]
                own = [piece for piece in (own if drawn.random() < 0.7 else own[::-1]) if piece[0]]
                segments.append((address, whole, 0, 0, 0, 0, len(own)))
                pieces += own
                address += whole + 4096 * drawn.choice((0, 0, 8))
                left -= whole << 9
        while left >= 512 * MIB:
            segments.append((address, GIB >> 10, 0, 0, 0, 0, 1))
            pieces.append((GIB >> 10, FREE_PIECE, 0, -1))
            address, left = address + (GIB >> 10), left - GIB // 2
        return Segments(
            time_ns,
            step,
            phase,
            device,
            sum(figures.values()),
            0x7F3A00000000,
            tuple(segments),
            tuple(pieces),
            categories,
            tuple(names),
        )

    def reserved(self) -> int:
        """The allocator's segments: grown once, after the first step."""
        grown = self.step > 0
        return (
            (self.peak * 103 // 100 if not grown else max(self.peak * 103 // 100, self.total * 62 // 100)) >> 21 << 21
        )

    def reading(self, time_ns: int) -> DriverReading:
        """What NVML says."""
        reserved = self.reserved()
        process = reserved + self.total * 18 // 800
        other = self.total * 5 // 800
        return DriverReading(
            time_ns,
            tuple(
                DeviceReading(
                    UUID[:-1] + str(index + 1),
                    time_ns,
                    index=index,
                    name="NVIDIA A100-SXM4-80GB",
                    total_bytes=self.total,
                    used_bytes=process + other,
                    free_bytes=self.total - process - other - 600 * MIB,
                    driver_reserved_bytes=600 * MIB,
                    process_bytes=process,
                    others=(OtherProcess(977, other, "python"),),
                    utilisation_percent=97,
                    power_milliwatts=361_000,
                    power_limit_milliwatts=400_000,
                    temperature_celsius=64,
                )
                for index in range(len(self.names))
            ),
            "550.54",
        )


class MadeUpFeed:
    """A feed whose clock stands still until `advance`."""

    replay = False

    def __init__(self, training: Optional[Training] = None, seconds: float = 130.0, hertz: float = 10.0) -> None:
        self.training = training or Training()
        self.session = Session(4242)
        self.program: Optional[MadeUpProgram] = None
        self.on_change: Optional[Callable[[], None]] = None
        self.clock_ns = BEGUN_NS
        self.hertz = hertz
        self.started = self.stopped = False
        self.requests: list[str] = []  # of the agent
        self.histories: list[Callable[[HistoryNews], None]] = []  # that were asked for
        self.session.program = "train.py --model gpt-1.6b"
        if seconds > 0:
            self.session.apply(self.training.hello(), BEGUN_NS)
            self.advance(seconds)

    def now_ns(self) -> int:
        return self.clock_ns

    def request(self, name: str) -> bool:
        self.requests.append(name)
        if name == "tensors":
            for device in self.training.names:
                self.session.apply(self.training.tensors(self.clock_ns, device), self.clock_ns)
        if name == "segments":
            for device in self.training.names:
                self.session.apply(self.training.segments(self.clock_ns, device), self.clock_ns)
        return True

    def save_history(self, told: Callable[[HistoryNews], None]) -> Optional[str]:
        self.histories.append(told)
        return None

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True

    def advance(self, seconds: float) -> None:
        """Lets time pass: frames at 10 Hz, driver readings at 1 Hz, and an event now and then."""
        end = self.clock_ns + int(seconds * SECOND)
        period = int(SECOND / self.hertz)
        while self.clock_ns + period <= end:
            self.clock_ns += period
            peak, step = self.training.peak, self.training.step
            frame = self.training.frame(self.clock_ns)
            self.session.apply(frame, self.clock_ns)
            if frame.sequence % 10 == 1:
                self.session.apply_driver(self.training.reading(self.clock_ns))
                self.session.apply_host(
                    HostReading(self.clock_ns, True, 3 * GIB, 104.0, "python", ("train.py",), "user")
                )
            if self.training.peak > peak and frame.sequence % 40 == 0:
                self._event("new_peak", frame, {"allocated_peak_bytes": self.training.peak})
            if step == 0 and frame.step == 1:
                self.session.apply(self.training.model(self.clock_ns), self.clock_ns)
                grown = {"state_bytes": 2 * self.training.parameters, "parameter_bytes": self.training.parameters}
                self._event("optimizer_state_appeared", frame, grown)
        self.clock_ns = end

    def _event(self, name: str, frame: Frame, figures: dict[str, int]) -> None:
        self.session.apply(Event(name, frame.time_ns, frame.step, frame.phase, "cuda:0", figures), frame.time_ns)

    def fail(self, asked: int = 6 * GIB) -> None:
        """An allocation fails: what is free in PyTorch is pinned by what lives in its segments."""
        training, now = self.training, self.clock_ns
        step, phase, _, _, _ = training.place(now)
        categories, reserved = training.figures(now), training.reserved()
        allocated = sum(categories.values())
        reading = training.reading(now).devices[0]
        figures = {"asked_bytes": asked, "device_total_bytes": training.total, "device_free_bytes": reading.free_bytes}
        figures.update(allocated_bytes=allocated, reserved_bytes=reserved, num_ooms=1, num_alloc_retries=1)
        idle, base = reserved - allocated, 0x7F2C00000000
        pinned = tuple(
            Pinned(base + place * 2 * GIB, 2 * GIB, GIB, 600 * MIB, 3, base + place * 2 * GIB, 400 * MIB, "activations")
            for place in range(4)
        )
        sites = (
            LiveSite("/home/user/gpt/attention.py:71 softmax\n/home/user/gpt/block.py:20 forward", 5 * GIB, 24),
            LiveSite("/home/user/gpt/block.py:33 forward\n/home/user/gpt/model.py:52 forward", 3 * GIB, 48),
        )
        failure = Failure(
            BlockSummary(0, 612, 4_310, int(0.6 * GIB), 0, idle, 0, 0, 41),
            Classification(0, allocated, phase, step, categories),
            pinned=pinned,
            sites=sites,
            site="train.py:88 train_step",
            settings="PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8",
            expandable=False,
        )
        self.session.apply(Event("oom", now, step, phase, "cuda:0", figures, failure=failure), now)

    def end(self, exception: str, text: str, status: int) -> None:
        """Lets the program die."""
        self.session.apply(Bye(self.clock_ns, exception, text), self.clock_ns)
        self.session.ended(self.clock_ns, status)


class MadeUpRecording(MadeUpFeed):
    """The same, recorded: the instant that is shown can be moved."""

    replay = True

    def __init__(self, training: Optional[Training] = None, seconds: float = 300.0) -> None:
        super().__init__(training, seconds)
        self.start_ns, self.end_ns = BEGUN_NS, self.clock_ns
        self.sought: list[int] = []

    def request(self, name: str) -> bool:
        return False

    def session_at(self, time_ns: int) -> Session:
        return self.session

    def seek(self, time_ns: int) -> None:
        self.clock_ns = max(self.start_ns, min(time_ns, self.end_ns))
        self.sought.append(self.clock_ns)
        self.session.revision += 1


class MadeUpProgram:
    """A program that `memtui run` started; it lives through `patience` interrupts."""

    def __init__(self, patience: int = 0) -> None:
        self.running = True
        self.listener: object = None
        self.pty = True
        self.patience = patience
        self.sent: list[str] = []

    def interrupt(self) -> None:
        self.sent.append("interrupt")
        if self.patience <= 0:
            self.running = False
        self.patience -= 1

    def kill(self) -> None:
        self.sent.append("kill")
        self.running = False

    def send_input(self, data: bytes) -> None:
        self.sent.append(f"input {data!r}")

    def send_reply(self, data: bytes) -> None:
        self.sent.append(f"reply {data!r}")

    def resize(self, columns: int, rows: int) -> None:
        self.sent.append(f"resize {columns}x{rows}")
