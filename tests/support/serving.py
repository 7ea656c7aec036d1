"""`memtui serve` as a process of its own, scraped, and trainings that it exposes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import pytest

from tests.support import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBEDIENT = str(programs.PROGRAMS / "obedient.py")


def require_library() -> None:
    """Skips where prometheus_client is not installed."""
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")


class Exposed:
    """One scrape, parsed."""

    def __init__(self, text: str) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self.text = text
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def of(self, name: str, **labels: str) -> list[Any]:
        """The samples of a metric ("memtui_" is left out) that have these labels."""
        return [
            sample
            for sample in self.samples
            if sample.name == f"memtui_{name}" and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> Optional[float]:
        """Of the one sample that there is; None where there is none."""
        found = self.of(name, **labels)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def state(self, pid: int) -> Optional[str]:
        """Of a process, the same on each of its devices; None where it is not exposed."""
        found = {sample.labels["state"] for sample in self.of("state", pid=str(pid)) if sample.value == 1}
        assert len(found) <= 1, found
        return found.pop() if found else None


class Served:
    """A daemon that listens."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process, self.line = process, line
        self.rest = self.errors = ""  # what else it printed, once it has ended
        self.url = line.partition("metrics at ")[2].partition(";")[0]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])

    def scrape(self, accept: str = "", **options: Any) -> str:
        """The text."""
        request = urllib.request.Request(self.url, headers={"Accept": accept} if accept else {})
        with urllib.request.urlopen(request, timeout=60, **options) as answer:
            return str(answer.read().decode())

    def exposed(self) -> Exposed:
        """What it says now."""
        return Exposed(self.scrape())

    def once(self, condition: Any, what: str = "") -> Exposed:
        """What it says once `condition` holds of it."""

        def ready() -> Any:
            told = self.exposed()
            return told if condition(told) else None

        found: Exposed = programs.wait_for(ready, what=what)
        return found


def serve_environment(runtime: pathlib.Path, driver: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """What the daemon runs in; `driver` is the environment of programs whose virtual GPUs it is to see."""
    base = {**programs.plain_environment(), "PYTHONPATH": str(ROOT), "MEMTUI_RUNTIME_DIR": str(runtime)}
    if driver is not None:
        base |= {name: value for name, value in driver.items() if name.startswith("VGPU_")}
        [library] = [each for each in driver["LD_PRELOAD"].split(":") if "libvgpu" in os.path.basename(each)]
        base["MEMTUI_NVML_LIBRARY"] = str(pathlib.Path(library).parent / "libnvidia-ml.so.1")
    return base


@contextlib.contextmanager
def serving(*options: str, environment: Mapping[str, str], listen: str = "127.0.0.1:0") -> Iterator[Served]:
    """A daemon on a free port; ended, with status 0, at the end."""
    command = [sys.executable, "-m", "memtui", "serve", "--listen", listen, *options]
    with subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "metrics at" in line, (line, process.stderr.read() if process.stderr and not line else "")
            served = Served(process, line)
            yield served
            assert process.poll() is None, "the daemon ended by itself"
            process.terminate()
            served.rest, served.errors = process.communicate(timeout=60)
            assert process.returncode == 0
            assert "Traceback" not in served.errors, served.errors
        finally:
            if process.poll() is None:
                process.kill()


class Obedient:
    """A training that does what it is told."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.pid = process, process.pid
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

    def tell(self, words: str) -> dict[str, int]:
        """What torch counts after it has done it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(words.encode() + b"\n")
        self.process.stdin.flush()
        found: dict[str, int] = json.loads(self.process.stdout.readline())
        return found

    def say(self, words: str) -> None:
        """The same where no answer is wanted."""
        assert self.process.stdin is not None
        self.process.stdin.write(words.encode() + b"\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def obedient(environment: Mapping[str, str]) -> Iterator[Obedient]:
    """One that waits for its first word."""
    pipe = subprocess.PIPE
    with programs.started(
        OBEDIENT, environment=dict(environment), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as process:
        yield Obedient(process)
