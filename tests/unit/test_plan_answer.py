"""What a plan answers from its runs: the verdict, what is short, and how far to trust it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.planning.answer import Answer, as_json, verdict
from memtui.planning.answer_text import answer_lines, search_lines, shown
from memtui.planning.comparison import Compared, comparison_lines
from memtui.planning.search import Search, Tried
from memtui.planning.trial import Composition, DeviceTrial, OutOfMemory, Trial
from memtui.session.steps import StepPeak
from memtui.virtual_gpu.report_file import HostRead, Note

_GIB = 1 << 30
_PEAK = StepPeak("cuda:0", 2, 10 * _GIB, True, "backward")
_DEVICE = DeviceTrial(
    device="cuda:0",
    usable_bytes=24 * _GIB,
    context_bytes=_GIB // 2,
    peak_allocated_bytes=10 * _GIB,
    peak_reserved_bytes=12 * _GIB,
    peak_device_bytes=25 * _GIB // 2,
    peak=_PEAK,
    steps=(replace(_PEAK, step=1, bytes_held=9 * _GIB), _PEAK),
    composition=Composition(2, "backward", 10 * _GIB, {"activations": 8 * _GIB, "parameters": 2 * _GIB}, True),
)
_RUN = Trial(ended="exit", exit_status=None, error="", steps=5, duration_ns=1, devices=(_DEVICE,))


def _answer(run: Trial = _RUN, **others: object) -> Answer:
    figures = {"uncapped": None, "expandable": None, "context_known": True, **others}
    return Answer("NVIDIA X", run, **figures)  # type: ignore[arg-type]


def _out_of_memory() -> Trial:
    oom = OutOfMemory(1, "forward", 4 * _GIB, 20 * _GIB, 22 * _GIB, 1 * _GIB)
    device = replace(_DEVICE, peak_device_bytes=23 * _GIB, oom=oom)
    return replace(_RUN, ended="out of memory", exit_status=1, steps=0, devices=(device,))


def test_it_fits_exactly() -> None:
    answer = _answer()
    assert verdict(answer) == "fits NVIDIA X: 11.5 GiB to spare (48 %)"
    assert (answer.fits, answer.confidence, answer.spare_bytes) == (True, "exact", 23 * _GIB // 2)


def test_it_does_not_fit_and_how_much_is_short() -> None:
    larger = replace(_RUN, devices=(replace(_DEVICE, peak_device_bytes=30 * _GIB, usable_bytes=1024 * _GIB),))
    answer = _answer(_out_of_memory(), uncapped=larger)
    assert verdict(answer) == "does not fit NVIDIA X: short by 6.0 GiB in forward of step 1"
    assert as_json(answer)["spare_bytes"] == -6 * _GIB
    assert answer.told is larger


def test_start_up_is_of_no_step() -> None:
    device = replace(_DEVICE, oom=OutOfMemory(1, "startup", 4 * _GIB, 20 * _GIB, 22 * _GIB, 1 * _GIB))
    run = replace(_out_of_memory(), devices=(device,))
    assert verdict(_answer(run)) == "does not fit NVIDIA X: out of memory in start-up"


def test_fragmentation_is_not_called_short() -> None:
    less = replace(_RUN, devices=(replace(_DEVICE, peak_device_bytes=20 * _GIB),))
    assert "though the same run with more memory used no more" in verdict(_answer(_out_of_memory(), uncapped=less))


def test_what_is_not_known_even_with_more_memory() -> None:
    answer = _answer(_out_of_memory(), uncapped=_out_of_memory())
    assert answer.spare_bytes is None
    assert verdict(answer) == "does not fit NVIDIA X: out of memory in forward of step 1"


def test_retries_are_told() -> None:
    run = replace(_RUN, devices=(replace(_DEVICE, num_alloc_retries=3),))
    assert "with 3 allocation retries" in verdict(_answer(run))


def test_reasons_limit_the_answer() -> None:
    noted = replace(_RUN, notes=(Note("estimated", "cuDNN convolution workspace", 4),))
    assert _answer(noted).confidence == "close"
    refused = replace(_RUN, notes=(Note("refused", "cusparseSpMM", 1),))
    assert _answer(refused).confidence == "estimate"
    sized = replace(_RUN, host_reads=(HostRead("train.py", 7, "nonzero", 3), HostRead("train.py", 9, "item", 30)))
    (reason,) = _answer(sized).reasons
    assert (reason.confidence, "train.py:7" in reason.text, "nonzero" in reason.text) == ("estimate", True, True)
    assert _answer(replace(_RUN, ended="interrupted")).confidence == "estimate"
    assert _answer(replace(_RUN, ended="failed", error="ValueError: x")).confidence == "estimate"


def test_a_context_that_is_not_known_decides_where_little_is_left() -> None:
    assert _answer(context_known=False).confidence == "close"
    full = replace(_RUN, devices=(replace(_DEVICE, peak_device_bytes=23 * _GIB),))
    assert _answer(full, context_known=False).confidence == "estimate"
    assert as_json(_answer(context_known=False))["context_bytes"] is None


def test_lines_are_narrow_and_harmless() -> None:
    loud = replace(_RUN, warnings=("\x1b[2Jwarned",), error="\x1b[31mred")
    lines = answer_lines(_answer(loud, expandable=_RUN), "train.py \x1b]0;x\x07", 80)
    assert not any("\x1b" in line or "\x07" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:2] == ["activations", "8.0"] for line in lines)
    assert shown("a\x1b[31mb\nc") == "  ab\n  c\n"


def test_nothing_is_unknown_twice() -> None:
    nothing = replace(_RUN, ended="exit", devices=(), steps=0)
    assert verdict(_answer(nothing)) == "unknown: the program used no GPU"
    assert answer_lines(_answer(nothing), "train.py") == ["plan of train.py", "unknown: the program used no GPU"]


def test_tables() -> None:
    rows = comparison_lines([Compared({}, _answer()), Compared({}, _answer(_out_of_memory()))], "train.py")
    assert [row.split()[2] for row in rows[2:]] == ["yes", "no"]
    search = Search(1, 64, 24 * _GIB, [Tried(1, True, _GIB), Tried(9, True, 9 * _GIB), Tried(10, False, None)])
    assert search_lines(search, "batch", "NVIDIA X")[0] == "the largest batch that fits NVIDIA X is 9"
    assert "nothing smaller" in search_lines(Search(4, 8, _GIB, [Tried(4, False, None)]), "batch", "X")[0]


def _larger(factor: int) -> Answer:
    device = replace(_DEVICE, peak_allocated_bytes=factor * _GIB, peak_device_bytes=factor * _GIB)
    return _answer(replace(_RUN, devices=(device,)))


def test_settings_are_columns_and_those_without_effect_are_named() -> None:
    rows = [Compared({"batch": str(batch), "amp": amp}, _larger(batch)) for batch in (8, 16) for amp in ("on", "off")]
    lines = comparison_lines(rows, "train.py")
    assert lines[1].split()[:3] == ["batch", "amp", "fits"]
    assert [line.split()[:3] for line in lines[2:6]] == [[str(b), a, "yes"] for b in (8, 16) for a in ("on", "off")]
    assert lines[6:] == ["amp changes nothing: does the program read it?"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_tables_keep_to_the_width(width: int) -> None:
    failed = _answer(replace(_RUN, ended="failed", error="ValueError: " + "x " * 90))
    rows = [Compared({"batch": "8"}, _answer()), Compared({"batch": "16"}, failed)]
    lines = comparison_lines(rows, "train.py", width)
    assert max(map(len, lines)) <= width
    assert "to spare" in lines[1]
    assert ("reserved" in lines[1]) == (width >= 60)
    assert lines[4].startswith("batch=16: unknown: the program")


def test_a_search_of_what_is_not_read_says_so() -> None:
    search = Search(1, 64, 24 * _GIB, [Tried(1, True, _GIB), Tried(8, True, _GIB)])
    assert search.next_value() == 64
    search.tried.append(Tried(64, True, _GIB))
    lines = search_lines(search, "batch", "NVIDIA X", 100)
    assert search.ended
    assert lines[0] == "batch changes nothing: all values take the same memory. Does the program read it?"
    assert search_lines(Search(1, 1, _GIB, [Tried(1, True, 9)]), "batch", "X")[-1] == "1 run"


def test_an_interrupted_run_that_saw_too_little_answers_nothing() -> None:
    early = _answer(replace(_RUN, ended="interrupted", steps=1))
    assert early.fits is None
    assert verdict(early) == "unknown: it was interrupted after 1 step"
    assert _answer(replace(_RUN, ended="interrupted", steps=2)).fits is True


def test_an_error_that_the_program_has_caught_is_told() -> None:
    oom = OutOfMemory(3, "forward", _GIB, None, None, None)
    answer = _answer(replace(_RUN, devices=(replace(_DEVICE, oom=oom),)))
    assert (answer.fits, answer.confidence) == (True, "close")
    assert "caught the error" in answer.reasons[0].text


def test_a_run_that_was_ended_is_never_exact() -> None:
    (reason,) = _answer(replace(_RUN, ended="steady")).reasons
    assert (reason.confidence, "comes later" in reason.text) == ("close", True)


def test_a_run_that_failed_or_used_no_gpu_answers_nothing() -> None:
    failed = _answer(replace(_RUN, ended="failed", steps=1, error="ValueError: x"))
    assert failed.fits is None
    assert verdict(failed) == "unknown: the program failed after 1 step: ValueError: x"
    bare = replace(_DEVICE, peak_allocated_bytes=None, peak_reserved_bytes=None, peak_device_bytes=_GIB // 2)
    assert verdict(_answer(replace(_RUN, devices=(bare,)))) == "unknown: the program used no GPU"


def test_a_peak_that_rises_to_the_last_step_is_no_fit() -> None:
    """GIVEN 0.5 GiB more in each step, THEN it says when the card would be full, and not that it fits."""
    steps = tuple(replace(_PEAK, step=step, bytes_held=step * _GIB // 2) for step in range(1, 61))
    run = replace(_RUN, ended="rising", steps=60, devices=(replace(_DEVICE, steps=steps),))
    answer = _answer(run)
    assert answer.fits is None
    rises = "the peak still rose after 60 steps, by some 512.0 MiB a step:"
    assert verdict(answer) == f"unknown: {rises} NVIDIA X would be full some 23 steps later"
    assert (answer.reasons[0].confidence, answer.confidence) == ("estimate", "estimate")
    assert "it was ended after 60 steps, and the peak rose to the last" in answer_lines(answer, "train.py")


def test_one_that_was_interrupted_early_says_so() -> None:
    run = replace(_RUN, ended="interrupted", steps=0, devices=())
    assert verdict(_answer(run)) == "unknown: it was interrupted before it used a GPU"
