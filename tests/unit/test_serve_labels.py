"""What a monitored process calls itself never breaks what is exposed, and never makes it large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.serve.labels import WIDEST, label, rank_label, run_of

HOSTILE = (
    'a"} 1\nmemtui_ooms_total{run="b"} 9',
    "back\\slash\\",
    "\x1b[31mred\x1b]0;title\x07",
    "\ud800\udfff lone surrogates",
    "line\u2028end\x85\r\n\x00",
    "\u202egnp.exe",
    "x" * (1 << 20),
    "\U0010ffff\ufffe\ufeff",
    "",
    " ",
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_label_is_one_short_line_that_can_be_printed(text: str) -> None:
    _check(label(text))


@given(st.text(st.characters(), max_size=400))
def test_whatever_it_is(text: str) -> None:
    _check(label(text))
    _check(run_of({"MEMTUI_RUN": text}, ()))
    _check(run_of({}, (text,)))
    _check(rank_label({"RANK": text}))


def _check(cleaned: str) -> None:
    assert len(cleaned) <= WIDEST
    assert all(character.isprintable() for character in cleaned), ascii(cleaned)
    cleaned.encode()


def test_a_run_is_called_as_its_launcher_calls_it() -> None:
    assert run_of({"SLURM_JOB_ID": "7", "PBS_JOBID": "8"}, ("/home/me/train.py",)) == "7"
    assert run_of({"MEMTUI_RUN": "mine", "SLURM_JOB_ID": "7"}, ()) == "mine"
    assert run_of({"TORCHELASTIC_RUN_ID": "none"}, ("/home/me/train.py", "--lr", "1")) == "train.py"
    assert run_of({"TORCHELASTIC_RUN_ID": "abc"}, ("train.py",)) == "abc"
    assert run_of({}, ()) == ""
    assert rank_label({"RANK": "12"}) == "12"
    assert rank_label({"RANK": "twelve"}) == ""
