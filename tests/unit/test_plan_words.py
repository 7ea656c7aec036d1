"""Which words of `memtui plan` are memtui's, and how a setting is put among the program's."""

from __future__ import annotations

import pytest

from memtui.cli import main, split_plan
from memtui.planning.errors import PlanningError
from memtui.planning.setting import Setting, parse_setting


@pytest.mark.parametrize(
    ("words", "own", "program"),
    [
        ("plan --gpu 4090 train.py --lr 1", "plan --gpu 4090", "train.py --lr 1"),
        ("plan train.py --gpu a100-80g --lr 1", "plan --gpu a100-80g", "train.py --lr 1"),
        ("plan train.py --gpu=4090 --json data --gpu 3", "plan --gpu=4090 --json", "train.py data --gpu 3"),
        ("plan --gpu 4090 train.py -- --gpu 0", "plan --gpu 4090", "train.py --gpu 0"),
        ("plan -m package.train --gpu 4090 --steps 3 x", "plan --gpu 4090 --steps 3", "-m package.train x"),
        ("plan --gpu 4090 -- torchrun --gpus 2 x.py", "plan --gpu 4090", "-- torchrun --gpus 2 x.py"),
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
    assert Setting(name, 1, 64).applied(words.split(), {}, 32) == (expected.split(), {})


def test_a_name_in_capitals_is_a_variable() -> None:
    assert parse_setting("BATCH=1..64").applied(["t.py"], {"A": "b"}, 3) == (["t.py"], {"A": "b", "BATCH": "3"})


@pytest.mark.parametrize("text", ["batch", "batch=1", "batch=0..4", "batch=8..4", "1..4", "batch=1..x", "=1..4"])
def test_no_setting(text: str) -> None:
    with pytest.raises(PlanningError, match=r"write an argument|from a number"):
        parse_setting(text)


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["plan"], 2, "say for which GPU"),
        (["plan", "--gpu", "4090"], 2, "name a program"),
        (["plan", "--gpu", "4090", "no_such_script.py"], 2, "no such script"),
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


def test_the_list_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--list"]) == 0
    assert "a100-80g" in capsys.readouterr().out
