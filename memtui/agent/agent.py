"""The agent: one daemon thread that turns what was observed into frames and serves them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Optional

from ..wire import codec
from ..wire.frames import CAME_LATE, PROTOCOL, Bye, DeviceFrame, Event, Frame, Hello, Request, made
from . import VERSION
from .activity import Activity
from .answers import REQUESTS, messages
from .callbacks import at_exit, at_out_of_memory, in_children
from .failures import Failures
from .framing import Framing
from .history import History
from .history_sender import HistorySender
from .kept import KeptFile
from .membership import Membership
from .observer import Observer
from .process import text_of, working_folder
from .readings import Reading
from .recorded import let_others_run, peak_bytes, recorded_steps, with_forward, without_sites
from .recording import Recording
from .retries import Retries
from .sample import Sample
from .server import Server

if TYPE_CHECKING:
    from .dormant import Sentry
    from .exact import ExactPeaks

PERIOD_NS = 100_000_000
_REFRESH_NS = 1_000_000_000
#: A peak that is this much above the last one told is news.
_NEWS = 1.005
_GOODBYE_SECONDS = 0.3
#: Of a thread's own making: blocked ones would kill without a word.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
#: Of recorded steps and graphs for viewers that come later, all together; the size of one message at most.
_RECORDED_BYTES = codec.MAX_MESSAGE_BYTES


class Agent:
    """One process's agent. Dormant until `start`; `install` puts the observers in place."""

    def __init__(self, torch: Any, exact: Optional[ExactPeaks] = None) -> None:
        self.torch = torch
        self.observer = Observer(torch, self.start, exact)
        self.late = False  # it came into a program that ran already
        self._sentry: Optional[Sentry] = None
        self._reset()

    def _reset(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self._starting = threading.Lock()
        self._stop = threading.Event()
        self._server: Optional[Server] = None
        self.heard = threading.Event()  # it is known whether it can be talked to
        self._history = History()
        self._events: list[bytes] = []
        self._recorded: list[bytes] = []
        self._sequence, self._latest = 0, b""  # of frames, and the newest one
        self._started_ns = time.monotonic_ns()
        self._model_sent: Any = None
        self._membership = Membership()
        self._told: dict[str, int] = {}  # the highest peak, by device
        self._retries = Retries()
        self._framing = Framing()
        self._sender = HistorySender()
        self._activity = Activity()
        self._bye: Optional[Bye] = None
        self._failures, self._kept_file = Failures(self.observer), KeptFile()

    def install(self, sentry: Sentry) -> None:
        """Takes over from the sentry; no thread and no socket before `start`."""
        self.observer.install(sentry)
        self._sentry = sentry
        in_children(self._forked)
        at_exit(self._exiting)

    def initialized(self, name: str) -> None:
        """A backend is being initialised, or has been: "cuda" or "xpu"."""
        try:
            if name == "cuda":
                with contextlib.suppress(RuntimeError):  # cudaMallocAsync tells nobody
                    at_out_of_memory(self.torch, self.out_of_memory)
            self.start()
        except Exception as error:  # noqa: BLE001 - called by torch while the program initialises its device
            self.observer.error = f"{type(error).__name__}: {error}"

    def start(self) -> None:
        """Starts the thread and its socket, or wakes them; from any thread, at any time."""
        if self._thread is not None:
            if self.observer.error is not None:
                self._wake()
            return
        if self._stop.is_set() or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="memtui-agent", daemon=True)
                thread.start()
                self._thread = thread
            self.observer.awake = True
        except RuntimeError:
            return  # the interpreter is shutting down, or the system has no threads left: nothing to watch with
        finally:
            self._starting.release()

    def step(self) -> None:
        """The program says that a step has ended; from its training thread."""
        self.observer.step()
        self.start()

    def out_of_memory(self, index: int, asked: int, device_total: int, device_free: int) -> None:
        """Notes an allocation that torch has given up; called by torch, where nothing may raise."""
        event = self._failures.note(index, asked, device_total, device_free, self._activity)
        self._retries.failed(event)
        self.observer.events.append(event)
        self._failures.wait(self._thread, self._wake)

    def _wake(self) -> None:
        self.observer.recorder.history.hurry()
        if self._server is not None:
            self._server.wake()

    def stop(self) -> None:
        """Unloads: the observers go, the socket goes, the thread ends."""
        self.observer.unload()
        self._stop.set()
        self._wake()

    @property
    def watches(self) -> bool:
        """Whether it has neither been unloaded nor failed."""
        return not (self._stop.is_set() or self.observer.dead)

    @property
    def running(self) -> bool:
        """Whether its thread has begun and not come to its end."""
        return self._thread is not None

    @property
    def listens_at(self) -> Optional[pathlib.Path]:
        """Its socket, once that is there."""
        return None if self._server is None else self._server.path

    @property
    def trouble(self) -> str:
        """Why it cannot be talked to."""
        return self.observer.error or ("" if self._server is None else self._server.trouble)

    # -- the thread ---------------------------------------------------------------

    def _run(self) -> None:
        # The program's signals are for its own threads: one that has blocked a signal to wait for it would miss it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
        try:
            self._server = Server(self._greeting, self._requested)
            self._loop(self._server)
        except Exception as error:  # noqa: BLE001 - the one broad catch: an agent that fails goes, the training stays
            self.observer.unload()
            self.observer.error = f"{type(error).__name__}: {error}"
            if os.environ.get("MEMTUI_DEBUG"):
                import traceback

                traceback.print_exc()
        finally:
            self.heard.set()
            if self._server is not None:
                self._server.close()
            if self._bye is None and self._sentry is not None:
                self._sentry.leave()
                self._stop.set()
                # Python notes a thread object's end in Python code. Were this one collected with the agent, that would
                # run on the program's thread, where the exception of a signal handler gets lost in it.
                self._thread = None

    def _loop(self, server: Server) -> None:
        due = time.monotonic_ns()
        refreshed = 0
        while not self._stop.is_set():
            now = time.monotonic_ns()
            if now < due and not self._failures.urgent:
                server.poll(due - now)
                continue
            since = now - refreshed
            if since > _REFRESH_NS or (since > PERIOD_NS and not self.observer.readings.settled):
                refreshed = now
                self.observer.readings.refresh(now, at_once=True)
                server.check(now)
                if not self.heard.is_set():
                    self.heard.set()
                self._announce(server)
            self._tick(server, now, max(0, now - due))
            if self.observer.rehearsal.wanted:
                self.observer.rehearsal.attend(server.viewer_pids, now, self.observer.events)
            server.flush()
            if self._failures.urgent:
                self._failures.told()
            if now < due:
                continue
            self.observer.rest(PERIOD_NS)
            due += PERIOD_NS
            if due < now:
                due = now + PERIOD_NS
                server.poll(0)
        if self._bye is not None:
            self._tick(server, time.monotonic_ns(), 0)  # the last figures, and what happened since the last tick
            self._sender.end(server, self.observer.recorder.history)
            server.broadcast(codec.encode(self._bye), frame=False)
            self._kept_file.end(codec.encode(self._bye))
            server.flush()
            self._drain(server)

    def _drain(self, server: Server) -> None:
        begun = time.monotonic_ns()
        end, latest = begun + int(_GOODBYE_SECONDS * 5e8), begun + self.observer.rehearsal.patience_ns()
        while time.monotonic_ns() < (end if server.waiting else 0 if server.viewers else latest):
            server.poll(20_000_000)

    def _tick(self, server: Server, now: int, late_ns: int) -> None:
        observer, phases = self.observer, self.observer.phases
        looks = observer.looks.between(phases, now)
        observer.recorder.expire(now)
        if observer.samples:
            begun = time.thread_time_ns()
            self._tell_samples(server)
            observer.readings.spend(time.thread_time_ns() - begun)
        if observer.census.taken:
            self._list(server, now)
        if looks:
            self._framing.take_in(looks)
        devices = []
        # From here to the counters Python's lock is not given up, but for long work: they are of this phase.
        phase, phase_since_ns = observer.place(now)
        shown, shown_since_ns = self._activity.place(phase, phase_since_ns, now, observer.thread)
        since = observer.readings.phase_since(phases, now, self._activity.name)
        for counters in observer.readings.devices:
            reading = observer.readings.read(
                counters, since, working=phase not in ("startup", "between"), step=phases.step
            )
            now = time.monotonic_ns()
            allocated = reading.figures.get("allocated_bytes")
            matching = observer.looks.nearest(counters.device, phase, allocated, looks.get(counters.device))
            highest = observer.readings.highest(counters.device)
            devices.append(self._framing.device(reading, matching, now, highest))
        self._emit(
            server,
            {
                "time_ns": now,
                "late_ns": late_ns,
                "step": phases.step,
                "phase": shown,
                "phase_since_ns": shown_since_ns,
                "devices": tuple(devices),
                "step_since_ns": phases.step_since_ns,
                "last_step_ns": phases.last_step_ns,
            },
        )
        self._tell(server)

    def _list(self, server: Server, now: int) -> None:
        """Tells what was asked for and noted on the training's thread."""
        begun, census = time.thread_time_ns(), self.observer.census
        while census.taken:
            for message in messages(census.taken.popleft()):
                server.broadcast(codec.encode(message), frame=False)
        census.spend(time.thread_time_ns() - begun, now)

    def _tell_samples(self, server: Server) -> None:
        """Frames of what was read at boundaries."""
        waiting = self.observer.samples
        samples = [waiting.popleft() for _ in range(len(waiting))]
        newest = {device: sample for sample in samples for device in sample.looks}
        for sample in samples:
            self._framing.take_in(sample.looks)
            whole = self._framing.counts_whole(sample)
            self._emit(
                server,
                {
                    "time_ns": sample.time_ns,
                    "late_ns": 0,
                    "step": sample.step,
                    "phase": sample.phase,
                    "phase_since_ns": sample.phase_since_ns,
                    "devices": tuple(
                        self._at_boundary(item, sample, counts=whole or newest.get(item.device) is sample)
                        for item in sample.readings
                    ),
                    "step_since_ns": sample.step_since_ns,
                    "last_step_ns": sample.last_step_ns,
                    "boundary": sample.boundary,
                },
            )

    def _at_boundary(self, reading: Reading, sample: Sample, *, counts: bool) -> DeviceFrame:
        # Where this boundary was not looked at, what was found at the last one of its kind is nearest to it.
        look = sample.looks.get(reading.device) or self.observer.looks.latest(reading.device, sample.boundary)
        return self._framing.device(reading, look, sample.time_ns, counts=counts)

    def _emit(self, server: Server, figures: dict[str, Any]) -> None:
        self._sequence += 1
        figures["sequence"] = self._sequence
        figures["agent_cpu_ns"] = time.thread_time_ns()
        figures["lost_frames"] = 0  # what each viewer lost is put in for it
        frame = made(Frame, figures)
        message = self._latest = codec.encode_frame(frame)
        height = 0
        for device in frame.devices:
            held = device.allocated_bytes or device.rss_bytes or 0
            height = max(height, held, device.highest_step_peak_bytes or 0)
        self._history.append(frame.time_ns, height, message)
        server.broadcast(message, frame=True)
        self._notice(frame)

    def _notice(self, frame: Frame) -> None:
        for device in frame.devices:
            peak = device.allocated_peak_bytes or 0
            told = self._told.get(device.device, 0)
            reached = self._reached(frame, device) if peak > told * _NEWS else None
            if reached is not None:
                phase, step = reached
                held = {"allocated_bytes": device.allocated_bytes or 0, "reserved_bytes": device.reserved_bytes or 0}
                figures = {"allocated_peak_bytes": peak, **held}
                self.observer.events.append(Event("new_peak", frame.time_ns, step, phase, device.device, figures))
                told = peak
            self.observer.events.extend(self._retries.events(frame, device))
            self._told[device.device] = min(told, peak)

    def _reached(self, frame: Frame, device: DeviceFrame) -> Optional[tuple[str, int]]:
        """(phase, "" where that is not known, and steps completed) as the counted peak was reached; None as long as
        neither is known.
        """
        if device.last_step_peak_bytes == device.allocated_peak_bytes:
            return device.last_step_peak_phase or "", (device.last_step_peak_step or frame.step) - 1
        if device.highest_step_peak_bytes == device.allocated_peak_bytes:
            return device.highest_step_peak_phase or "", (device.highest_step_peak_step or frame.step) - 1
        if self._bye is not None and device.step_peak_bytes == device.allocated_peak_bytes:
            return self.observer.readings.peak_phase(device.device) or "", frame.step  # this step has no end any more
        return None

    def _tell(self, server: Server) -> None:
        observer = self.observer
        while observer.recorder.done:
            self._tell_recorded(server, observer.recorder.done.popleft())
        self._sender.go_on(server, observer.recorder.history)
        graph = observer.graph.done and observer.graph.collect()
        if graph is not None:
            forward, observer.recorder.forward = observer.recorder.forward, None
            graph = with_forward(graph, forward, self._torch_folder(), let_others_run)
            self._keep(server, codec.encode(graph))
        if observer.error is not None:
            now = time.monotonic_ns()
            observer.events.append(Event("agent_error", now, observer.phases.step, "", text=observer.error))
            observer.error = None
        observer.events.extend(server.left_out(observer.phases.step))
        model = observer.inventory.model
        if model is not None and model is not self._model_sent:
            self._model_sent = model
            server.broadcast(codec.encode(model), frame=False)
        failed = []
        while observer.events:
            event = observer.events.popleft()
            message = codec.encode(event)
            self._events.append(message)
            del self._events[:-512]
            server.broadcast(message, frame=False)
            failed += [message] if event.failure is not None else []
        if failed and not server.viewers:
            self._kept_file.keep(lambda: self._greeting(True), [*failed, self._latest])

    def _tell_recorded(self, server: Server, recording: Recording) -> None:
        """Makes the messages of a recorded step, and keeps them for viewers that come later."""
        events = self.observer.events
        try:
            steps = recorded_steps(recording, self._torch_folder(), let_others_run)
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # a history like no known torch's
            text = f"this torch's history could not be read: {type(error).__name__}: {error}"
            events.append(Event("record_refused", time.monotonic_ns(), recording.step, "between", text=text))
            return
        for step in steps:
            message = codec.encode(step)
            if len(message) > _RECORDED_BYTES:
                message = codec.encode(without_sites(step))
            if len(message) > _RECORDED_BYTES:
                text = f"{len(step.event_us):,} events, {len(step.blocks):,} blocks: too many to be sent"
                events.append(
                    Event("record_refused", time.monotonic_ns(), step.step, "between", step.device, text=text)
                )
                continue
            self._keep(server, message)
            figures = {"events": len(step.event_us), "cost_ns": step.cost_ns, "peak_bytes": peak_bytes(step)}
            events.append(Event("recorded", time.monotonic_ns(), step.step, "between", step.device, figures))

    def _torch_folder(self) -> str:
        return os.path.dirname(os.path.abspath(str(self.torch.__file__)))

    def _keep(self, server: Server, message: bytes) -> None:
        self._recorded.append(message)
        while sum(map(len, self._recorded)) > _RECORDED_BYTES:
            del self._recorded[0]
        server.broadcast(message, frame=False)

    # -- viewers ------------------------------------------------------------------

    def _hello(self) -> Hello:
        now = time.monotonic_ns()
        return Hello(
            protocol=PROTOCOL,
            agent=VERSION,
            pid=os.getpid(),
            python=sys.version.split()[0],
            torch=str(self.torch.__version__),
            argv=tuple(str(argument)[:1000] for argument in getattr(sys, "argv", ())[:50]),
            cwd=working_folder(),
            hostname=socket.gethostname(),
            time_ns=now,
            wall_offset_ns=time.time_ns() - now,
            started_ns=self._started_ns,
            devices=tuple(counters.info for counters in self.observer.readings.devices),
            **self._membership.numbers,
            notices=self._notices(),
            executable=str(sys.executable or "")[:4096],
        )

    def _notices(self) -> tuple[str, ...]:
        late = CAME_LATE if self.late else ""
        notices = list(filter(None, [late, self.observer.readings.exact_notice()]))
        if not self.observer.inventory.alone:
            notices.append("several threads run backward passes: gradients may not be read, and are not told apart")
        for counters in self.observer.readings.devices:
            if counters.device == "host" and counters.info.counters == "rss":
                notices.append("this allocator keeps no glibc heap statistics: host memory by resident set alone")
            if counters.device.startswith("cuda") and not counters.native:
                notices.append(
                    "cudaMallocAsync tells of no blocks: no categories, no fragmentation, no reasons for out of memory"
                )
        return tuple(notices)

    def _announce(self, server: Server) -> None:
        if self._membership.news(counters.device for counters in self.observer.readings.devices):
            server.broadcast(codec.encode(self._hello()), frame=False)

    def _greeting(self, history: bool) -> list[bytes]:
        messages = [codec.encode(self._hello())]
        if self._model_sent is not None:
            messages.append(codec.encode(self._model_sent))
        messages.extend(self._events)
        messages.extend(self._recorded)
        if history:
            messages.extend(self._history.messages())
        return messages

    def _requested(self, request: Request, viewer: Any) -> None:
        if request.name == "unload":
            self.stop()
        elif request.name == "record":
            self.observer.record()
        elif request.name == "history" and self._server is not None:
            self._sender.ask(self._server, self.observer.recorder.history, request, viewer)
        elif request.name in REQUESTS:
            self.observer.census.ask(time.monotonic_ns(), request.name)

    # -- the process's own turns ------------------------------------------------

    def _forked(self) -> None:
        """In a forked child: nothing of the parent's is used, and the child begins dormant."""
        server, self._server = self._server, None
        try:
            if server is not None:
                server.close(unlink=False)
        finally:
            self._reset()
            self.observer.forked()

    def _exiting(self) -> None:
        """At the interpreter's end: the last figures and the exception, if the program died of one."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        error = getattr(sys, "last_value", None)
        self._bye = Bye(
            time_ns=time.monotonic_ns(),
            exception=type(error).__name__ if error is not None else None,
            text=text_of(error) if error is not None else "",
        )
        self._stop.set()
        self._wake()
        # It tells its viewers and removes its socket, in much less.
        thread.join(_GOODBYE_SECONDS + self._sender.patience_s + self.observer.rehearsal.patience_ns() / 1e9)
