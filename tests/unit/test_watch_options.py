"""What `memtui watch` takes for a time, a length and ranks."""

from __future__ import annotations

import argparse
import time

import pytest

from memtui.cli import main
from memtui.commands.watch_options import instant, length, selector

#: A local noon of some day.
_NOON = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01 11:30", _NOON - 1_800),
        ("2026-03-01T11:30:05", _NOON - 1_795),
        ("2026-02-28", _NOON - 36 * 3_600),
        ("11:30", _NOON - 1_800),
        ("12:30", _NOON - 23.5 * 3_600),  # not yet today: yesterday's
        ("90m", _NOON - 5_400),
        ("1772000000", 1_772_000_000.0),
    ],
)
def test_an_instant_of_the_past(text: str, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: _NOON)
    assert instant(text) == expected


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "25:00", "2199-01-01", "9999999999", "5", "-2h", "\x1b[2J"])
def test_what_is_no_instant_of_the_past(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        instant(text)


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1_800), ("6h", 21_600), ("2d", 172_800), ("1.5h", 5_400)])
def test_a_length_of_time(text: str, seconds: float) -> None:
    assert length(text) == seconds


@pytest.mark.parametrize("text", ["", "6", "h", "0s", "-1h", "999999w"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        length(text)


def test_a_selector_is_understood_or_told_to_be_none() -> None:
    assert selector('{run="a"}').text == '{run="a"}'
    with pytest.raises(argparse.ArgumentTypeError, match="write run="):
        selector("run=a")


@pytest.mark.parametrize("words", [["watch"], ["watch", "--prometheus", "http://h", "--at", "tomorrow"]])
def test_bad_options_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("memtui: ")
    assert len(said.splitlines()) == 1
