"""A launcher of ranks that only sleep, whose agents' streams come from a recording: streams.py FILE FOLDER COUNT [ODD]

FILE is a list of [nanoseconds since the first, message] in the order in which an agent sent them. Each rank's hello is
its own; all get the same frames, over and over, in the time that they were sent in, numbered on. What a viewer does not
take in time is counted in FOLDER/lost, as an agent counts it. Rank ODD falls silent some seconds after
a viewer has come.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

_TALKING_S = 9.0
_LENGTH = struct.Struct("!I")
_TIMES = ("time_ns", "phase_since_ns", "step_since_ns")


def encode(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


class Rank:
    """A process that sleeps, and a socket in its name."""

    def __init__(self, rank: int, count: int, folder: pathlib.Path, hello: dict[str, Any]) -> None:
        environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
        self.listener = socket.socket(socket.AF_UNIX)

        def listen() -> None:  # in the rank itself, whose pid whoever connects is told
            self.listener.bind(str(folder / f"agent-{os.getpid()}.sock"))
            self.listener.listen()

        self.process = subprocess.Popen(["/bin/sleep", "100000"], env=environment, preexec_fn=listen)  # noqa: PLW1509
        uuid = f"GPU-00000000-0000-4000-8000-{rank:012d}"
        devices = [{**device, "uuid": uuid} for device in hello["devices"]]
        numbers = {"rank": rank, "local_rank": rank, "world_size": count, "pid": self.process.pid}
        self.greeting = {**hello, **numbers, "devices": devices, "time_ns": time.monotonic_ns()}
        self.viewers: list[socket.socket] = []
        self.met_s = 0.0

    def accept(self, model: bytes) -> None:
        with contextlib.suppress(BlockingIOError):
            self.listener.setblocking(False)
            viewer, _ = self.listener.accept()
            viewer.setblocking(False)
            viewer.sendall(encode(self.greeting) + model)
            self.viewers.append(viewer)
            self.met_s = time.monotonic()

    def send(self, data: bytes) -> int:
        """How many viewers could not take it."""
        lost = 0
        for viewer in list(self.viewers):
            try:
                sent = viewer.send(data)
            except BlockingIOError:
                lost += 1
                continue
            except OSError:
                self.viewers.remove(viewer)
                continue
            if sent < len(data):  # the rest must follow, or what comes after is broken
                viewer.setblocking(True)
                viewer.sendall(data[sent:])
                viewer.setblocking(False)
        return lost


def main(recording: pathlib.Path, folder: pathlib.Path, count: int, odd: int) -> None:
    told = json.loads(recording.read_text())
    hello = next(message for _, message in told if message["kind"] == "hello")
    models = [message for _, message in told if message["kind"] == "model"]
    frames = [(since, message) for since, message in told if message["kind"] == "frame"]
    ranks = [Rank(rank, count, folder, hello) for rank in range(count)]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    print("ready", flush=True)
    first_ns, length_ns = frames[0][0], frames[-1][0] - frames[0][0] + 100_000_000
    begun, lost, sequence, turn = time.monotonic_ns(), 0, 0, 0
    recorded_ns = frames[0][1]["time_ns"]
    steps = frames[-1][1]["step"] - frames[0][1]["step"] + 1
    while not stopped:
        for since, frame in frames:
            due = begun + turn * length_ns + since - first_ns
            while not stopped and (left := due - time.monotonic_ns()) > 0:
                ready, _, _ = select.select([rank.listener for rank in ranks], [], [], left / 1e9)
                for rank in ranks:
                    if rank.listener in ready:
                        rank.accept(b"".join(map(encode, models[-1:])))
            if stopped:
                break
            sequence += 1
            shift = begun + turn * length_ns - recorded_ns
            moved = {key: frame[key] + shift for key in _TIMES if frame.get(key)}
            sent = {**frame, **moved, "sequence": sequence, "step": frame["step"] + turn * steps, "lost_frames": lost}
            data = encode(sent)
            for number, rank in enumerate(ranks):
                if number != odd or time.monotonic() - rank.met_s < _TALKING_S:
                    lost += rank.send(data)
        turn += 1
        (folder / "lost").write_text(str(lost))
    (folder / "lost").write_text(str(lost))
    for rank in ranks:
        rank.process.kill()
        rank.process.wait()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), int((sys.argv[4:] or ["-1"])[0]))
