"""How a program's end is told in two lines of a screen."""

from __future__ import annotations

from dataclasses import replace

from memtui.analysis.text import clean
from memtui.analysis.view import View


def first_line_only(view: View, said: str) -> View:
    """A view whose reason for the end stops where the first line of `said`, the exception's own words, does."""
    lines = [line for line in said.splitlines() if any(map(str.isalnum, line))]
    if len(lines) < 2:
        return view
    first = clean(lines[0]).strip()
    return replace(
        view,
        state_text=_until(view.state_text, first),
        verdict=replace(view.verdict, text=_until(view.verdict.text, first)),
    )


def status_to_come(view: View) -> View:
    """A view of a program that is gone and whose exit status is still on its way: neither finished nor failed."""
    if view.verdict.level == "bad":
        return view
    text = "ended; its exit status is on its way"
    return replace(view, state_text=text, verdict=replace(view.verdict, level="unknown", text=text))


def _until(text: str, last: str) -> str:
    place = text.find(last)
    return text if place < 0 else text[: place + len(last)]
