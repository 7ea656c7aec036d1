"""A real Prometheus of the machine, on a free port and with a folder of its own, and a client of its query API."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import pytest

#: Starting takes a second; a loaded machine may be 60 times slower than that.
PATIENCE_SECONDS = 60.0
_TRIES = 3


class PrometheusError(Exception):
    """What Prometheus or promtool said, in one line or several."""


@dataclass(frozen=True)
class Target:
    """What is scraped: `address` is "host:port"; labels, `instance` among them, are put on all of its series."""

    address: str
    labels: dict[str, str] = field(default_factory=dict)
    path: str = "/metrics"


@dataclass(frozen=True)
class Sample:
    """One series of an answer: its labels, and its points as (Unix time, value)."""

    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        """The newest."""
        return self.points[-1][1]


class Client:
    """Asks a Prometheus; raises PrometheusError with its own words."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str, at: Optional[float] = None) -> list[Sample]:
        """The series that an expression has at an instant (now, if none is given)."""
        given = {} if at is None else {"time": f"{at:.3f}"}
        return _samples(self.get("query", query=expression, **given))

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Sample]:
        """The series that an expression has between two instants, a point every `step` seconds."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return _samples(self.get("query_range", query=expression, **times))

    def get(self, name: str, **parameters: str) -> Any:
        """`data` of an answer of /api/v1/NAME."""
        url = f"{self.url}/api/v1/{name}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise PrometheusError(error.read().decode(errors="replace")) from None

    def healthy(self) -> int:
        """How many targets were up when they were scraped last."""
        return sum(target["health"] == "up" for target in self.get("targets", state="active")["activeTargets"])

    def wait_scraped(self, targets: int) -> None:
        """Until so many targets are up and what they say can be queried."""
        wait_until(lambda: self.healthy() >= targets, f"{targets} targets that are up")
        wait_until(lambda: self.query("sum(up)") and self.query("sum(up)")[0].value >= targets, "series")

    def wait_evaluated(self) -> None:
        """Until every group of rules has been evaluated once more, of what is there now."""
        now = time.time()
        wait_until(lambda: all(when > now for when in self._evaluations()), "the rules")

    def _evaluations(self) -> list[float]:
        said = [group["lastEvaluation"] for group in self.get("rules")["groups"]]
        plain = [re.sub(r"\.\d+", "", text).replace("Z", "+00:00") for text in said]
        return [datetime.datetime.fromisoformat(text).timestamp() for text in plain]


def _samples(data: Any) -> list[Sample]:
    if data["resultType"] == "scalar":
        return [Sample({}, (_point(data["result"]),))]
    return [
        Sample(each["metric"], tuple(_point(point) for point in each.get("values") or [each["value"]]))
        for each in data["result"]
    ]


def _point(plain: Any) -> tuple[float, float]:
    return float(plain[0]), float(plain[1].replace("Inf", "inf")) if plain[1] != "NaN" else math.nan


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true value of `condition()`; raises PrometheusError after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise PrometheusError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.1)
    return value


def program(name: str) -> str:
    """Where `prometheus` or `promtool` is; skips where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def promtool(*arguments: str, text: str = "") -> str:
    """What promtool prints; raises PrometheusError with it where promtool is not content."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, check=False)
    said = done.stdout + done.stderr
    if done.returncode:
        raise PrometheusError(said.strip())
    return said


def backfill(openmetrics: pathlib.Path, data: pathlib.Path) -> None:
    """Makes blocks of the samples in a file, for a Prometheus that is started on this folder afterwards."""
    promtool("tsdb", "create-blocks-from", "openmetrics", str(openmetrics), str(data))


def free_port() -> int:
    """A loopback port that nothing listens on just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def prometheus(
    targets: Sequence[Target],
    *,
    interval_s: float = 1.0,
    rules: Sequence[pathlib.Path] = (),
    data: Optional[pathlib.Path] = None,
) -> Iterator[Client]:
    """A Prometheus that scrapes `targets` under the job "memtui"; it ends, and its folder goes, with the block.

    `data` is a folder with blocks to start with. Skips where Prometheus is not installed.
    """
    binary = program("prometheus")
    with tempfile.TemporaryDirectory(prefix="memtui-prometheus-") as name:
        folder = pathlib.Path(name)
        config = folder / "prometheus.json"  # which is YAML too
        config.write_text(json.dumps(_config(targets, interval_s, rules)))
        process, client = _start(binary, config, data or folder / "data", folder / "said")
        try:
            yield client
        finally:
            _end(process)


def _config(targets: Sequence[Target], interval_s: float, rules: Sequence[pathlib.Path]) -> dict[str, Any]:
    every = f"{max(1, round(interval_s * 1000))}ms"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [
            {
                "job_name": "memtui",
                "static_configs": [
                    {"targets": [each.address], "labels": {"__metrics_path__": each.path, **each.labels}}
                    for each in targets
                ],
            }
        ],
    }


def _start(
    binary: str, config: pathlib.Path, data: pathlib.Path, said: pathlib.Path
) -> tuple[subprocess.Popen[bytes], Client]:
    """The process, once it answers: another port is tried where somebody was faster."""
    for left in reversed(range(_TRIES)):
        port = free_port()
        with said.open("wb") as log:
            process = subprocess.Popen(
                [
                    binary,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={data}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--storage.tsdb.retention.time=10y",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        url = f"http://127.0.0.1:{port}"
        try:
            ready = wait_until(lambda url=url, process=process: _ready(url) or process.poll() is not None, "Prometheus")
            if ready and process.poll() is None:
                return process, Client(url)
        except BaseException:
            _end(process)
            raise
        if not left or b"address already in use" not in said.read_bytes():
            break
    raise PrometheusError(said.read_text(errors="replace").strip())


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
