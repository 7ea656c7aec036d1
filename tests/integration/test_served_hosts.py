"""Real trainings on two hosts, each with its `memtui serve`, and a real Prometheus that scrapes both."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

import pytest

from tests.support import dashboards, programs
from tests.support.prometheus import Client, Target, prometheus, promtool, wait_until
from tests.support.serving import Served, obedient, require_library, serve_environment, serving

pytestmark = pytest.mark.virtual_gpu

_HELD = ("allocated_bytes", "reserved_bytes", "active_bytes", "allocated_peak_bytes", "reserved_peak_bytes")


@dataclass(frozen=True)
class Host:
    """What is one machine to Prometheus: its name, its daemon, and the environment of the rank that runs on it."""

    name: str
    served: Served
    environment: dict[str, str]

    @property
    def target(self) -> Target:
        return Target(f"127.0.0.1:{self.served.port}", {"instance": self.name})


@contextlib.contextmanager
def host(name: str, rank: int) -> Iterator[Host]:
    """One with a runtime folder, and a GPU, of its own."""
    require_library()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-"))
    gpu = programs.virtual_environment_with_agent(folder, memory="8GiB", context="300MiB")
    environment = {**gpu, "MEMTUI_RUN": "pair", "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    try:
        with serving(environment=serve_environment(folder, gpu)) as served:
            yield Host(name, served, environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _value(client: Client, name: str, **labels: str) -> Optional[float]:
    chosen = ",".join(f'{label}="{value}"' for label, value in labels.items())
    found = client.query(f"memtui_{name}{{{chosen}}}")
    assert len(found) <= 1, found
    return found[0].value if found else None


def test_two_hosts_are_one_run_and_every_panel_has_an_answer() -> None:
    alone = str(programs.PROGRAMS / "ranked.py")
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(host(f"host-{name}", rank)) for rank, name in enumerate("ab"))
        still = stack.enter_context(obedient(first.environment))
        stack.enter_context(
            programs.started(alone, "--kind", "alone", "--seconds", "600", environment=second.environment)
        )
        own = still.tell("steps 20")
        targets = [first.target, second.target]
        client = stack.enter_context(prometheus(targets, rules=[dashboards.RULES]))
        client.wait_scraped(2)

        # The one that holds still: Prometheus has torch's own figures.
        wait_until(lambda: _value(client, "headroom_bytes", instance="host-a") is not None, "a forecast")
        for name in _HELD:
            assert _value(client, name, instance="host-a", run="pair", rank="0") == own[name], name
        assert _value(client, "steps_total", instance="host-a") == 20

        # The one that goes on: every scrape is of one frame, so that its categories add up.
        wait_until(lambda: len(client.query("rate(memtui_steps_total[4s])")) == 2, "rates of both")
        wait_until(lambda: _value(client, "headroom_bytes", instance="host-b") is not None, "a forecast")
        parts = "sum by (instance, pid, device) (memtui_category_bytes)"
        whole = "sum by (instance, pid, device) (memtui_allocated_bytes)"
        assert len(client.query(f"{parts} == {whole}")) == 2
        assert client.query(f"count_over_time(({parts} != {whole})[1m:1s])") == []
        assert client.query("sum by (run) (rate(memtui_steps_total[4s])) > 0")[0].labels == {"run": "pair"}

        empty = [asked for asked in dashboards.ask_all(client) if not asked.answer]
        assert all(asked.may_be_empty for asked in empty), [(asked.panel, asked.expression) for asked in empty]
        values = dashboards.variable_values(client)
        assert values == {"instance": ["host-a", "host-b"], "run": ["pair"], "rank": ["0", "1"], "device": ["cuda:0"]}

        client.wait_evaluated()
        assert client.get("alerts")["alerts"] == []
        still.tell("exhaust")
        wait_until(lambda: client.get("alerts")["alerts"], "an alert")
        [alert] = client.get("alerts")["alerts"]
        assert alert["labels"]["alertname"] == "MemtuiOutOfMemory"
        assert (alert["labels"]["instance"], alert["labels"]["rank"]) == ("host-a", "0")
        assert "rank 0 on host-a" in alert["annotations"]["summary"]


def test_a_leak_is_told_and_an_end_is_no_host_that_is_gone() -> None:
    """GIVEN a training that keeps 4 MiB at each step, WHEN it has come to its end, THEN that is known, and no alert."""
    leaking = str(programs.PROGRAMS.parent / "bench" / "programs" / "leaks.py")
    with host("host-a", 0) as only, prometheus([only.target], rules=[dashboards.RULES]) as client:
        root = str(programs.PROGRAMS.parents[1])
        python = {**only.environment, "PYTHONPATH": f"{root}:{only.environment['PYTHONPATH']}"}
        with programs.started(leaking, "leak: activations", environment=python, stderr=subprocess.DEVNULL) as process:
            wait_until(lambda: client.query("memtui_leak_bytes_per_step"), "a leak")
            [leak] = client.query("memtui_leak_bytes_per_step")
            assert leak.value == pytest.approx(4 << 20, rel=0.1)
            [left], [headroom] = client.query("memtui_steps_left"), client.query("memtui_headroom_bytes")
            assert left.value == pytest.approx(headroom.value / leak.value, rel=0.1)
            wait_until(lambda: client.query('ALERTS{alertname="MemtuiLeak"}'), "an alert")
            assert any(asked.answer for asked in dashboards.ask_all(client) if asked.panel == "Leaks")
            assert process.wait(60) == 0
        wait_until(lambda: client.query('memtui_ends_total{outcome="ok"} == 1'), "its end")
        wait_until(lambda: not client.query("memtui_headroom_bytes"), "that it holds nothing any more")
        only.served.process.send_signal(signal.SIGSTOP)  # as where the machine is gone: nothing answers
        try:
            wait_until(lambda: client.healthy() == 0, "a host that does not answer")
            wait_until(lambda: not client.query("memtui_state"), "that it is known")
            client.wait_evaluated()
            assert client.get("alerts")["alerts"] == []
        finally:
            only.served.process.send_signal(signal.SIGCONT)


def test_the_command_prints_dashboard_and_rules() -> None:
    for option, path in (("--dashboard", dashboards.PATH), ("--rules", dashboards.RULES)):
        command = programs.command("-m", "memtui", "serve", option, direct=False)
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert printed == path.read_text()


def test_promtool_is_content_with_what_is_exposed() -> None:
    with host("host-a", 0) as only, obedient(only.environment) as training:
        training.tell("steps 5")
        told = only.served.once(lambda told: told.of("headroom_bytes"), "a forecast")
        assert promtool("check", "metrics", text=told.text) == ""
