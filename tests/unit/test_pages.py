"""Help, glossary and meaning over the monitor: how they are left, and what they name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.analysis.oom.story import build_story
from memtui.session.steps import step_number
from memtui.tui import glyphs, palette
from memtui.tui.app import MemtuiApp
from memtui.tui.look import make
from memtui.tui.widgets.exhausted import ExhaustedPage
from memtui.wire.frames import PHASES
from tests.support.made_up import BEGUN_NS, GIB, MadeUpFeed, MadeUpProgram, Training
from tests.support.screens import drive, text


def test_help_and_glossary_open_and_close() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        assert any("pause the screen" in line for line in text(app))
        await pilot.press("escape", "g")
        assert any("live tensors" in line for line in text(app))
        for _ in range(100):
            await pilot.press("down")
        assert any("1024" in line for line in text(app))
        await pilot.press("g")
        assert app.screen is app.monitor

    drive(MadeUpFeed(), test)


@pytest.mark.parametrize("key", ["q", "escape"])
@pytest.mark.parametrize("page", ["m", "g", "w", "o", "question_mark"])
def test_a_page_says_how_it_is_left_and_q_leaves_the_page_only(page: str, key: str) -> None:
    feed = MadeUpFeed()
    feed.program = MadeUpProgram()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        for tab in ("1", "4", "5"):
            await pilot.press(tab, page)
            assert "q, escape: back" in text(app)[0]
            await pilot.press(key)
            assert app.screen is app.monitor
        assert app.is_running
        assert feed.program is not None
        assert feed.program.sent == []

    drive(feed, test)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_help_names_every_letter_of_a_phase(ascii_only: bool) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        said = [line.split() for line in text(app)]
        glyphs = app.look.glyphs
        for phase in PHASES:
            assert any(words[:1] == [glyphs.phase(phase)] and phase in " ".join(words[1:]) for words in said), phase

    drive(MadeUpFeed(), test, size=(100, 140), ascii_only=ascii_only)


def test_the_legend_beside_the_chart_has_start_up_where_there_was_one() -> None:
    feed = MadeUpFeed(seconds=0)
    begun = Training()
    feed.session.apply(begun.hello(), BEGUN_NS)
    feed.session.apply(replace(begun.frame(BEGUN_NS), phase="startup"), BEGUN_NS)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        assert any("s startup" in line for line in text(app))

    drive(feed, test)


def test_the_page_of_levers_asks_again_and_marks_a_row() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("w", "down")
        assert any("▸ batch ×2" in line for line in text(app))
        assert any("in proportion to the batch" in line for line in text(app))
        await pilot.press("plus", "plus", "right")
        assert any("▸ batch ×4" in line for line in text(app))
        assert any("ZeRO-2 on 16 devices" in line for line in text(app))
        await pilot.press(*("minus",) * 9, *("left",) * 9, "end")
        assert any("batch ×2" in line for line in text(app))
        assert any("ZeRO-1 on 2 devices" in line for line in text(app))
        assert any("▸ fused optimizer step" in line for line in text(app))
        assert any("there that changes nothing" in line for line in text(app))
        await pilot.press("w")
        assert app.screen is app.monitor

    drive(MadeUpFeed(), test)


@pytest.mark.parametrize("size", [(40, 10), (66, 16), (80, 24), (120, 40), (200, 50)])
def test_the_page_of_levers_shows_the_marked_row_at_every_size(size: tuple[int, int]) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("w")
        for _ in range(13):
            await pilot.press("down")
            assert sum("▸" in line for line in text(app)) == 1
            assert all(len(line) <= size[0] for line in text(app))

    drive(MadeUpFeed(), test, size=size)


def test_the_page_of_levers_says_why_it_has_nothing_to_say() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("w", "down", "plus", "right")
        assert any("no figures of PyTorch's yet" in line for line in text(app))
        await pilot.press("q")
        assert app.screen is app.monitor

    drive(MadeUpFeed(seconds=0), test)


def test_the_page_of_errors_has_each_of_them_and_all_of_its_text_at_every_size() -> None:
    feed = MadeUpFeed()
    feed.fail(40 * GIB)
    feed.advance(30)
    feed.fail(100 * GIB)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        assert app.monitor.keys.failed
        await pilot.press("o")
        assert "2 of 2" in text(app)[0]
        assert any("impossible: " in line for line in text(app))
        await pilot.press("left", "left")
        assert "1 of 2" in text(app)[0]
        seen = set(text(app))
        for _ in range(60):
            await pilot.press("down")
            seen.update(text(app))
        for part in ("fragmentation:", "expandable_segments:True", "attention.py:71 softmax", "threshold:0.8"):
            assert any(part in line for line in seen), part
        await pilot.press("o")
        assert app.screen is app.monitor

    for size in ((64, 12), (80, 24), (200, 50)):
        drive(feed, test, size=size)


def test_the_page_of_errors_takes_those_that_come_while_it_is_open() -> None:
    """GIVEN the page opened before anything failed, THEN the error when it comes; a later one is the next of two."""
    feed = MadeUpFeed()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("o")
        assert any("Nothing has run out of memory here" in line for line in text(app))
        for size, wanted in ((40 * GIB, "OUT OF MEMORY  "), (100 * GIB, "OUT OF MEMORY 1 of 2 ")):
            feed.fail(size)
            feed.advance(1)
            for _ in range(40):
                await pilot.pause(0.1)
                if wanted in text(app)[0]:
                    break
            assert wanted in text(app)[0]
            assert any("fragmentation: " in line for line in text(app))
        await pilot.press("right")
        assert "2 of 2" in text(app)[0]
        assert any("impossible: " in line for line in text(app))

    drive(feed, test, size=(120, 40))


def test_text_of_the_program_is_never_sent_to_the_terminal_as_it_is() -> None:
    """GIVEN names of files with control characters in an error, THEN none of them is on the page."""
    feed = MadeUpFeed()
    feed.fail()
    [event] = feed.session.events_of("oom")
    assert event.failure is not None
    bad = "/tmp/\x1b]52;c;evil\x07\x1b[2J.py:1 f"
    failure = replace(event.failure, site=bad, settings=bad, sites=(replace(event.failure.sites[0], text=bad),))
    feed.advance(1)
    later = replace(event, time_ns=feed.clock_ns, failure=failure, device="cuda:0")
    feed.session.apply(later, feed.clock_ns)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("o")
        assert any(".py:1 f" in line for line in text(app))
        assert not any(character < " " for line in text(app) for character in line)

    drive(feed, test, size=(200, 60))


def test_gradients_of_an_earlier_walk_are_a_lower_bound() -> None:
    """GIVEN owners of a step before the error's and something unattributed, THEN the page says of when they are."""
    feed = MadeUpFeed()
    feed.fail()
    [event] = feed.session.events_of("oom")
    assert event.failure is not None
    look = event.failure.classification
    assert look is not None
    held = {**look.categories, "gradients": GIB, "unattributed": 0}
    held["unattributed"] = look.allocated_bytes - sum(held.values())
    if held["unattributed"] <= 0:
        held["activations"] += held["unattributed"] - GIB
        held["unattributed"] = GIB
    failure = replace(event.failure, classification=replace(look, categories=held))
    walked = feed.session.looks("cuda:0")[-1][0].step
    for step, stale in ((walked + 1, True), (walked, False)):
        told = replace(event, step=step, phase="forward", failure=failure)
        story = build_story(feed.session, told)
        assert story.held_note == (
            f"owners as of step {step_number(walked):,}: gradients made since are unattributed" if stale else ""
        )
        assert story.at_least == (("gradients",) if stale else ())
        rows = [row.text for row in ExhaustedPage(make(palette.DARK, glyphs.UNICODE), story, (1, 1), 0).draw(120, 60)]
        assert any("gradients" in row and "≥1.0 GiB" in row for row in rows) is stale
        assert any("owners as of step" in row for row in rows) is stale
