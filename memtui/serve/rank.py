"""One process with an agent: what it says is folded into a session, and how it goes on and ends is followed."""

from __future__ import annotations

import pathlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from memtui.analysis.firststep import forget_graphs
from memtui.analysis.policy import DEFAULT
from memtui.session.readings import DriverReading
from memtui.session.session import Session
from memtui.sources.agent_probe import AgentError, AgentRefused, check_greeting, find_agent
from memtui.sources.driver_shared import reading_for
from memtui.sources.environ import environment_of
from memtui.sources.host import HostSource
from memtui.sources.virtual_driver import is_read_here
from memtui.wire import codec
from memtui.wire.frames import Bye, Event, Frame, Hello, Refusal

from .guard import IMPOSSIBLE, Guard, is_graph, is_wanted
from .labels import label, rank_label, run_of, script_of
from .life import Life, life_of, outcome_of_exception, outcome_of_signal
from .stream import AgentStream

#: Events that are counted by name; others are "other".
EVENTS = (
    "oom",
    "alloc_retry",
    "new_peak",
    "optimizer_state_appeared",
    "discovery",
    "recorded",
    "record_refused",
    "agent_error",
)
#: How much is kept of each history: for the peak of the last minute, and a forecast.
_DEPTH = 512
#: An agent may send its past at once, and then so much a second: ten times what one usually does.
_PAST_BYTES, _BYTES_A_SECOND, _SLICE_BYTES = 48 << 20, 256 << 10, 256 << 10
_FIRST_PAUSE_NS, _LONGEST_PAUSE_NS = 1_000_000_000, 60_000_000_000
#: A process whose agent has gone for so long is not watched any more: it was taken out.
_UNLOADED_NS = 5_000_000_000
#: What the system says is read again after so long, when somebody asks.
_HOST_NS = 3_000_000_000
#: From this step on no forecast looks at a graph.
_GRAPH_STEPS = 4
_NS = 1_000_000_000


class Rank:
    """Everything happens on one thread; nothing waits for the process."""

    def __init__(
        self, pid: int, path: pathlib.Path, stream: AgentStream, life: Life, above: Sequence[int] = ()
    ) -> None:
        """`pid` is the process as it is seen from here, `above` those that have started it."""
        self.pid, self.life, self.above = pid, life, above
        self.session = Session(pid, depth=_DEPTH)
        self.events: Counter[tuple[Optional[str], str]] = Counter()  # by device and name
        self.lost_frames = 0
        self.outcome = ""  # once it has ended
        self.ended_ns: Optional[int] = None
        self.vanished_ns: Optional[int] = None  # when its process was found to hold nothing any more
        self.launcher = False  # it has started ranks, and is none
        self.unloaded = False
        self.trouble = ""  # why the agent was hung up on, until it is counted
        self._path = path
        self._stream: Optional[AgentStream] = stream
        self._guard = Guard()
        self._graph: Optional[bytes] = None
        self._greeted = False
        self._allowance, self._filled_ns = _PAST_BYTES, time.monotonic_ns()
        self._parted_ns = self._again_ns = 0
        self._pause_ns = _FIRST_PAUSE_NS
        self._behind = False  # more was there than was read at once, and the newest is still to come
        self._lost_now = 0  # of this connection
        self._host = HostSource(pid)
        self.session.apply_host(self._host.read())
        self._environment = environment_of(pid)
        self._name()

    def _name(self) -> None:
        hello, environment = self.session.hello, self._environment
        argv = () if hello is None else hello.argv
        if hello is None and self.session.host is not None:
            argv = self.session.host.cmdline[1:]
        told = None if hello is None else hello.rank
        self.run = run_of(environment, argv)
        self.rank = rank_label(environment) if told is None else str(told)
        self.script = script_of(argv)

    @property
    def over(self) -> bool:
        """Whether its process has ended, or is about to."""
        return self.ended_ns is not None

    @property
    def state(self) -> str:
        """Live, silent, stopped or ended."""
        if self.over:
            return "ended"
        if self.life.stopped:
            return "stopped"
        frame = self.session.frame
        if self._behind or frame is None:
            return "live" if self._behind else "silent"
        return "silent" if time.monotonic_ns() - frame.time_ns > DEFAULT.silent_after_ns else "live"

    def read(self, now_ns: int) -> bool:
        """Takes in what the agent has sent; True where more is waiting that may be read at once."""
        if self.over and self._stream is None:
            if self.vanished_ns is None:
                self._look(now_ns)
            return False
        if self._stream is None:
            self._connect(now_ns)
        more = self._take_all(now_ns)
        if not more:
            self._look(now_ns)
        return more

    def _connect(self, now_ns: int) -> None:
        if now_ns < self._again_ns:
            return
        self._again_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, _LONGEST_PAUSE_NS)
        path = self._path if self._path.exists() else find_agent(self.pid)
        if path is None:
            return
        try:
            self._stream = AgentStream(path)
        except (AgentError, OSError):
            return
        if self._stream.pid != self.pid:
            self._hang_up()
            return
        self._path, self._greeted, self._lost_now = path, False, 0

    def _take_all(self, now_ns: int) -> bool:
        if self._stream is None:
            return False
        refill = (now_ns - self._filled_ns) * _BYTES_A_SECOND // _NS
        self._allowance, self._filled_ns = min(self._allowance + refill, _PAST_BYTES), now_ns
        most = min(self._allowance, _SLICE_BYTES)
        if most <= 0:
            self._behind = False
            return False
        try:
            bodies, size, gone = self._stream.read(most)
            self._allowance -= size
            for body in bodies:
                self._take(body, now_ns)
            self._run_through_graph(now_ns)
        except AgentRefused:
            return self.refuse("agent_version")
        except (AgentError, codec.CodecError, *IMPOSSIBLE):
            return self.refuse("agent_garbage")
        if gone:
            self._hang_up()
        self._behind = size >= most and not gone
        return self._behind

    def refuse(self, reason: str) -> bool:
        """Hangs up on an agent that cannot be one, for a while; False."""
        self._hang_up()
        self.trouble, self._again_ns = reason, time.monotonic_ns() + _LONGEST_PAUSE_NS
        return False

    def _hang_up(self) -> None:
        self._behind = False
        if self._stream is not None:
            self._stream.close()
            self._stream, self._parted_ns = None, time.monotonic_ns()
        self.lost_frames += self._lost_now
        self._lost_now = 0

    def _take(self, body: bytes, now_ns: int) -> None:
        if self._greeted and not is_wanted(body):
            return
        if self._greeted and is_graph(body):
            self._graph = body
            return
        message = self._guard.decode(body)
        if not self._greeted or isinstance(message, Refusal):
            check_greeting(message)
        self._greeted, self._pause_ns = True, _FIRST_PAUSE_NS
        if isinstance(message, Event):
            self._count(message, now_ns)
            return
        if isinstance(message, Hello):
            message = replace(message, pid=self.pid)
        self.session.apply(message, now_ns)
        if isinstance(message, Hello):
            self.session.set_connection("connected")
            self._name()
        elif isinstance(message, Frame):
            self._lost_now = max(self._lost_now, message.lost_frames)
        elif isinstance(message, Bye):
            self._end(outcome_of_exception(message.exception))

    def _count(self, event: Event, now_ns: int) -> None:
        known = event.name in EVENTS
        # What has no name of ours is told apart by its time alone: agents send them again after a reconnection.
        if self.session.apply(event if known else replace(event, name="other", figures={}), now_ns):
            self.events[event.device, event.name if known else "other"] += 1

    def _run_through_graph(self, now_ns: int) -> None:
        frame = self.session.frame
        if frame is not None and frame.step >= _GRAPH_STEPS:
            self._graph = None
            if self.session.graph is not None:
                self.session.graph = None
                forget_graphs()
        elif self._graph is not None and frame is not None:
            body, self._graph = self._graph, None
            self.session.apply(codec.decode(body), now_ns)

    def _look(self, now_ns: int) -> None:
        """How the process is."""
        found = life_of(self.pid)
        gone = found is None or found.started != self.life.started
        if found is not None and not gone:
            self.life = found
        if (gone or self.life.over) and self.vanished_ns is None:
            self.vanished_ns = now_ns
        if self.over:
            return
        if gone or self.life.over:
            self._end(outcome_of_signal(0 if gone else self.life.signal))
        elif self._stream is None and not self.life.stopped and now_ns - self._parted_ns > _UNLOADED_NS:
            failed = any(name == "agent_error" for _, name in self.events)
            self.unloaded = not failed and find_agent(self.pid) is None

    def _end(self, outcome: str) -> None:
        if not self.over:
            self.outcome, self.ended_ns = outcome, time.monotonic_ns()

    @property
    def lost(self) -> int:
        """Frames that the agent could not send here in time."""
        return self.lost_frames + self._lost_now

    def read_host(self, now_ns: int) -> None:
        """Its resident set, and the memory of the machine that it can have, where they are old; some 0.3 ms."""
        host = self.session.host
        if not self.over and (host is None or now_ns - host.time_ns > _HOST_NS):
            self.session.apply_host(self._host.read())

    @property
    def is_read_here(self) -> bool:
        """Whether the driver that this process reads is that of the rank's GPUs."""
        return is_read_here(self._environment)

    def take_driver(self, reading: DriverReading) -> None:
        """What the driver says, read for nobody."""
        hello = self.session.hello
        if hello is not None and not self.over and self.is_read_here:
            uuids = tuple(device.uuid for device in hello.devices if device.uuid)
            self.session.apply_driver(reading_for(reading, self.pid, uuids))

    def close(self) -> None:
        """Hangs up; the process goes on."""
        self._hang_up()

    def info(self, device: str) -> dict[str, str]:
        """Who it is, in words."""
        hello, known, reading = self.session.hello, self.session.device(device), self.session.reading(device)
        name = reading.name if reading is not None and reading.name else "" if known is None else known.name
        told = None if hello is None else hello.local_rank
        local = self._environment.get("LOCAL_RANK", "") if told is None else str(told)
        world = "" if hello is None or hello.world_size is None else hello.world_size
        return {
            "local_rank": label(local),
            "world_size": str(world),
            "host": "" if hello is None else label(hello.hostname),
            "device_name": label(name),
            "script": self.script,
            "torch": "" if hello is None else label(hello.torch),
            "python": "" if hello is None else label(hello.python),
            "agent": "" if hello is None else label(hello.agent),
        }
