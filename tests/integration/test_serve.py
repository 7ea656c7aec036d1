"""`memtui serve` with real trainings: its figures are torch's own, and every way to go on or end is told."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from memtui.analysis.forecast import build_forecast
from memtui.analysis.ladder import build_ladder
from memtui.analysis.leak import find_leak
from memtui.analysis.policy import DEFAULT
from tests.support import programs
from tests.support.dashboards import RULES
from tests.support.prometheus import Target, prometheus, wait_until
from tests.support.serving import (
    Exposed,
    Obedient,
    Served,
    obedient,
    require_library,
    serve_environment,
    serving,
)
from tests.support.watching import settled, watch

pytestmark = pytest.mark.virtual_gpu

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_MEMORY = (
    *("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes"),
    *("allocated_peak_bytes", "reserved_peak_bytes"),
)


@pytest.fixture
def gpu(sockets: pathlib.Path) -> dict[str, str]:
    """An environment of programs with the agent on a virtual GPU."""
    require_library()
    return programs.virtual_environment_with_agent(sockets, memory="8GiB", context="300MiB")


@pytest.fixture
def served(sockets: pathlib.Path, gpu: dict[str, str]) -> Iterator[Served]:
    with serving(environment=serve_environment(sockets, gpu)) as found:
        yield found


def _has_settled(told: Exposed, pid: int, allocated: int) -> bool:
    return told.value("allocated_bytes", pid=str(pid)) == allocated and bool(told.of("headroom_bytes", pid=str(pid)))


def _settled(served: Served, training: Obedient, own: dict[str, int]) -> Exposed:
    return served.once(lambda told: _has_settled(told, training.pid, own["allocated_bytes"]), "its figures")


def test_figures_are_those_that_torch_counts(served: Served, gpu: dict[str, str]) -> None:
    """GIVEN a training that holds still, THEN every figure of the allocator is torch's own, and the sums hold."""
    with obedient({**gpu, "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "SLURM_JOB_ID": "4711"}) as training:
        own = training.tell("steps 20")
        told = _settled(served, training, own)
        [sample] = told.of("allocated_bytes")
        assert sample.labels["run"] == "4711"
        assert sample.labels["rank"] == "3"
        assert sample.labels["pid"] == str(training.pid)
        assert sample.labels["device"] == "cuda:0"
        assert sample.labels["device_uuid"].startswith("GPU-")
        for name in _MEMORY:
            assert told.value(name) == own[name], name
        categories = {each.labels["category"]: each.value for each in told.of("category_bytes")}
        assert sum(categories.values()) == own["allocated_bytes"]
        assert categories["parameters"] == 4 * (1024 * 1024 + 1024) * 4
        assert told.value("steps_total") == 20
        assert told.value("ooms_total") == told.value("alloc_retries_total") == 0
        assert told.state(training.pid) == "live"
        assert sum(each.value for each in told.of("phase")) == 1

        # What the driver says: the process is the allocator's segments and a context.
        uuid, held = sample.labels["device_uuid"], own["reserved_bytes"] + (300 << 20)
        told = served.once(lambda told: told.value("process_device_bytes") == held, "the driver's figure")
        assert told.value("device_total_bytes", device_uuid=uuid) == 8 << 30
        assert told.value("device_used_bytes", device_uuid=uuid) == held
        assert told.value("device_other_bytes", device_uuid=uuid) == 0
        capacity, peak = told.value("capacity_bytes"), told.value("predicted_peak_device_bytes")
        assert capacity == 8 << 30
        assert peak is not None
        assert told.value("headroom_bytes") == capacity - peak
        # The device needs the context beside the allocator's peak.
        assert peak == (told.value("predicted_peak_allocated_bytes") or 0) + (300 << 20)

        [info] = told.of("rank_info")
        names = ("local_rank", "world_size", "script")
        assert [info.labels[name] for name in names] == ["1", "8", "obedient.py"]
        assert told.value("last_step_seconds")
        assert told.value("resident_bytes")


def test_a_spike_between_two_scrapes_is_not_lost(served: Served, gpu: dict[str, str]) -> None:
    """GIVEN 2 GiB that come and go within a sample's time, THEN the peak of the last minute has them."""
    with obedient(gpu) as training:
        before = training.tell("steps 5")
        _settled(served, training, before)
        after = training.tell("spike")
        assert after["allocated_peak_bytes"] >= before["allocated_bytes"] + (2 << 30)
        told = served.once(
            lambda told: told.value("allocated_window_peak_bytes") == after["allocated_peak_bytes"], "the spike"
        )
        assert told.value("allocated_bytes") == after["allocated_bytes"] == before["allocated_bytes"]


def test_failed_and_retried_requests_are_counted(served: Served, gpu: dict[str, str]) -> None:
    """GIVEN two requests that fail and are caught and one that is retried, THEN counters and events have them."""
    with obedient(gpu) as training:
        training.tell("steps 2")
        training.tell("exhaust")
        training.tell("exhaust")
        own = training.tell("retry")
        assert own["num_ooms"] == 2
        told = served.once(lambda told: told.value("alloc_retries_total") == own["num_alloc_retries"], "the retries")
        assert told.value("ooms_total") == 2
        assert told.value("events_total", event="oom") == 2
        assert told.value("events_total", event="alloc_retry")
        assert told.state(training.pid) == "live"


def test_a_stopped_process_is_told_and_no_scrape_waits_for_it(served: Served, gpu: dict[str, str]) -> None:
    """GIVEN a process that is stopped, WHEN it goes on and is killed, THEN each is told, and its peaks stay."""
    with obedient(gpu) as training:
        own = training.tell("steps 3")
        _settled(served, training, own)
        os.kill(training.pid, signal.SIGSTOP)
        served.once(lambda told: told.state(training.pid) == "stopped", "that it is stopped")
        os.kill(training.pid, signal.SIGCONT)
        served.once(lambda told: told.state(training.pid) == "live", "that it goes on")
        os.kill(training.pid, signal.SIGKILL)
        training.process.wait()
        told = served.once(lambda told: told.state(training.pid) == "ended", "its end")
        ends = {each.labels["outcome"]: each.value for each in told.of("ends_total")}
        assert sum(ends.values()) == 1
        assert ends["killed"] + ends["silent"] == 1
        assert told.value("allocated_peak_bytes") == own["allocated_peak_bytes"]
        assert told.value("allocated_bytes") is None  # it holds nothing any more
        assert told.value("serve_agents") == 0


@pytest.mark.parametrize(("word", "outcome"), [("leave", "ok"), ("fail", "oom")])
def test_how_it_ended_is_told(
    word: str, outcome: str, sockets: pathlib.Path, served: Served, gpu: dict[str, str]
) -> None:
    with obedient(gpu) as training:
        own = training.tell("steps 3")
        before = _settled(served, training, own)
        assert {each.value for each in before.of("ends_total")} == {0}
        training.say(word)
        training.process.wait()
        told = served.once(lambda told: told.state(training.pid) == "ended", "its end")
        assert {each.labels["outcome"] for each in told.of("ends_total") if each.value} == {outcome}
        assert told.value("ooms_total") == (1 if word == "fail" else 0)
        # Nobody looked: the agent has kept what it is to be explained with.
        assert len(list(sockets.glob("oom-*.log"))) == (1 if word == "fail" else 0)


def _outcomes(told: Exposed, pid: int) -> set[str]:
    return {each.labels["outcome"] for each in told.of("ends_total", pid=str(pid)) if each.value}


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, {"interrupted"}), (signal.SIGKILL, {"killed", "silent"})]
)
def test_who_is_interrupted_is_told_from_who_is_killed(
    number: signal.Signals, expected: set[str], served: Served, gpu: dict[str, str]
) -> None:
    """GIVEN a training, WHEN a person ends it by Ctrl-C, THEN that is no failure; WHEN it is killed, it is one."""
    with obedient(gpu) as training:
        _settled(served, training, training.tell("steps 3"))
        os.kill(training.pid, number)
        training.process.wait()
        told = served.once(lambda told: told.state(training.pid) == "ended", "its end")
        (outcome,) = _outcomes(told, training.pid)
        assert outcome in expected
        [alert] = re.findall(r'memtui_ends_total\{outcome=~"(exception[^"]*)"\}', RULES.read_text())
        assert (outcome in alert.split("|")) == (number == signal.SIGKILL)


def test_a_demo_that_is_ended_by_its_user_has_not_failed(sockets: pathlib.Path, served: Served) -> None:
    """GIVEN `memtui demo --headless`, WHEN Ctrl-C ends it, THEN its training was interrupted, and is gone."""
    environment = {**serve_environment(sockets), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "memtui", "demo", "--headless"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        try:
            told = served.once(lambda told: told.value("steps_total"), "its steps")
            [sample] = told.of("steps_total")
            pid = int(sample.labels["pid"])
            demo.send_signal(signal.SIGINT)
            _, errors = demo.communicate(timeout=60)
            assert (demo.returncode, errors) == (0, b"")
            told = served.once(lambda told: told.state(pid) == "ended", "its end")
            assert _outcomes(told, pid) == {"interrupted"}
            assert not pathlib.Path(f"/proc/{pid}").exists()
        finally:
            if demo.poll() is None:
                demo.terminate()


def test_a_process_that_was_stopped_before_anybody_came_is_told(sockets: pathlib.Path, gpu: dict[str, str]) -> None:
    """GIVEN an agent that cannot greet, THEN its process is told, with what the system knows, and nothing waits."""
    with obedient({**gpu, "RANK": "1"}) as training:
        programs.wait_for((sockets / f"agent-{training.pid}.sock").exists)
        os.kill(training.pid, signal.SIGSTOP)
        with serving(environment=serve_environment(sockets, gpu)) as served:
            told = served.once(lambda told: told.state(training.pid) is not None, "the process")
            assert told.state(training.pid) == "stopped"
            [sample] = told.of("state", state="stopped")
            assert (sample.labels["run"], sample.labels["rank"]) == ("obedient.py", "1")
            os.kill(training.pid, signal.SIGCONT)
            served.once(lambda told: told.state(training.pid) == "live", "that it goes on")


def test_an_agent_that_is_taken_out_is_not_silent(sockets: pathlib.Path, served: Served, gpu: dict[str, str]) -> None:
    """GIVEN a training that goes on without its agent, THEN nothing is told of it any more."""
    with obedient(gpu) as training:
        _settled(served, training, training.tell("steps 3"))
        with programs.AgentConnection(sockets, training.pid) as viewer:
            viewer.ask("unload")
            list(viewer.messages())
        told = served.once(lambda told: told.state(training.pid) is None, "that it is gone")
        assert told.value("serve_agents") == 0
        assert training.tell("steps 1")["allocated_bytes"]


def test_a_daemon_that_comes_again_takes_up_what_was(sockets: pathlib.Path, gpu: dict[str, str]) -> None:
    """GIVEN a training, WHEN the daemon is started a second time, THEN steps, events and peaks are as they were."""
    with obedient(gpu) as training:
        own = training.tell("steps 10")
        training.tell("exhaust")
        found = []
        for _ in range(2):
            with serving(environment=serve_environment(sockets, gpu)) as served:
                _settled(served, training, own)
                told = served.once(lambda told: told.value("ooms_total") == 1)
                names = ("steps_total", "ooms_total", "allocated_peak_bytes", "predicted_peak_allocated_bytes")
                found.append([*(told.value(name) for name in names), told.value("events_total", event="oom")])
        assert found[0] == found[1]


def test_both_formats_are_those_of_the_library(served: Served, gpu: dict[str, str]) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    with obedient(gpu) as training:
        _settled(served, training, training.tell("steps 3"))
        text = served.scrape(_OPENMETRICS)
        names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
        assert text.endswith("# EOF\n")
        assert names == {sample.name for sample in served.exposed().samples}


def test_what_is_predicted_is_what_the_screen_says(
    sockets: pathlib.Path, served: Served, gpu: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a training that leaks, THEN peak, headroom and leak are those of a viewer that has seen the same."""
    for name, value in serve_environment(sockets, gpu).items():
        if name.startswith(("MEMTUI_", "VGPU_")):
            monkeypatch.setenv(name, value)
    with obedient(gpu) as training:
        training.tell("steps 20")
        own = training.tell("leak 400")
        held = own["reserved_bytes"] + (300 << 20)
        told = served.once(lambda told: told.value("process_device_bytes") == held, "the driver's figure")
        session = watch(training.pid, settled(420))
        ladder = build_ladder(session, "cuda:0", time.monotonic_ns(), DEFAULT)
        forecast = build_forecast(session, "cuda:0", ladder)
        assert told.value("predicted_peak_allocated_bytes") == forecast.allocated_bytes
        assert told.value("predicted_peak_device_bytes") == forecast.device_bytes
        assert told.value("headroom_bytes") == forecast.headroom_bytes
        leak = find_leak(session.floors("cuda:0"), forecast.headroom_bytes, DEFAULT)
        assert leak is not None
        rate, left = told.value("leak_bytes_per_step"), told.value("steps_left")
        # Which beginnings of steps are kept for one who comes late differs a little.
        assert rate == pytest.approx(leak.bytes_per_step, rel=0.05) == pytest.approx(1 << 20, rel=0.05)
        assert left == pytest.approx(leak.steps_to_full, rel=0.05)


def test_a_real_prometheus_takes_it(served: Served, gpu: dict[str, str]) -> None:
    """GIVEN Prometheus that scrapes the daemon, THEN its queries have the training's figures, and counters rise."""
    with obedient(gpu) as training, prometheus([Target(f"127.0.0.1:{served.port}")], interval_s=1) as client:
        own = training.tell("steps 5")
        wait_until(lambda: client.query("memtui_steps_total == 5"), "the steps")
        [sample] = client.query("memtui_allocated_bytes")
        assert sample.value == own["allocated_bytes"]
        assert sample.labels["pid"] == str(training.pid)
        training.tell("exhaust")
        wait_until(lambda: client.query("increase(memtui_ooms_total[1m]) > 0"), "the failed request")
        wait_until(lambda: client.query('increase(memtui_events_total{event="oom"}[1m]) > 0'), "its event")
        assert [each.value for each in client.query("sum(memtui_category_bytes) - sum(memtui_allocated_bytes)")] == [0]


def test_a_training_without_a_gpu_is_told_of_the_host(sockets: pathlib.Path) -> None:
    require_library()
    environment = programs.host_environment(sockets)
    program = (
        "import sys, torch\nmodel = torch.nn.Linear(2000, 2000)\noptimizer = torch.optim.SGD(model.parameters())\n"
        "for _ in range(3):\n    model(torch.zeros(8, 2000)).sum().backward()\n    optimizer.step()\n"
        "print('ready', flush=True)\nsys.stdin.readline()\n"
    )
    pipe = subprocess.PIPE
    with programs.started("-c", program, environment=environment, stdin=pipe, stdout=pipe) as training:
        assert training.stdout is not None
        assert training.stdout.readline() == b"ready\n"
        with serving(environment=serve_environment(sockets)) as served:
            told = served.once(lambda told: told.value("allocated_bytes", device="host"), "its figures")
            [sample] = told.of("allocated_bytes")
            assert (sample.labels["run"], sample.labels["device_uuid"]) == ("-c", "")
            assert (told.value("resident_bytes") or 0) > sample.value > 2 * 2000 * 2000 * 4
            capacity, headroom = told.value("capacity_bytes"), told.value("headroom_bytes")
            assert capacity
            assert headroom == capacity - (told.value("predicted_peak_device_bytes") or 0)
            assert told.value("process_device_bytes") is None


def test_a_program_that_is_only_tried_out_is_no_training(
    sockets: pathlib.Path, served: Served, gpu: dict[str, str]
) -> None:
    with obedient({**gpu, "MEMTUI_REHEARSAL": "1000"}) as tried, obedient(gpu) as training:
        training.tell("steps 2")
        tried.tell("steps 2")
        told = served.once(lambda told: told.state(training.pid) == "live", "the training")
        assert (sockets / f"agent-{tried.pid}.sock").exists()
        assert {sample.labels["pid"] for sample in told.of("state")} == {str(training.pid)}


def test_auto_gets_the_agent_into_trainings_that_are_named(sockets: pathlib.Path) -> None:
    """GIVEN two trainings without an agent, WHEN one is named, THEN it alone gets one."""
    require_library()
    environment = programs.plain_environment() | programs.virtual_gpu.virtual_environment(memory="8GiB")
    environment["MEMTUI_RUNTIME_DIR"] = str(sockets)
    named = {**environment, "MEMTUI_RUN": "named"}
    other = [sys.executable, "-c", (programs.PROGRAMS / "obedient.py").read_text()]
    pipe = subprocess.PIPE
    with obedient(named) as training, subprocess.Popen(other, env=environment, stdin=pipe, stdout=pipe) as second:
        try:
            Obedient(second)
            with serving(
                "--auto", "programs/obedient.py", environment=serve_environment(sockets, environment)
            ) as served:
                # It gets in while Python code runs, which does not wait for a line.
                told = served.once(
                    lambda told: training.tell("steps 1") and told.state(training.pid) == "live", "the agent"
                )
                _settled(served, training, training.tell("steps 3"))
                assert {sample.labels["pid"] for sample in told.of("state")} == {str(training.pid)}
                # What the other holds is nobody's that has an agent.
                assert told.value("device_other_bytes")
            assert f"the agent is in process {training.pid}" in served.rest
            assert str(second.pid) not in served.rest
        finally:
            second.kill()
