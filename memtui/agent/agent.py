"""The agent: one daemon thread that turns what was observed into frames and serves them."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Optional

from ..wire import codec
from ..wire.frames import PROTOCOL, BlockSummary, Bye, Classification, DeviceFrame, Event, Frame, Hello
from . import VERSION
from .classify import aged
from .history import History
from .looks import Look
from .observer import Observer, Sample
from .readings import Reading
from .server import Server

if TYPE_CHECKING:
    from .dormant import Sentry

PERIOD_NS = 100_000_000
_REFRESH_NS = 1_000_000_000
#: A peak that is this much above the last one told is news.
_NEWS = 1.005
_GOODBYE_SECONDS = 0.3


class Agent:
    """One process's agent. Dormant until `start`; `install` puts the observers in place."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.observer = Observer(torch, self.start)
        self._reset()

    def _reset(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self._starting = threading.Lock()
        self._stop = threading.Event()
        self._server: Optional[Server] = None
        self._history = History()
        self._events: list[bytes] = []
        self._sequence = 0
        self._started_ns = time.monotonic_ns()
        self._model_sent: Any = None
        self._devices_sent: tuple[str, ...] = ()
        self._told: dict[str, tuple[int, int, int]] = {}  # device -> peak, retries, ooms
        self._latest: dict[str, Look] = {}
        self._step_told = 0
        self._bye: Optional[Bye] = None

    def install(self, sentry: Sentry) -> None:
        """Takes over from the sentry; no thread and no socket before `start`."""
        self.observer.install(sentry)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_weak(self._forked))
        atexit.register(_weak(self._exiting))

    def initialized(self, name: str) -> None:
        """A backend is being initialised, or has been: "cuda" or "xpu"."""
        try:
            if name == "cuda":
                self.torch._C._cuda_attach_out_of_memory_observer(_oom_observer(self))
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
        observer = self.observer
        device = f"cuda:{index}"
        figures = {"asked_bytes": asked, "device_total_bytes": device_total, "device_free_bytes": device_free}
        for counters in observer.readings.devices:
            if counters.device == device:
                read = counters.read()
                figures.update({name: size for name, size in read.items() if size is not None})
        phases = observer.phases
        observer.events.append(Event("oom", time.monotonic_ns(), phases.step, phases.phase, device, figures))
        self._wake()

    def _wake(self) -> None:
        if self._server is not None:
            self._server.wake()

    def stop(self) -> None:
        """Unloads: the observers go, the socket goes, the thread ends."""
        self.observer.unload()
        self._stop.set()
        self._wake()

    # -- the thread ---------------------------------------------------------------

    def _run(self) -> None:
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
            if self._server is not None:
                self._server.close()

    def _loop(self, server: Server) -> None:
        due = time.monotonic_ns()
        refreshed = 0
        while not self._stop.is_set():
            now = time.monotonic_ns()
            if now < due:
                server.poll(due - now)
                continue
            if now - refreshed > (_REFRESH_NS if self._devices_sent else PERIOD_NS):
                refreshed = now
                self.observer.readings.refresh(now, at_once=True)
                server.check(now)
                self._announce(server)
            self._tick(server, now, now - due)
            due += PERIOD_NS
            if due < now:
                due = now + PERIOD_NS
            server.poll(0)
        if self._bye is not None:
            self._tick(server, time.monotonic_ns(), 0)  # the last figures, and what happened since the last tick
            server.broadcast(codec.encode(self._bye), frame=False)
            self._drain(server)

    def _drain(self, server: Server) -> None:
        end = time.monotonic_ns() + int(_GOODBYE_SECONDS * 5e8)
        while server.waiting and time.monotonic_ns() < end:
            server.poll(20_000_000)

    def _tick(self, server: Server, now: int, late_ns: int) -> None:
        observer = self.observer
        begun = time.thread_time_ns() if observer.samples else 0
        while observer.samples:
            sample = observer.samples.popleft()
            self._latest.update(sample.looks)
            self._emit(
                server,
                Frame(
                    sequence=self._next(),
                    time_ns=sample.time_ns,
                    late_ns=0,
                    step=sample.step,
                    phase=sample.phase,
                    phase_since_ns=sample.phase_since_ns,
                    devices=tuple(self._at_boundary(item, sample) for item in sample.readings),
                    step_since_ns=sample.step_since_ns,
                    last_step_ns=sample.last_step_ns,
                    boundary=sample.boundary,
                    agent_cpu_ns=time.thread_time_ns(),
                ),
            )
        if begun:
            observer.readings.spend(time.thread_time_ns() - begun)
        phases = observer.phases
        phase, phase_since_ns = observer.place()
        looks = observer.looks.between(phases, now)
        self._latest.update(looks)
        devices = []
        since = observer.readings.phase_since(phases, now)
        for counters in observer.readings.devices:
            reading = observer.readings.read(counters, since, working=phase not in ("startup", "between"))
            now = time.monotonic_ns()
            allocated = reading.figures.get("allocated_bytes")
            matching = observer.looks.nearest(counters.device, phase, allocated, looks.get(counters.device))
            devices.append(self._device_frame(reading, {counters.device: matching} if matching else {}, now))
        self._emit(
            server,
            Frame(
                sequence=self._next(),
                time_ns=now,
                late_ns=late_ns,
                step=phases.step,
                phase=phase,
                phase_since_ns=phase_since_ns,
                devices=tuple(devices),
                step_since_ns=phases.step_since_ns,
                last_step_ns=phases.last_step_ns,
                agent_cpu_ns=time.thread_time_ns(),
            ),
        )
        self._tell(server)

    def _at_boundary(self, reading: Reading, sample: Sample) -> DeviceFrame:
        # Where this boundary was not looked at, what was found at the last one of its kind is nearest to it.
        look = sample.looks.get(reading.device) or self.observer.looks.latest(reading.device, sample.boundary)
        return self._device_frame(reading, {reading.device: look} if look else {}, sample.time_ns)

    def _device_frame(self, reading: Reading, looks: dict[str, Look], now: int) -> DeviceFrame:
        look = looks.get(reading.device) or self._latest.get(reading.device)
        figures = dict(reading.figures)
        classification: Optional[Classification] = None
        blocks: Optional[BlockSummary] = None
        if look is not None and look.possible(figures.get("allocated_bytes")):
            classification = aged(look.time_ns, now, look.phase, look.step, look.categories)
        newest = self._latest.get(reading.device)
        if newest is not None and newest.blocks is not None:
            blocks = newest.blocks.summary(max(0, now - newest.time_ns))
        if blocks is not None and figures.get("inactive_split_bytes") == 0:
            # Expandable segments report none: what their blocks say is right.
            figures["inactive_split_bytes"] = blocks.inactive_split_bytes
        return DeviceFrame(
            device=reading.device,
            step_peak_bytes=reading.step_peak_bytes,
            step_peak_exact=reading.step_peak_exact,
            last_step_peak_bytes=reading.last_step_peak_bytes,
            last_step_peak_exact=reading.last_step_peak_exact,
            last_step_peak_phase=reading.last_step_peak_phase,
            blocks=blocks,
            classification=classification,
            **figures,
        )

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _emit(self, server: Server, frame: Frame) -> None:
        message = codec.encode(frame)
        height = max((device.allocated_bytes or device.rss_bytes or 0 for device in frame.devices), default=0)
        self._history.append(frame.time_ns, height, message)
        server.broadcast(message, frame=True)
        self._notice(frame)

    def _notice(self, frame: Frame) -> None:
        for device in frame.devices:
            peak = device.allocated_peak_bytes or 0
            retries, ooms = device.num_alloc_retries or 0, device.num_ooms or 0
            told, told_retries, told_ooms = self._told.get(device.device, (0, 0, 0))
            if frame.step > self._step_told and device.last_step_peak_exact and peak > told * _NEWS:
                self._event(frame, device, "new_peak", {"allocated_peak_bytes": peak}, device.last_step_peak_phase)
                told = peak
            if retries > told_retries:
                self._event(frame, device, "alloc_retry", {"num_alloc_retries": retries})
            self._told[device.device] = (min(told, peak), retries, max(ooms, told_ooms))
        self._step_told = frame.step

    def _event(
        self, frame: Frame, device: DeviceFrame, name: str, figures: dict[str, int], phase: Optional[str] = None
    ) -> None:
        self.observer.events.append(
            Event(
                name=name,
                time_ns=frame.time_ns,
                step=frame.step,
                phase=phase or frame.phase,
                device=device.device,
                figures={
                    **figures,
                    "allocated_bytes": device.allocated_bytes or 0,
                    "reserved_bytes": device.reserved_bytes or 0,
                },
            )
        )

    def _tell(self, server: Server) -> None:
        observer = self.observer
        if observer.error is not None:
            now = time.monotonic_ns()
            observer.events.append(Event("agent_error", now, observer.phases.step, "", text=observer.error))
            observer.error = None
        model = observer.inventory.model
        if model is not None and model is not self._model_sent:
            self._model_sent = model
            server.broadcast(codec.encode(model), frame=False)
        while observer.events:
            message = codec.encode(observer.events.popleft())
            self._events.append(message)
            del self._events[:-512]
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
            cwd=_cwd(),
            hostname=socket.gethostname(),
            time_ns=now,
            wall_offset_ns=time.time_ns() - now,
            started_ns=self._started_ns,
            devices=tuple(counters.info for counters in self.observer.readings.devices),
            rank=_number("RANK"),
            world_size=_number("WORLD_SIZE"),
            notices=self._notices(),
        )

    def _notices(self) -> tuple[str, ...]:
        notices = []
        for counters in self.observer.readings.devices:
            if counters.device == "host" and counters.info.counters == "rss":
                notices.append("this allocator keeps no glibc heap statistics: host memory by resident set alone")
            if counters.device.startswith("cuda") and not counters.native:
                notices.append("cudaMallocAsync has no blocks: no categories, no fragmentation")
        return tuple(notices)

    def _announce(self, server: Server) -> None:
        devices = tuple(counters.device for counters in self.observer.readings.devices)
        if devices != self._devices_sent:
            self._devices_sent = devices
            server.broadcast(codec.encode(self._hello()), frame=False)

    def _greeting(self, history: bool) -> list[bytes]:
        messages = [codec.encode(self._hello())]
        if self._model_sent is not None:
            messages.append(codec.encode(self._model_sent))
        messages.extend(self._events)
        if history:
            messages.extend(self._history.messages())
        return messages

    def _requested(self, name: str) -> None:
        if name == "unload":
            self.stop()

    # -- the process's own turns ------------------------------------------------

    def _forked(self) -> None:
        """In a forked child: nothing of the parent's is used, and the child begins dormant."""
        server, self._server = self._server, None
        if server is not None:
            server.close(unlink=False)
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
            text=_text(error) if error is not None else "",
        )
        self._stop.set()
        self._wake()
        thread.join(_GOODBYE_SECONDS)  # it tells its viewers and removes its socket, in much less


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except Exception as second:  # noqa: BLE001 - a program's exception may fail to print itself
        return f"({type(second).__name__} while printing it)"


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _number(name: str) -> Optional[int]:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def _weak(method: Any) -> Any:
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        if bound is not None:
            bound()

    return call


def _oom_observer(agent: Agent) -> Any:
    """What torch calls when it gives up an allocation: it must not raise, and torch offers no way to take it off."""
    reference = weakref.ref(agent)

    def observe(device: int, asked: int, device_total: int, device_free: int) -> None:
        try:
            held = reference()
            if held is not None:
                held.out_of_memory(int(device), int(asked), int(device_total), int(device_free))
        except BaseException:  # noqa: BLE001 - raising here would replace the program's own exception
            return

    return observe
