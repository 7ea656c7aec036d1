"""`memtui plan` as a user calls it: the answer is what the program takes, and nothing of the program is left."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import programs
from tests.support.planning import DOES_NOT_FIT, FITS, ROOT, TRAINING, UNKNOWN, environment, plan, write_script
from tests.support.virtual_gpu import require_virtual_gpu, virtual_environment

pytestmark = pytest.mark.virtual_gpu

_EXAMPLE = ROOT / "memtui" / "examples" / "mlp.py"
#: Where what is written stays: in the folder of the sockets.
_SLOW = """    import time; time.sleep(0.3 * (step > 1))
    if step == 4:
        pathlib.Path(os.environ["MEMTUI_RUNTIME_DIR"], f"reached.{os.getpid()}").touch()
    optimizer.step()"""


@pytest.fixture(autouse=True)
def _virtual_gpu() -> None:
    require_virtual_gpu()


def test_a_published_run_fits_and_nothing_of_it_is_kept(tmp_path: pathlib.Path) -> None:
    """The published peak of its first step is 504.4 MB; with a context that is given the answer is exact."""
    answer = plan(tmp_path, str(_EXAMPLE), "--gpu", "a6000", "--context", "300MiB", "--json", status=FITS)
    assert round(answer["step_peaks_bytes"][0] / 2**20, 1) == 504.4
    assert answer["peak_allocated_bytes"] == max(answer["step_peaks_bytes"])
    assert answer["fits"] is True
    assert (answer["confidence"], answer["reasons"]) == ("exact", [])
    assert answer["peak_device_bytes"] == answer["peak_reserved_bytes"] + (300 << 20)
    assert answer["spare_bytes"] == answer["usable_bytes"] - answer["peak_device_bytes"]
    assert answer["peak_phase"] == "backward"
    assert answer["composition"]["at_peak"]
    assert sum(answer["composition"]["categories"].values()) == answer["composition"]["allocated_bytes"]
    assert answer["expandable_segments"]["fits"] is True


def test_its_peaks_are_those_that_the_program_counts(tmp_path: pathlib.Path) -> None:
    program = write_script(tmp_path)
    alone = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=virtual_environment(memory="24GiB"),
        capture_output=True,
        text=True,
        check=True,
    )
    allocated, reserved = map(int, alone.stdout.split()[1:])
    (tmp_path / "checkpoint.txt").unlink()
    answer = plan(tmp_path, "--gpu", "24GiB", "--steps", "8", "--json", program, status=FITS, STEPS="200")
    assert (answer["peak_allocated_bytes"], answer["peak_reserved_bytes"]) == (allocated, reserved)
    assert not (tmp_path / "checkpoint.txt").exists()
    assert answer["confidence"] == "close"  # nobody knows the context of such a card
    assert answer["context_bytes"] is None
    assert (answer["ended"], answer["steps"], len(answer["step_peaks_bytes"])) == ("steps", 8, 8)


def test_what_does_not_fit_is_short_by_what_a_larger_card_would_have(tmp_path: pathlib.Path) -> None:
    text = plan(tmp_path, "--gpu", "2GiB", write_script(tmp_path), "--batch", "120000", status=DOES_NOT_FIT)
    assert "does not fit 2GiB of memory: short by 4." in text
    assert "GiB in forward of step 1" in text
    answer = plan(tmp_path, "--gpu", "2GiB", "--json", "train.py", "--batch", "120000", status=DOES_NOT_FIT)
    assert answer["spare_bytes"] == (2 << 30) - answer["peak_device_bytes"] < 0
    assert answer["out_of_memory"]["phase"] == "forward"


def test_the_largest_value_that_fits(tmp_path: pathlib.Path) -> None:
    """Really running it and the next one says the same."""
    program = write_script(tmp_path, TRAINING.replace('"64"))', '"64")) * 2048'))
    found = plan(tmp_path, "--gpu", "2GiB", "--fit", "BATCH=1..40", "--json", program, status=FITS, STEPS="3")
    assert len(found["runs"]) <= 8
    for value, status in ((found["largest"], 0), (found["largest"] + 1, 1)):
        variables = virtual_environment(memory="2GiB") | {"BATCH": str(value), "STEPS": "3"}
        done = subprocess.run([sys.executable, program], cwd=tmp_path, env=variables, capture_output=True, check=False)
        assert done.returncode == status


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\nprint(torch.zeros(3))\n", "unknown: the program used no GPU"),
        (
            "import torch\ntorch.zeros(3).cuda()\nraise ValueError('no data')\n",
            "before its first step: ValueError: no data",
        ),
        ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'"),
    ],
)
def test_what_cannot_be_answered(tmp_path: pathlib.Path, text: str, said: str) -> None:
    answer = plan(tmp_path, write_script(tmp_path, text), "--gpu", "4090", status=UNKNOWN)
    assert said in " ".join(answer.split())


def test_values_that_size_a_tensor_limit_the_answer(tmp_path: pathlib.Path) -> None:
    selected = TRAINING.replace("for step", "rows = torch.rand(64, device='cuda').nonzero()\nfor step")
    answer = plan(
        tmp_path, write_script(tmp_path, selected), "--gpu", "24GiB", "--context", "1MiB", "--json", status=FITS
    )
    assert answer["confidence"] == "estimate"
    line = selected.splitlines().index("rows = torch.rand(64, device='cuda').nonzero()") + 1
    assert f"train.py:{line} sizes a tensor by values (nonzero)" in answer["reasons"][0]["text"]


def test_several_gpus_are_a_table(tmp_path: pathlib.Path) -> None:
    text = plan(tmp_path, write_script(tmp_path), "--gpu", "2GiB,24GiB", "--batch", "120000", status=DOES_NOT_FIT)
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [row[3] for row in rows] == ["no", "yes"]


@pytest.fixture
def endless(tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """A plan without end, whose runs have reached their fifth step."""
    program = write_script(tmp_path, TRAINING.replace("    optimizer.step()", _SLOW))
    process = subprocess.Popen(
        [sys.executable, "-m", "memtui", "plan", "--gpu", "24GiB", "--json", "--steps", "90000", program],
        cwd=tmp_path,
        env=environment(tmp_path) | {"STEPS": "100000"},
        stdout=subprocess.PIPE,
    )
    try:
        programs.wait_for(lambda: len(list((tmp_path / "runtime").glob("reached.*"))) == 2, 60, "the steps")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_interrupted_it_tells_what_it_saw_and_leaves_nothing(
    tmp_path: pathlib.Path, endless: subprocess.Popen[bytes]
) -> None:
    endless.send_signal(signal.SIGINT)
    answer = json.loads(endless.communicate(timeout=60)[0])
    assert answer["ended"] == "interrupted"
    assert answer["steps"] > 1
    assert answer["confidence"] == "estimate"
    assert not list((tmp_path / "runtime").glob("agent-*"))
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _runs_in(pid, tmp_path)]


def test_its_runs_end_where_it_is_killed(tmp_path: pathlib.Path, endless: subprocess.Popen[bytes]) -> None:
    endless.kill()
    pids = [path.suffix[1:] for path in (tmp_path / "runtime").glob("reached.*")]
    programs.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 40, "the runs' end")


def _runs_in(pid: str, folder: pathlib.Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False


def test_a_program_that_catches_the_error_and_ends_does_not_fit(tmp_path: pathlib.Path) -> None:
    large = "torch.empty(3 << 30, dtype=torch.uint8, device='cuda')"
    caught = f"import torch\ntry:\n    {large}\nexcept torch.OutOfMemoryError:\n    print('too large')\n"
    answer = plan(tmp_path, write_script(tmp_path, caught), "--gpu", "2GiB", "--json", status=DOES_NOT_FIT)
    assert answer["fits"] is False
