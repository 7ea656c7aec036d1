"""Text from the monitored process is harmless, whatever it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.text import clean, command


@pytest.mark.parametrize(
    ("raw", "harmless"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jgone", "gone"),
        ("\x1bcreset", "reset"),
        ("two\nlines\r\tand", "two lines  and"),
        ("bell\x07", "bell�"),
        ("a\u202egnp.exe", "agnp.exe"),
        ("zero\u200bwidth", "zerowidth"),
        ("Größe 尺寸", "Größe 尺寸"),
        ("\udc80", "�"),
    ],
)
def test_known_tricks(raw: str, harmless: str) -> None:
    """Sequences go, controls show, order stays."""
    assert clean(raw) == harmless


@given(st.text(st.characters(), max_size=300), st.integers(1, 50))
def test_nothing_a_terminal_acts_on_is_left(raw: str, limit: int) -> None:
    """No control, format or surrogate character; one line; no longer than asked."""
    text = clean(raw, limit)

    assert len(text) <= limit
    assert not {unicodedata.category(character) for character in text} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text(max_size=100))
def test_cleaning_twice_changes_nothing(raw: str) -> None:
    """What is left does not become a sequence."""
    assert clean(clean(raw)) == clean(raw)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("/usr/bin/python3.11", "/home/me/train.py", "--lr", "1"), "train.py --lr 1"),
        (("python", "-m", "pkg.train"), "-m pkg.train"),
        (("train.py", ""), "train.py ''"),
        (("torchrun", "\x1b[2Jx"), "torchrun x"),
        ((), ""),
    ],
)
def test_commands(argv: tuple[str, ...], line: str) -> None:
    """As a person would say it."""
    assert command(argv) == line
