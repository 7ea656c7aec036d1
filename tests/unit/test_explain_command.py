"""`memtui explain` as it is called: files, pipes and a terminal; text, JSON, and one line for what cannot be."""

from __future__ import annotations

import io
import json
import os
import pathlib
import pty
import subprocess
import sys
from typing import Any

import pytest

from memtui.cli import main
from tests.support.messages import GIB, MIB, Figures, print_message

FRAGMENTED = Figures(1900 * MIB, 32 * GIB, 1300 * MIB, 25 * GIB, 5 * GIB, 400 * MIB)
FULL = Figures(1900 * MIB, 32 * GIB, 300 * MIB, 31 * GIB, 40 * MIB, 400 * MIB)


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, *words: str
) -> tuple[int, str, str]:
    """The status and what was printed, with a text on standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    status = main(["explain", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(name="answer")
def fixture_answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def answer(text: str, *words: str) -> tuple[int, str, str]:
        return run(capsys, monkeypatch, text, *words)

    return answer


def test_a_paste_is_answered_in_80_columns(answer: Any) -> None:
    """The cause in the second line, the figures as they were printed, what helps; no escape sequence of the paste."""
    status, out, err = answer(f"\x1b[31m{print_message(FRAGMENTED, 'T6')}\x1b[0m\x1b]0;owned\x07")

    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "GPU 0 · CUDA · line 1"
    assert lines[1].startswith("fragmentation: 6.27 GiB are free or idle, but no piece of 1.86 GiB")
    assert any(line.split() == ["idle", "in", "PyTorch", "5.00", "GiB"] for line in lines)
    assert "expandable_segments:True" in out
    assert "not empty_cache()" in out
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in out
    assert "owned" not in out


def test_a_file_of_several_ranks_as_json(answer: Any, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "train.log"
    texts = [f"[rank{rank}]: {print_message(figures, 'T6', rank)}" for rank, figures in ((3, FULL), (1, FRAGMENTED))]
    log.write_text("\n".join(["starting", *texts]), encoding="utf-8")
    status, out, err = answer("", str(log), "--json")

    assert (status, err) == (0, "")
    found = json.loads(out)["answers"]
    assert [(each["rank"], each["device"], each["line"], each["cause"]) for each in found] == [
        (3, 3, 2, "full"),
        (1, 1, 3, "fragmentation"),
    ]
    low, high = found[1]["figures"]["tried"]["bytes"]
    assert low <= FRAGMENTED.tried <= high
    assert found[1]["remedies"][0]["saves_bytes"] == pytest.approx(FRAGMENTED.idle, rel=0.01)


def test_a_log_whose_steps_grew_is_a_leak(answer: Any) -> None:
    """GIVEN figures of 300 steps that rise evenly up to the message, THEN the leak; where they stood still, not."""
    for growth, cause, words in ((9, "leak: what is allocated grew by", "a leak"), (0, "full: ", "stood still")):
        steps = [f"step {n}: loss 0.2, max_mem: 9 GiB, mem: {25_000 + growth * n}MiB" for n in range(300)]
        status, out, _ = answer("\n".join([*steps, print_message(FULL, "T6")]))
        assert status == 0
        assert out.splitlines()[1].startswith(cause)
        assert words in " ".join(out.split())


@pytest.mark.parametrize("words", [(), ("-",)])
@pytest.mark.parametrize("text", ["", "all went well\n", "\x00\x01\x02" * 5_000])
def test_no_message_is_one_line(answer: Any, words: tuple[str, ...], text: str) -> None:
    status, out, err = answer(text, *words)
    assert (status, out) == (1, "")
    assert err.startswith("memtui: no out-of-memory message of PyTorch in standard input: it looks for ")
    assert len(err.splitlines()) == 1


def test_files_that_cannot_be_read_are_one_line(answer: Any, tmp_path: pathlib.Path) -> None:
    binary = tmp_path / "a\x1b[2J.bin"
    binary.write_bytes(os.urandom(50_000))
    for name, words in (
        ("/dev/zero", "is a device, not a text"),
        (str(tmp_path / "absent"), "No such file"),
        (str(tmp_path), "Is a directory"),
        (str(binary), "no out-of-memory message"),
    ):
        status, out, err = answer("", name)
        assert (status, out) == (1, "")
        assert words in err
        assert len(err.splitlines()) == 1
        assert "\x1b" not in err


@pytest.mark.timeout(60)
def test_a_terminal_is_told_how_a_paste_ends() -> None:
    """GIVEN a terminal as standard input, THEN a line says what it waits for, and Ctrl-D ends the paste."""
    main_end, child_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "memtui", "explain"], stdin=child_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        os.close(child_end)
        assert child.stderr is not None
        assert child.stdout is not None
        assert b"Ctrl-D" in child.stderr.readline()
        # A terminal takes no more than 4,096 characters in a line; a message is shorter.
        os.write(main_end, f"{print_message(FULL, 'T6')}\n\x04".encode())
        out = child.stdout.read().decode()
        assert child.wait(60) == 0
    os.close(main_end)
    assert out.splitlines()[1].startswith("full: ")


def test_a_leak_of_a_log_goes_before_fragmentation(answer: Any) -> None:
    """GIVEN a message whose pieces would have been enough, THEN what grew evenly up to it is the cause all the same."""
    pieces = Figures(16 * MIB, 32 * GIB, 9 * MIB, 31 * GIB, 20 * MIB, 400 * MIB)
    steps = [f"step {n}: allocated {25_000 + 9 * n} MiB" for n in range(300)]
    _, out, _ = answer("\n".join([*steps, print_message(pieces, "T6")]))
    assert out.splitlines()[1].startswith("leak: what is allocated grew by 9.0 MiB a step")
    _, out, _ = answer(print_message(pieces, "T6"))
    assert out.splitlines()[1].startswith("fragmentation: ")


def test_what_memtui_printed_itself_is_passed_over(answer: Any) -> None:
    """GIVEN a log of memtui run, THEN its lines are no second error, and no figures of the program's steps."""
    message = print_message(FULL, "T6")
    own = [f"memtui: 12:00:0{n % 10} · step {n} · allocated {25_000 + 9 * n} MiB" for n in range(300)]
    last = f"memtui: exited with status 1: OutOfMemoryError: {message[:60]}…"
    _, out, _ = answer("\n".join([*own, message, "memtui: out of memory on cuda:0", f"[rank0]: {last}", last]))
    assert out.splitlines()[0].startswith("GPU 0 · CUDA · line 301")
    assert "line 30" not in "\n".join(out.splitlines()[1:])
    assert out.splitlines()[1].startswith("full: ")
    assert "by the log" not in out
