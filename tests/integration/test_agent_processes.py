"""Children, start-up, sockets and viewers: where the agent is, where it is not, and who can hold it up."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from memtui.wire.frames import Bye, Frame, Hello, Refusal
from tests.support import programs

TRAIN = """
import sys, time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.002)
"""


def test_the_agent_loads_nothing_of_the_viewer(tmp_path: pathlib.Path) -> None:
    """No package that torch has not imported, and no memtui, in the training process."""
    code = TRAIN + (
        "before = set()\ntrain(0.5)\nnames = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(names & {'memtui', 'textual', 'rich', 'psutil', 'pynvml', 'pyte', 'asyncio'}), '_memtui' in names)"  # noqa: E501
    )
    plain = programs.plain_environment() | {"CUDA_VISIBLE_DEVICES": ""}
    programs.require_torch()
    without = subprocess.run(programs.command("-c", code), env=plain, capture_output=True, text=True, check=True)
    there = subprocess.run(
        programs.command("-c", code),
        env=programs.host_environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split("]")[0] == without.stdout.split("]")[0]
    assert there.stdout.endswith("True\n")


def test_children_that_do_not_train_stay_dormant(tmp_path: pathlib.Path) -> None:
    """A child that only imports torch has no thread and no socket; one that trains has."""
    code = "import torch, threading, sys; print([t.name for t in threading.enumerate()], flush=True)"
    environment = programs.host_environment(tmp_path)
    quiet = subprocess.run(
        programs.command("-c", code, direct=False), env=environment, capture_output=True, text=True, check=True
    )
    assert quiet.stdout == "['MainThread']\n"
    assert not list(tmp_path.iterdir())
    with programs.started("-c", TRAIN + "train(60)", environment=environment, direct=False) as process:
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            viewer.until(lambda message: isinstance(message, Frame) and message.step > 2)


def test_a_forked_child_begins_afresh(tmp_path: pathlib.Path) -> None:
    """The child of a training has no socket until it trains, then its own; the parent's goes on."""
    code = TRAIN + (
        "import os, threading\ntrain(0.5)\nchild = os.fork()\nif child == 0:\n"
        "    names = ' '.join(t.name for t in threading.enumerate())\n"
        "    os.write(1, f'child {names}\\n'.encode())\n"
        "    sys.stdin.readline()\n    train(60)\n    os._exit(0)\nos.write(1, f'{child}\\n'.encode())\ntrain(60)\n"
    )
    environment = programs.host_environment(tmp_path)
    with programs.started(
        "-c", code, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = {process.stdout.readline(), process.stdout.readline()}
        assert "child MainThread\n" in lines
        child = int(next(line for line in lines if line[0].isdigit()))
        try:
            assert not (tmp_path / f"agent-{child}.sock").exists()
            process.stdin.write("\n")
            process.stdin.flush()
            with programs.AgentConnection(tmp_path, child) as viewer:
                hello = viewer.until(lambda message: isinstance(message, Hello))
                assert hello.pid == child
                viewer.until(lambda message: isinstance(message, Frame) and message.step > 2)
            with programs.AgentConnection(tmp_path, process.pid) as viewer:
                assert viewer.until(lambda message: isinstance(message, Hello)).pid == process.pid
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_sitecustomize_that_was_there_still_runs(tmp_path: pathlib.Path) -> None:
    """One found later on the path is run as before; sys.path does not show ours."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.custom = __file__\n")
    base = programs.plain_environment() | {"PYTHONPATH": str(tmp_path / "site")}
    code = "import sys, sitecustomize; print(sys.custom, sitecustomize.__file__, sys.path, len(sys.meta_path))"
    plain = subprocess.run([sys.executable, "-c", code], env=base, capture_output=True, text=True, check=True).stdout
    observed = programs.with_agent(base, tmp_path)
    there = subprocess.run([sys.executable, "-c", code], env=observed, capture_output=True, text=True, check=True)
    without_count, with_count = int(plain.split()[-1]), int(there.stdout.split()[-1])
    assert there.stdout.rsplit(" ", 1)[0] == plain.rsplit(" ", 1)[0]
    assert with_count == without_count + 1  # what waits for torch
    assert there.stderr == ""


def test_isolated_interpreters_are_left_alone(tmp_path: pathlib.Path) -> None:
    """`python -I` and `-E` ignore the way in, and nothing goes wrong."""
    observed = programs.with_agent(programs.plain_environment(), tmp_path)
    for switch in ("-I", "-E", "-S"):
        done = subprocess.run(
            [sys.executable, switch, "-c", "print(1)"], env=observed, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_late_viewer_sees_the_past_and_another_protocol_is_refused(tmp_path: pathlib.Path) -> None:
    """History comes first, each viewer gets all of it, and a stranger gets one clear line."""
    with programs.started("-c", TRAIN + "train(60)", environment=programs.host_environment(tmp_path)) as process:
        with programs.AgentConnection(tmp_path, process.pid) as first:
            early = first.until(lambda message: isinstance(message, Frame) and message.step > 0)
            first.until(lambda message: isinstance(message, Frame) and message.sequence > early.sequence + 20)
            with programs.AgentConnection(tmp_path, process.pid) as second:
                seen = second.until(lambda message: isinstance(message, Frame) and message.sequence == early.sequence)
                assert seen == early
            with programs.AgentConnection(tmp_path, process.pid, history=False) as third:
                fresh = third.until(lambda message: isinstance(message, Frame))
                assert fresh.sequence > early.sequence + 20
            with programs.AgentConnection(tmp_path, process.pid, protocol=999) as stranger:
                refusal = next(stranger.messages())
                assert isinstance(refusal, Refusal)
                assert "999" in refusal.reason
                assert "\n" not in refusal.reason


def test_a_viewer_that_does_not_read_holds_nothing_up(tmp_path: pathlib.Path) -> None:
    """Steps and frames go on for another viewer, and the slow one still gets what was queued for it."""
    environment = programs.host_environment(tmp_path)
    with (
        programs.started("-c", TRAIN + "train(600)", environment=environment) as process,
        programs.AgentConnection(tmp_path, process.pid) as slow,
        programs.AgentConnection(tmp_path, process.pid) as quick,
    ):
        first = quick.until(lambda message: isinstance(message, Frame))
        last = quick.until(lambda message: isinstance(message, Frame) and message.sequence > first.sequence + 60)
        assert last.lost_frames == 0
        assert last.step > first.step
        assert slow.until(lambda message: isinstance(message, Frame) and message.sequence == last.sequence) == last


def test_the_socket_comes_back_and_goes_at_the_end(tmp_path: pathlib.Path) -> None:
    """A cleaner may remove it; at the end of the program nothing is left."""
    with programs.started(
        "-c", TRAIN + "train(600)", environment=programs.host_environment(tmp_path), stderr=subprocess.DEVNULL
    ) as process:
        path = tmp_path / f"agent-{process.pid}.sock"
        programs.wait_for(path.exists)
        assert path.stat().st_mode & 0o777 == 0o600
        path.unlink()
        programs.wait_for(path.exists, what="the socket again")
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            viewer.until(lambda message: isinstance(message, Frame))
            process.send_signal(signal.SIGINT)
            bye = viewer.until(lambda message: isinstance(message, Bye))
            assert bye.exception == "KeyboardInterrupt"
        process.wait()
        assert not path.exists()


def test_start_step_and_stop_in_a_script(tmp_path: pathlib.Path) -> None:
    """`memtui.start()` does what `run` does, also after models were built; `step()` counts; `stop()` ends it."""
    programs.require_torch()
    root = pathlib.Path(__file__).resolve().parents[2]
    environment = programs.plain_environment() | {
        "CUDA_VISIBLE_DEVICES": "",
        "MEMTUI_RUNTIME_DIR": str(tmp_path),
        "PYTHONPATH": str(root),
    }
    code = TRAIN + (
        "import memtui\nmemtui.start()\nmemtui.start()\ntrain(1)\nmemtui.step()\nprint('one', flush=True)\n"
        "sys.stdin.readline()\nmemtui.stop()\ntrain(0.2)\nimport threading\n"
        "print([t.name for t in threading.enumerate()], type(torch.autograd._engine_run_backward).__name__, "
        "type(model._forward_pre_hooks).__name__, flush=True)\n"
    )
    with programs.started(
        "-c", code, environment=environment, direct=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "one\n"
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            frame = viewer.until(lambda message: isinstance(message, Frame) and message.step > 5)
            assert frame.devices[0].classification is not None
            process.stdin.write("\n")
            process.stdin.flush()
            for _ in viewer.messages():
                pass
        end = process.stdout.readline()
    assert end.strip() == "['MainThread'] function OrderedDict"


def test_hooks_of_the_programs_own_behind_the_agents(tmp_path: pathlib.Path) -> None:
    """GIVEN torch goes on to the program's hook after the agent's, THEN that is not taken out in between."""
    programs.require_torch()
    code = TRAIN + (
        "import memtui, time\nfrom torch.optim.optimizer import register_optimizer_step_post_hook as register\n"
        "for _ in range(5):\n"
        "    memtui.start()\n    own = register(lambda *_: None)\n    train(0.1)\n"
        "    memtui.stop()\n    train(0.2)\n    own.remove()\n    time.sleep(0.1)\n"
        "print(type(torch.autograd._engine_run_backward).__name__)\n"
    )
    environment = programs.plain_environment() | {
        "CUDA_VISIBLE_DEVICES": "",
        "MEMTUI_RUNTIME_DIR": str(tmp_path),
        "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2]),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "function\n", "")


def test_an_agent_that_is_asked_for_again_at_once(tmp_path: pathlib.Path) -> None:
    """GIVEN the last one is still leaving, THEN the new one sees forwards all the same, and starts without a delay."""
    programs.require_torch()
    code = TRAIN + (
        "import memtui, time\nmemtui.stop()\nbegun = time.monotonic()\n"
        "for _ in range(4):\n    memtui.start()\n    train(0.2)\n    memtui.stop()\n"
        "memtui.start()\nprint(time.monotonic() - begun < 6, flush=True)\ntrain(60)\n"
    )
    environment = programs.plain_environment() | {
        "CUDA_VISIBLE_DEVICES": "",
        "MEMTUI_RUNTIME_DIR": str(tmp_path),
        "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2]),
    }
    with programs.started(
        "-c", code, environment=environment, direct=False, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            viewer.until(lambda message: isinstance(message, Frame) and message.boundary == "forward_start")


def test_start_up_cost_of_a_process_without_torch(tmp_path: pathlib.Path) -> None:
    """The way in imports nothing: as many modules as without it, but for itself."""
    code = "import sys; print(len(sys.modules))"
    plain = programs.plain_environment()
    counts = [
        int(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
        for env in (plain, programs.with_agent(plain, tmp_path))
    ]
    assert counts[1] - counts[0] <= 1


def test_a_signal_that_the_program_waits_for_stays_its_own(tmp_path: pathlib.Path) -> None:
    """Blocked by the program in all of its threads, it is not taken by the agent's."""
    code = TRAIN + (
        "import memtui\nmemtui.start()\ntrain(0.3)\nimport signal\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('handled', flush=True))\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nprint('up', flush=True)\nsys.stdin.readline()\n"
        "print(int(signal.sigwait([signal.SIGUSR1])) == signal.SIGUSR1, flush=True)\n"
    )
    programs.require_torch()
    root = pathlib.Path(__file__).resolve().parents[2]
    environment = programs.host_environment(tmp_path)
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(root)])
    with programs.started(
        "-c", code, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        with programs.AgentConnection(tmp_path, process.pid) as viewer:
            viewer.until(lambda message: isinstance(message, Frame))
            assert process.stdout.readline() == b"up\n"
            process.send_signal(signal.SIGUSR1)
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.read() == b"True\n"
