"""Made-up ranks as a feed: as many trainings as wanted on one clock, each in its own way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Optional

from memtui.session.members import Member, newest
from memtui.session.readings import DriverReading, HostReading, OtherProcess
from memtui.session.session import End, Session
from memtui.wire.frames import Device, Hello, Model

from .made_up import BEGUN_NS, GIB, MIB, SECOND, WALL_NS, Training

#: Ranks begin so far from each other in a step.
_APART_NS = 30_000_000


def uuid_of(device: int) -> str:
    """Of the GPU with this number."""
    return f"GPU-5f2c1d9e-0000-4000-8000-{device:012d}"


class RankTraining(Training):
    """One rank's; `batch` times the activations, on GPU `gpu`, with parameters of a share of the model."""

    def __init__(
        self,
        rank: int,
        world: int,
        *,
        gpu: Optional[int] = None,
        batch: float = 1.0,
        part: float = 1.0,
        step_s: float = 2.0,
        total: int = 80 * GIB,
    ) -> None:
        super().__init__(step_s=step_s, total=total)
        self.rank, self.world, self.gpu = rank, world, rank if gpu is None else gpu
        self.batch = batch
        self.parameters = int(self.parameters * part)
        self.peak_activations = int(self.peak_activations * batch)
        self.names = (f"cuda:{self.gpu}",)
        self.stray = 0  # bytes of a context on GPU 0

    def hello(self) -> Hello:
        device = Device(
            self.names[0],
            "cuda",
            "NVIDIA A100-SXM4-80GB",
            "caching allocator",
            uuid=uuid_of(self.gpu),
            total_bytes=self.total,
        )
        return replace(
            super().hello(),
            pid=4242 + self.rank,
            devices=(device,),
            rank=self.rank,
            local_rank=self.rank,
            world_size=self.world,
            argv=("train.py", "--model", "gpt-1.6b"),
        )

    def model(self, time_ns: int) -> Model:
        return replace(super().model(time_ns), roots=("DistributedDataParallel",))

    def figures(self, time_ns: int) -> dict[str, int]:
        found = super().figures(time_ns)
        return {**found, "inputs": int(12 * MIB * self.batch), "communication": self.parameters}


class MadeUpRanks:
    """A feed of ranks whose clock stands still until `advance`."""

    replay = False
    program: Any = None

    def __init__(self, trainings: list[RankTraining], seconds: float = 40.0, hertz: float = 10.0) -> None:
        self.trainings = dict(enumerate(trainings))
        self.sessions = {index: Session(4242 + training.rank) for index, training in self.trainings.items()}
        self.members = [
            Member(4242 + training.rank, lambda session=self.sessions[index]: session, rank=training.rank)
            for index, training in self.trainings.items()
        ]
        self.label = f"torchrun --nproc-per-node {len(trainings)} train.py --model gpt-1.6b"
        self.driver: Optional[DriverReading] = None
        self.on_change: Optional[Callable[[], None]] = None
        self.clock_ns = BEGUN_NS
        self.hertz = hertz
        self.several = True
        self.held: set[int] = set()  # these say nothing any more
        self._chosen = self.members[0]
        for index, training in self.trainings.items():
            self.sessions[index].apply(training.hello(), BEGUN_NS)
        self.advance(seconds)

    @property
    def session(self) -> Session:
        return self._chosen.session

    def choose(self, member: Member) -> None:
        self._chosen = member

    def now_ns(self) -> int:
        return self.clock_ns

    def request(self, name: str) -> bool:
        return True

    def save_history(self, told: Any) -> Optional[str]:
        return "there is no agent to ask"

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        end = self.clock_ns + int(seconds * SECOND)
        period = int(SECOND / self.hertz)
        while self.clock_ns + period <= end:
            self.clock_ns += period
            for index, training in self.trainings.items():
                session = self.sessions[index]
                if index in self.held or session.end is not None:
                    continue
                session.apply(training.frame(self.clock_ns), self.clock_ns)
                if session.model is None and self.clock_ns - BEGUN_NS > SECOND:
                    session.apply(training.model(self.clock_ns), self.clock_ns)
            if (self.clock_ns - BEGUN_NS) % SECOND < period:
                self.read_driver()
        self.clock_ns = end

    def read_driver(self) -> None:
        """The driver's figures for everybody."""
        on_device: dict[int, dict[int, int]] = {}
        for index, training in self.trainings.items():
            if self.sessions[index].end is None:
                held = training.reserved() + training.total * 18 // 800
                on_device.setdefault(training.gpu, {})[4242 + training.rank] = held
                if training.stray:
                    on_device.setdefault(0, {})[4242 + training.rank] = training.stray
        readings = []
        for index, training in self.trainings.items():
            (device,) = training.reading(self.clock_ns).devices[:1]
            processes = on_device.get(training.gpu, {})
            used = sum(processes.values())
            device = replace(
                device,
                uuid=uuid_of(training.gpu),
                index=training.gpu,
                used_bytes=used,
                free_bytes=training.total - used - 600 * MIB,
            )
            others = tuple(OtherProcess(pid, held, "python") for pid, held in sorted(processes.items()))
            readings.append(replace(device, process_bytes=None, others=others))
            own = 4242 + training.rank
            if self.sessions[index].end is None:
                mine = replace(
                    device, process_bytes=processes.get(own), others=tuple(each for each in others if each.pid != own)
                )
                self.sessions[index].apply_driver(DriverReading(self.clock_ns, (mine,), "550.54"))
        unique = {reading.uuid: reading for reading in readings}
        self.driver = DriverReading(self.clock_ns, tuple(unique.values()), "550.54")

    def stop_rank(self, index: int) -> None:
        """By a signal."""
        self.held.add(index)
        self.sessions[index].apply_host(HostReading(self.clock_ns, True, 1 << 30, stopped=True))

    def end_rank(self, index: int, exception: Optional[str] = None, text: str = "") -> None:
        """It is gone; without an exception, without a word."""
        self.sessions[index].end = End(self.clock_ns, exception=exception, text=text, silent=exception is None)

    def come_back(self, index: int) -> None:
        """Another life of a rank that has ended."""
        old = self.trainings[index]
        new = RankTraining(old.rank, old.world, step_s=old.step_ns / SECOND)
        place = max(self.trainings) + 1
        session = self.sessions[place] = Session(4242 + old.rank)
        self.trainings[place] = new
        session.apply(replace(new.hello(), pid=5242 + old.rank, started_ns=self.clock_ns, restarts=1), self.clock_ns)
        self.members.append(Member(5242 + old.rank, lambda: session, rank=old.rank, life=2))

    @property
    def current(self) -> list[Member]:
        return newest(self.members)


def ranks(count: int, seconds: float = 40.0, **options: Any) -> MadeUpRanks:
    """So many, rank 5 (or the last) with larger batches."""
    odd = min(5, count - 1)
    each = [RankTraining(rank, count, batch=1.6 if rank == odd else 1.0, **options) for rank in range(count)]
    return MadeUpRanks(each, seconds)


__all__ = ["GIB", "WALL_NS", "MadeUpRanks", "RankTraining", "ranks", "uuid_of"]
