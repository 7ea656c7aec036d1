"""Hosts with simulated ranks that a Prometheus can scrape: `python -m tests.support.fleet --ranks 1024 --hosts 64`.

One HTTP server plays all hosts, each at a path of its own: `instance` is a label of the target. Of a scrape only the
numbers are made, so that 1,024 ranks take a small part of one core.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import pathlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from memtui.wire.frames import CATEGORIES, PHASES
from tests.support.fleet_ranks import CAPACITY_BYTES, Course, Planted, Rank, ranks_of
from tests.support.prometheus import Client, Target, backfill, prometheus

RUN = "pretrain-70b"
_DEVICE_NAME = "NVIDIA H100 80GB HBM3"
_STATES = ("live", "silent", "stopped", "ended")
_OUTCOMES = ("ok", "interrupted", "exception", "oom", "killed", "silent")
_EVENTS = (
    "oom",
    "alloc_retry",
    "new_peak",
    "optimizer_state_appeared",
    "discovery",
    "recorded",
    "agent_error",
    "other",
)

#: A family's name without "memtui_", its type, its label beside those of a rank, and the label's values.
_FAMILIES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    *((f"{name}_bytes", "gauge", "", ("",)) for name in ("allocated", "reserved", "active", "requested")),
    ("inactive_split_bytes", "gauge", "", ("",)),
    *(
        (f"{name}_peak_bytes", "gauge", "", ("",))
        for name in ("allocated", "reserved", "allocated_window", "last_step")
    ),
    ("category_bytes", "gauge", "category", CATEGORIES),
    ("process_device_bytes", "gauge", "", ("",)),
    *((f"predicted_peak_{name}_bytes", "gauge", "", ("",)) for name in ("allocated", "device")),
    ("capacity_bytes", "gauge", "", ("",)),
    ("headroom_bytes", "gauge", "", ("",)),
    ("leak_bytes_per_step", "gauge", "", ("",)),
    ("steps_left", "gauge", "", ("",)),
    *((f"{name}_seconds", "gauge", "", ("",)) for name in ("last_step", "forward", "step_since_timestamp")),
    ("frame_timestamp_seconds", "gauge", "", ("",)),
    ("phase", "gauge", "phase", PHASES),
    ("state", "gauge", "state", _STATES),
    ("resident_bytes", "gauge", "", ("",)),
    *((f"{name}_total", "counter", "", ("",)) for name in ("steps", "ooms", "alloc_retries", "lost_frames")),
    ("events_total", "counter", "event", _EVENTS),
    ("ends_total", "counter", "outcome", _OUTCOMES),
)
_ABSENT_WITHOUT_LEAK = ("leak_bytes_per_step", "steps_left")
#: What is exposed of a rank that has ended: it holds nothing any more.
_OF_ENDED = (
    *(f"{name}_peak_bytes" for name in ("allocated", "reserved", "allocated_window", "last_step")),
    *("last_step_seconds", "forward_seconds", "frame_timestamp_seconds", "state"),
    *(name for name, kind, _, _ in _FAMILIES if kind == "counter"),
)
_DEVICE_FAMILIES = ("total", "used", "free", "reserved", "other")


class Host:
    """One host's exposition."""

    def __init__(self, number: int, ranks: Sequence[Rank], port: int) -> None:
        self.name = f"node-{number:03d}"
        self.ranks = ranks
        self.target = Target(f"127.0.0.1:{port}", {"instance": f"{self.name}:9464"}, f"/{number}/metrics")
        self._scraped = {"job": "memtui", **self.target.labels}
        #: By whether it is the past, and by the ranks that have ended: the text, and whose figure is at each place.
        self._templates: dict[tuple[bool, frozenset[int]], tuple[str, list[tuple[int, str]]]] = {}

    def exposition(self, now: float) -> str:
        """In Prometheus's text format."""
        return self._filled(now, past=False)

    def past(self, now: float) -> str:
        """The samples of an instant as a Prometheus that has scraped them would keep them, in OpenMetrics."""
        text = self._filled(now, past=True) + f"up{{{_labels(self._scraped)}}} 1\n"
        return text.replace("\n", f" {now:.3f}\n")

    def _filled(self, now: float, *, past: bool) -> str:
        key = past, frozenset(rank.rank for rank in self.ranks if rank.has_ended(now))
        if key not in self._templates:
            self._templates[key] = self._lines(self._scraped if past else {}, key[1], comments=not past)
        template, columns = self._templates[key]
        return template % self._values(now, columns)

    def _values(self, now: float, columns: list[tuple[int, str]]) -> tuple[float, ...]:
        figures = [rank.figures(now) for rank in self.ranks]
        for rank, each in zip(self.ranks, figures):
            used = 0 if rank.has_ended(now) else each["process_device_bytes"]
            each["device_total_bytes"] = CAPACITY_BYTES
            each["device_other_bytes"] = 0
            each["device_reserved_bytes"] = 0
            each["device_used_bytes"] = used
            each["device_free_bytes"] = CAPACITY_BYTES - used
            each["serve_agents"] = len(self.ranks)
        # Somebody's notebook has a context on the first device.
        figures[0]["device_other_bytes"] = other = 300 << 20
        figures[0]["device_used_bytes"] += other
        figures[0]["device_free_bytes"] -= other
        return tuple([figures[number].get(key, 0) for number, key in columns])

    def _lines(
        self, more: dict[str, str], ended: frozenset[int], *, comments: bool
    ) -> tuple[str, list[tuple[int, str]]]:
        """The text with a place for each number, and which these are."""
        columns: list[tuple[int, str]] = []
        lines: list[str] = []

        def family(name: str, kind: str) -> None:
            if comments:
                lines.append(f"# HELP memtui_{name} Simulated.\n# TYPE memtui_{name} {kind}\n")

        def line(name: str, labels: dict[str, str], number: int, key: str) -> None:
            lines.append(f"memtui_{name}{{{_labels({**labels, **more})}}} %s\n")
            columns.append((number, key))

        for name, kind, label, values in _FAMILIES:
            has_it = [
                rank
                for rank in self.ranks
                if (name not in _ABSENT_WITHOUT_LEAK or _leaks(rank)) and (rank.rank not in ended or name in _OF_ENDED)
            ]
            if has_it:
                family(name, kind)
            for rank in has_it:
                for value in values:
                    labels = _rank_labels(rank) | ({label: value} if label else {})
                    line(name, labels, rank.local, f"{name}|{value}" if label else name)
        family("rank_info", "gauge")
        for rank in self.ranks:
            lines.append(f"memtui_rank_info{{{_labels({**self._info(rank), **more})}}} 1\n")
        for name in _DEVICE_FAMILIES:
            family(f"device_{name}_bytes", "gauge")
            for rank in self.ranks:
                labels = {"device_uuid": rank.uuid, "index": str(rank.local), "device_name": _DEVICE_NAME}
                line(f"device_{name}_bytes", labels, rank.local, f"device_{name}_bytes")
        for name, kind, labels in (
            ("build_info", "gauge", {"version": "0.1.0"}),
            ("serve_agents", "gauge", {}),
            ("serve_left_out", "gauge", {}),
            ("serve_refused_total", "counter", {"reason": "busy"}),
        ):
            family(name, kind)
            if name == "build_info":
                lines.append(f"memtui_{name}{{{_labels({**labels, **more})}}} 1\n")
            else:
                line(name, labels, 0, name)
        return "".join(lines), columns

    def _info(self, rank: Rank) -> dict[str, str]:
        return {
            **_rank_labels(rank),
            "local_rank": str(rank.local),
            "world_size": str(rank.world),
            "host": self.name,
            "device_name": _DEVICE_NAME,
            "script": "train.py",
            "torch": "2.14.1+cu130",
            "python": "3.11.7",
            "agent": "0.1.0",
        }


def _leaks(rank: Rank) -> bool:
    return rank.rank == rank.planted.leaking


def _rank_labels(rank: Rank) -> dict[str, str]:
    device = f"cuda:{rank.local}"
    return {"run": RUN, "rank": str(rank.rank), "pid": str(rank.pid), "device": device, "device_uuid": rank.uuid}


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


class Fleet:
    """All hosts, as what answers a scrape; hosts in `gone` answer no more."""

    def __init__(
        self,
        ranks: int = 1024,
        hosts: int = 64,
        *,
        stages: int = 8,
        planted: Optional[Planted] = None,
        begun: Optional[float] = None,
        silent_at: Optional[float] = None,
        recording: Optional[pathlib.Path] = None,
    ) -> None:
        self.begun = time.time() if begun is None else begun
        self.planted = Planted.usual(ranks, stages) if planted is None else planted
        self.silent_at = time.time() + 20 if silent_at is None else silent_at
        self.gone: set[int] = set()
        fleet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # Prometheus keeps its connections

            def do_GET(self) -> None:
                number = int(self.path.split("/")[1])
                if number in fleet.gone:
                    self.send_error(503)
                    return
                body = fleet.hosts[number].exposition(time.time()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        settings: dict[str, Any] = {"planted": self.planted, "silent_at": self.silent_at}
        course = Course() if recording is None else Course(recording)
        self.ranks = ranks_of(ranks, stages, hosts, self.begun, course=course, **settings)
        self.hosts = [Host(number, each, self._server.server_port) for number, each in enumerate(self.ranks) if each]

    @property
    def targets(self) -> list[Target]:
        """One for each host."""
        return [host.target for host in self.hosts]

    def rank(self, number: int) -> Rank:
        """The one with this number."""
        return next(rank for host in self.ranks for rank in host if rank.rank == number)

    def write_past(self, path: pathlib.Path, start: float, end: float, step: float) -> None:
        """OpenMetrics of all samples between two instants, for `prometheus.backfill`."""
        with path.open("w") as file:
            now = start
            while now < end:
                for host in self.hosts:
                    file.write(host.past(now))
                now += step
            file.write("# EOF\n")

    @contextlib.contextmanager
    def serving(self) -> Iterator[Fleet]:
        """Answers scrapes within the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@contextlib.contextmanager
def scraped(
    fleet: Fleet, *, interval_s: float = 1.0, past_s: float = 0.0, past_step_s: float = 15.0, **options: Any
) -> Iterator[Client]:
    """A Prometheus that scrapes the fleet, and has done so for `past_s` already as far as one can see."""
    with fleet.serving(), tempfile.TemporaryDirectory(prefix="memtui-fleet-") as name:
        data = pathlib.Path(name, "data")
        if past_s:
            samples = pathlib.Path(name, "past.txt")
            fleet.write_past(samples, time.time() - past_s, time.time(), past_step_s)
            backfill(samples, data)
            samples.unlink()
        with prometheus(fleet.targets, interval_s=interval_s, data=data, **options) as client:
            yield client


def main(arguments: Sequence[str]) -> None:
    """Until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--stages", type=int, default=8, help="of the pipeline: ranks of one stage are alike")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two scrapes")
    parser.add_argument("--past", type=float, default=0.0, help="minutes that are there already at the start")
    parser.add_argument("--past-step", type=float, default=15.0, help="seconds between two samples of these")
    parser.add_argument("--more", action="store_true", help="a rank that leaks and one that has run out of memory, too")
    parser.add_argument("--none", action="store_true", help="all ranks are as they should be")
    parser.add_argument("--silent-after", type=float, default=20.0, help="seconds until the silent rank falls silent")
    parser.add_argument("--recording", type=pathlib.Path, help="a log of `memtui run --log` to be replayed")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    now = time.time()
    planted = Planted() if given.none else Planted.usual(given.ranks, given.stages, more=given.more)
    fleet = Fleet(
        given.ranks,
        given.hosts,
        stages=given.stages,
        planted=planted,
        begun=now - 60 * given.past,
        silent_at=now + given.silent_after,
        recording=given.recording,
    )
    with scraped(fleet, interval_s=given.interval, past_s=60 * given.past, past_step_s=given.past_step) as client:
        print(client.url, flush=True)
        print(f"{given.ranks} ranks on {len(fleet.hosts)} hosts, {given.stages} stages; {planted}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
