"""What is around the ranks that `memtui serve` exposes: launchers, the driver, and GPUs that come and go."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from tests.support import programs
from tests.support.serving import (
    OBEDIENT,
    Exposed,
    Obedient,
    obedient,
    require_library,
    serve_environment,
    serving,
)

pytestmark = pytest.mark.virtual_gpu

_GIB = 1 << 30
#: Has an agent and no rank, as torchrun's has, and starts one rank that hears what it is told.
_LAUNCHER = """
import os, subprocess, sys
import torch
torch.nn.Linear(10, 10)
sys.exit(subprocess.call([sys.executable, sys.argv[1]], env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"}))
"""


def gpu_of(sockets: pathlib.Path, memory: str) -> dict[str, str]:
    require_library()
    return programs.virtual_environment_with_agent(sockets, memory=memory, context="300MiB")


def total(told: Exposed) -> float | None:
    found = told.of("device_total_bytes")
    return found[0].value if found else None


def test_a_daemon_that_comes_later_sees_virtual_gpus_and_then_others(sockets: pathlib.Path) -> None:
    """GIVEN virtual GPUs of a training and later those of another, THEN each has its own driver's figures."""
    environment = serve_environment(sockets)
    with obedient(gpu_of(sockets, "8GiB")) as first:
        first.tell("steps 5")
        with serving(environment=environment) as served:
            assert served.line.endswith("1 agent; virtual GPUs, which are read next\n")
            told = served.once(lambda told: told.of("headroom_bytes", pid=str(first.pid)), "the first one's driver")
            assert total(told) == 8 * _GIB
            assert told.value("process_device_bytes", pid=str(first.pid))
            with obedient(gpu_of(sockets, "24GiB")) as second:
                second.tell("steps 5")
                told = served.once(lambda told: told.value("steps_total", pid=str(second.pid)) == 5, "the second one")
                # Of the same UUID, and not the same GPU.
                assert told.value("process_device_bytes", pid=str(second.pid)) is None
                assert total(told) == 8 * _GIB
                first.process.kill()
                first.process.wait()
                told = served.once(lambda told: total(told) == 24 * _GIB, "the second one's driver")
                served.once(lambda told: told.value("process_device_bytes", pid=str(second.pid)), "its memory")
                # The reading that is paired with its newest frame may be one older.
                served.once(lambda told: told.value("capacity_bytes", pid=str(second.pid)) == 24 * _GIB, "its capacity")
                second.process.kill()
                second.process.wait()
                served.once(lambda told: total(told) is None, "that its GPU is gone")


def test_a_rank_that_has_just_ended_is_no_stranger(sockets: pathlib.Path) -> None:
    """GIVEN a rank that the driver's last reading still lists, WHEN it ends, THEN nobody else holds its memory."""
    gpu = gpu_of(sockets, "8GiB")
    with serving(environment=serve_environment(sockets, gpu)) as served, obedient(gpu) as training:
        training.tell("steps 3")
        served.once(lambda told: (told.value("process_device_bytes") or 0) > 300 << 20, "the driver's figure")
        training.say("fail")
        training.process.wait()
        told = served.once(lambda told: told.state(training.pid) == "ended", "its end")
        assert told.value("device_other_bytes") == 0
        assert told.value("device_used_bytes")  # read when it was there
        told = served.once(lambda told: told.value("device_used_bytes") == 0, "the next reading")
        assert told.value("device_other_bytes") == 0


def test_a_launcher_is_no_rank(sockets: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """GIVEN a process that has started a rank, and has an agent, THEN the rank alone is exposed, to its end."""
    gpu = {**gpu_of(sockets, "8GiB"), "MEMTUI_RUN": "r"}
    script = tmp_path / "launcher.py"
    script.write_text(_LAUNCHER)
    pipe = subprocess.PIPE
    with (
        serving(environment=serve_environment(sockets, gpu)) as served,
        programs.started(
            str(script), OBEDIENT, environment=gpu, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        ) as launcher,
    ):
        rank = Obedient(launcher)  # they share its pipes
        rank.tell("steps 3")
        assert (sockets / f"agent-{launcher.pid}.sock").exists()
        told = served.once(
            lambda told: told.value("serve_agents") == 2 and told.of("steps_total", rank="0"), "both agents"
        )
        told = served.once(lambda told: not told.of("state", pid=str(launcher.pid)), "that it is no rank")
        assert {sample.labels["rank"] for sample in told.of("state")} == {"0"}
        rank.say("fail")
        launcher.wait()
        told = served.once(lambda told: told.of("ends_total", rank="0", outcome="oom")[0].value == 1, "its end")
        told = served.once(lambda told: told.value("serve_agents") == 0, "the launcher's end")
        assert {sample.labels["rank"] for sample in told.of("ends_total")} == {"0"}
