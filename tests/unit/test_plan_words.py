"""Which words of `memtui plan` are memtui's, and how a setting is put among the program's."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from memtui.cli import main, split_plan
from memtui.planning.choices import applied, combinations, parse_choices
from memtui.planning.errors import PlanningError
from memtui.planning.rehearsal import _last_line
from memtui.planning.setting import parse_setting, with_value


@pytest.mark.parametrize(
    ("words", "own", "program"),
    [
        ("plan --gpu 4090 train.py --lr 1", "plan --gpu 4090", "train.py --lr 1"),
        ("plan train.py --gpu a100-80g --lr 1", "plan --gpu a100-80g", "train.py --lr 1"),
        ("plan train.py --gpu=4090 --json data --gpu 3", "plan --gpu=4090 --json", "train.py data --gpu 3"),
        ("plan --gpu 4090 train.py -- --gpu 0", "plan --gpu 4090", "train.py --gpu 0"),
        ("plan -m package.train --gpu 4090 --steps 3 x", "plan --gpu 4090 --steps 3", "-m package.train x"),
        ("plan --gpu 4090 -- torchrun --gpus 2 x.py", "plan --gpu 4090", "-- torchrun --gpus 2 x.py"),
        ("plan --gpu 4090 train.py --steps 100", "plan --gpu 4090", "train.py --steps 100"),
        ("plan train.py --steps 100 --gpu 4090", "plan", "train.py --steps 100 --gpu 4090"),
        ("plan train.py --gpu 4090 --epochs 1 --steps 9", "plan --gpu 4090", "train.py --epochs 1 --steps 9"),
        ("plan train.py --gpu 4090 --steps 5 -- --steps 9", "plan --gpu 4090 --steps 5", "train.py --steps 9"),
        ("plan --list", "plan --list", ""),
    ],
)
def test_options_may_stand_before_and_behind_the_script(words: str, own: str, program: str) -> None:
    assert split_plan(words.split()) == (own.split(), program.split())


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("batch_size", "t.py --batch-size 8 x", "t.py --batch-size 32 x"),
        ("batch-size", "t.py --batch_size=8", "t.py --batch_size=32"),
        ("train.batch", "t.py train.batch=8", "t.py train.batch=32"),
        ("batch", "t.py x", "t.py x --batch 32"),
        ("-b", "t.py", "t.py -b 32"),
        ("batch", "t.py --batches 8", "t.py --batches 8 --batch 32"),
    ],
)
def test_a_setting_takes_the_place_of_what_is_there(name: str, words: str, expected: str) -> None:
    assert with_value(name, words.split(), {}, "32") == (expected.split(), {})


def test_a_name_in_capitals_is_a_variable() -> None:
    assert with_value("BATCH", ["t.py"], {"A": "b"}, "3") == (["t.py"], {"A": "b", "BATCH": "3"})


@pytest.mark.parametrize("text", ["batch", "batch=1", "batch=0..4", "batch=8..4", "1..4", "batch=1..x", "=1..4"])
def test_no_setting(text: str) -> None:
    with pytest.raises(PlanningError, match=r"write an argument|from a number"):
        parse_setting(text)


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["plan"], 2, "say for which GPU"),
        (["plan", "--gpu", "4090"], 2, "name a program"),
        (["plan", __file__, "--steps", "9", "--gpu", "4090"], 2, "--gpu is among the program's own words here"),
        (["plan", "--gpu", "4090", "no_such_script.py"], 2, "no such script"),
        (["plan", "--gpu", "4090", "--", "no-such-command"], 127, "cannot run no-such-command: No such file"),
        (["plan", "--gpu", "4090", "--fit", "a=1..2", "--fit", "b=1..2", __file__], 2, "--fit searches one setting"),
        (["plan", "--gpu", "4090", "--fit", "a=1..2", "--compare", "b=1,2", __file__], 2, "give one of them"),
        (["plan", "--gpu", "4090", "--live", "--compare", "b=1,2", __file__], 2, "--live shows one run"),
        (["plan", "--gpu", "4099", __file__], 1, "there is no GPU '4099'"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    words: list[str], status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert line in told.err
    assert told.err.count("\n") == 1


def test_choices_are_all_combined() -> None:
    choices = parse_choices(["batch-size=8,16", "AMP=on,off"])
    assert combinations(choices)[1] == {"batch-size": "8", "AMP": "off"}
    assert len(combinations(choices)) == 4
    assert combinations([]) == [{}]
    words, variables = applied(combinations(choices)[2], ["t.py", "--batch_size", "1"])
    assert (words, variables) == (["t.py", "--batch_size", "16"], {"AMP": "on"})


@pytest.mark.parametrize("texts", [["batch"], ["batch="], ["batch=1,,2"], ["=1,2"], ["batch=1", "batch=2"]])
def test_no_choice(texts: list[str]) -> None:
    with pytest.raises(PlanningError, match=r"names no values|compared twice"):
        parse_choices(texts)


def test_what_is_not_installed_is_one_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "psutil.py").write_text("raise ModuleNotFoundError(\"No module named 'psutil'\", name='psutil')\n")
    path = os.pathsep.join([str(tmp_path), str(pathlib.Path(__file__).resolve().parents[2])])
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "plan", "--gpu", "4090", __file__],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "memtui: psutil is not installed: pip install psutil\n")


def test_the_list_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--list"]) == 0
    assert "a100-80g" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("step 1\nTraceback (most recent call last):\nValueError: too few\n", "ValueError: too few"),
        (
            "[rank0]: ValueError: too few\nW1130 torch/distributed: killing\n"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n****\n",
            "ValueError: too few",
        ),
        ("an Error: of no line of its own, at its beginning\nbye\n", "bye"),
        ("", ""),
    ],
)
def test_of_a_failed_launcher_its_rank_s_exception_is_told(output: str, told: str) -> None:
    assert _last_line(output) == told


@pytest.mark.parametrize(
    ("declared", "asked", "given"),
    [
        ("--batch-size", "batch_size", "--batch-size"),
        ("--batch_size", "batch-size", "--batch_size"),
        ("--batch_size", "batch_size", "--batch_size"),
        ("--batch-size-eval", "batch_size", "--batch_size"),
    ],
)
def test_an_argument_is_spelled_as_the_script_has_it(
    declared: str, asked: str, given: str, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"parser.add_argument('{declared}', type=int)\n", encoding="utf-8")
    words, _ = with_value(asked, ["python", str(script)], {}, "8")
    assert words[-2:] == [given, "8"]
