"""The step tab under the fingers: asking for a step, hearing of it, moving through it."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any, Optional

import pytest
from textual.pilot import Pilot

from memtui.analysis.recorded import StepTimeline
from memtui.sources.log_reader import LogReader
from memtui.sources.log_writer import LogWriter
from memtui.sources.replay import Replay
from memtui.tui import glyphs, palette, roles
from memtui.tui.app import MemtuiApp
from memtui.tui.look import Look, make
from memtui.tui.plot.stack import stacked
from memtui.tui.plot.steppicture import phase_strip
from memtui.tui.plot.stepwindow import StepWindow
from memtui.tui.widgets.step import step_layout
from memtui.wire import codec
from memtui.wire.frames import CATEGORIES, PHASES, Event, Mark, RecordedStep
from memtui.wire.histories import HistoryNews
from tests.support.made_up import BEGUN_NS, SECOND, MadeUpFeed, MadeUpProgram, MadeUpRecording, Training
from tests.support.recorded import GIB, MIB, Recorder, by_hand, gpt
from tests.support.screens import drive, settle, text
from tests.support.sessions import Run, hello


def with_step(*steps: RecordedStep) -> MadeUpFeed:
    feed = MadeUpFeed()
    for step in steps or (gpt(time_ns=BEGUN_NS),):
        feed.session.apply(step, feed.clock_ns)
    return feed


# Asking


def test_r_saves_a_history_and_says_how_it_stands() -> None:
    feed = MadeUpFeed()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("r")
        (told,) = feed.histories
        lines = []
        figures = {"steps": 1, "steps_ns": 800_000_000, "events": 4_926, "cost_ns": 6_000_000, "size_bytes": 1 << 20}
        for news in (
            HistoryNews("waiting"),
            HistoryNews("refused", "the program records a memory history of its own, which is left alone"),
            HistoryNews("written", "/home/me/memtui-4242\x1b[2J.pickle", figures, ("call stacks were left out: ...",)),
        ):
            told(news)
            await settle(app, pilot)
            lines.append(text(app)[2])
        assert "waiting for a step to end" in lines[0]
        assert "no history was recorded: the program records a memory history of its own" in lines[1]
        assert "memtui-4242.pickle is written (1.0 MiB): 1 step of 800 ms, 4,926 events" in lines[2]
        assert "held the training for 6.0 ms; call stacks were left out" in lines[2]

    drive(feed, test, size=(160, 40))


def test_a_recording_has_no_history_to_save() -> None:
    feed = MadeUpRecording()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("r")
        await settle(app, pilot)
        assert not feed.histories
        assert "this is a recording" in text(app)[2]

    drive(feed, test)


def test_d_asks_on_any_tab_and_what_comes_is_told_with_its_cost() -> None:
    feed = MadeUpFeed()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("d")
        assert feed.requests == ["record"]
        assert "recording the next step" in text(app)[2]
        await pilot.press("4")
        await settle(app, pilot)
        assert any("recording: asked for" in line for line in text(app))
        feed.session.apply(gpt(time_ns=feed.clock_ns), feed.clock_ns)
        await settle(app, pilot)
        assert "step 7 is recorded: peak 29.6 GiB in backward; it cost 2.3 ms" in text(app)[2]
        assert "peak 29.6 GiB in backward, 148.3 ms into step 7" in text(app)[3]
        await pilot.press("2", "d")
        assert feed.requests == ["record", "record"]

    drive(feed, test)


def test_a_refusal_is_told_with_its_reason() -> None:
    feed = MadeUpFeed()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("d")
        event = Event("record_refused", feed.clock_ns, 6, "between", text="the program records a history of its own")
        feed.session.apply(event, feed.clock_ns)
        await settle(app, pilot)
        assert "no step recorded: the program records a history of its own" in text(app)[2]

    drive(feed, test)


def test_who_cannot_record_says_why() -> None:
    lost, ended, deaf = MadeUpFeed(), MadeUpFeed(), MadeUpFeed()
    lost.session.set_connection("lost", "the agent closed the connection")
    ended.end("ValueError", "no", 1)
    deaf.request = lambda name: False  # type: ignore[method-assign]
    for feed, words in (
        (lost, "the agent closed the connection"),
        (ended, "the program has ended"),
        (deaf, "there is no agent to ask"),
        (MadeUpRecording(), "this is a recording"),
    ):

        async def test(app: MemtuiApp, pilot: Pilot[Any], words: str = words) -> None:
            await pilot.press("d")
            assert words in text(app)[2]

        drive(feed, test)
        assert feed.requests == []


def test_a_step_recorded_before_the_screen_began_is_shown_and_not_announced() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await settle(app, pilot)
        assert "recorded" not in text(app)[2]
        await pilot.press("4")
        assert "peak 29.6 GiB" in text(app)[3]

    drive(with_step(), test)


def test_a_step_is_announced_while_the_screen_is_paused() -> None:
    feed = MadeUpFeed()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("p", "d")
        feed.session.apply(gpt(time_ns=feed.clock_ns), feed.clock_ns)
        await pilot.press("4")
        assert "step 7 is recorded" in text(app)[2]
        assert "peak 29.6 GiB" in text(app)[3]

    drive(feed, test)


# Moving


def test_the_cursor_moves_from_the_peak_and_home_returns() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        step = app.monitor.step
        timeline = step.timeline
        assert timeline is not None
        totals = timeline.totals
        assert any("at the peak" in line for line in text(app))
        await pilot.press("left", "left")
        instant = step.window.instant(timeline)
        assert instant < timeline.peak
        shown = next(line for line in text(app) if "at the cursor" in line)
        assert f"{totals[instant] / GIB:.1f} GiB" in shown
        assert sum(group.size_bytes for group in step.groups()) == totals[instant]
        await pilot.press("end")
        assert step.window.instant(timeline) == timeline.last
        await pilot.press("home")
        assert step.window.instant(timeline) == timeline.peak
        await pilot.press("plus", "plus", "right")
        assert step.window.length is not None
        assert step.window.instant(timeline) > timeline.peak
        await pilot.press("escape")
        assert step.window == StepWindow()

    drive(with_step(), test)


def test_rows_are_marked_scrolled_and_grouped() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4", "b")
        step = app.monitor.step
        assert step.by == "tensor"
        count = len(step.groups())
        await pilot.press("down", "down")
        assert step.marked == 1
        assert any("/home/user/gpt/model.py:52 forward" in line for line in text(app))
        await pilot.press(*["pagedown"] * 30)
        assert step.marked == count - 1
        assert any(f"of {count}" in line for line in text(app))
        await pilot.press("up")
        assert step.marked == count - 2
        await pilot.press("b")
        assert (step.by, step.marked, step.first) == ("site", None, 0)
        assert any("data.py:21 batch" in line for line in text(app))

    drive(with_step(), test)


def test_the_mouse_points_at_instants_and_rows() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        step = app.monitor.step
        timeline = step.timeline
        assert timeline is not None
        await pilot.click("#step", offset=(20, 8))
        instant = step.window.instant(timeline)
        assert 0 < instant < timeline.peak
        layout = step_layout(*step.size)
        await pilot.click("#step", offset=(20, layout.answer + layout.chart + 2 * layout.gap + 2 + 3))
        assert step.marked == 3

    drive(with_step(), test)


def test_several_steps_newest_first_and_the_older_ones_by_comma() -> None:
    feed = with_step(gpt(time_ns=BEGUN_NS), gpt(unit=60 * MIB, time_ns=BEGUN_NS + SECOND, step=7))

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        assert "into step 8" in text(app)[3]
        assert "recorded step 2 of 2" in text(app)[4]
        await pilot.press("comma")
        assert "into step 7" in text(app)[3]
        await pilot.press("comma", "full_stop")
        assert "into step 8" in text(app)[3]

    drive(feed, test)


def test_other_tabs_keep_their_keys() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4", "left", "1", "left")
        assert app.monitor.chart.input.window.cursor_ns is not None
        assert app.monitor.step.display is False
        await pilot.press("4")
        before = app.monitor.chart.input.window
        await pilot.press("left", "plus", "y", "home")
        assert app.monitor.chart.input.window == before

    drive(with_step(), test)


def test_another_device_has_its_own_steps() -> None:
    feed = MadeUpFeed(Training(devices=2))
    feed.session.apply(gpt(time_ns=BEGUN_NS, device="cuda:1"), feed.clock_ns)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        assert any("no step is recorded yet" in line for line in text(app))
        await pilot.press("right_square_bracket")
        await settle(app, pilot)
        assert any("peak 29.6 GiB" in line for line in text(app))

    drive(feed, test)


@pytest.mark.parametrize("size", [(40, 10), (40, 24), (66, 12), (79, 13), (300, 90), (40, 60)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_any_size_and_any_step_can_be_drawn(size: tuple[int, int], ascii_only: bool) -> None:
    nothing = by_hand([], 0, time_ns=BEGUN_NS)
    negative = by_hand([(-1, 0, 5 * MIB, 0), (1, -1, MIB, 4)], 2, before_bytes=MIB, time_ns=BEGUN_NS + 1)
    strange = by_hand([(0, -1, 7, 0)], 1, categories=("a\x1b[2Jb\n",), time_ns=BEGUN_NS + 2, marks=(Mark(0, "?\x07"),))
    feed = with_step(gpt(time_ns=BEGUN_NS + 3), strange, negative, nothing)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        for _ in range(4):
            await pilot.press("left", "plus", "right", "y", "end", "b", "down", "pagedown", "comma")
            lines = text(app)
            assert len(lines) == size[1]
            assert all(character.isprintable() for line in lines for character in line)

    drive(feed, test, size=size, ascii_only=ascii_only)


def test_the_running_programs_keyboard_and_the_steps_do_not_mix() -> None:
    feed = with_step()
    feed.program = MadeUpProgram()

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.pause()
        await pilot.press("3", "d")
        assert feed.requests == []
        await pilot.press("f12", "4", "left")
        assert not app.monitor.typing
        assert feed.program is not None
        assert [sent for sent in feed.program.sent if sent.startswith("input")] == ["input b'd'"]

    drive(feed, test)


# The picture


def look(ascii_only: bool = False, colors: palette.Colors = palette.DARK) -> Look:
    return make(colors, glyphs.ASCII if ascii_only else glyphs.UNICODE)


TENANTS = (("parameters", "P"), ("activations", "a"), ("temporaries", "t"))


def test_a_column_is_as_high_as_its_bytes_and_each_tenant_in_its_place() -> None:
    rows = stacked([(40, 20, 0), (40, 0, 0), (0, 0, 0)], TENANTS, 10, 100, look(ascii_only=True))
    columns = ["".join(row.text[x] for row in rows) for x in range(3)]
    assert columns == ["    aaPPPP", "      PPPP", " " * 10]


def test_an_eighth_of_a_cell_counts_and_its_colours_are_those_of_both() -> None:
    rows = stacked([(45, 10, 0)], TENANTS, 10, 100, look())
    assert rows[5] == ("▄", roles.pair("parameters", "activations"))
    assert rows[4] == ("▄", roles.pair("activations", ""))
    assert rows[3] == (" ", " ")
    assert stacked([(1, 0, 0)], TENANTS, 10, 100_000, look())[9] == ("▁", roles.pair("parameters", ""))


def test_without_colours_there_are_letters_only() -> None:
    rows = stacked([(45, 10, 0)] * 3, TENANTS, 10, 100, look(colors=palette.MONO))
    assert {character for row in rows for character in row.text} == {"P", "a", " "}


def test_what_lies_on_negative_bytes_ends_at_the_sum() -> None:
    rows = stacked([(60, 20, -30)], TENANTS, 10, 100, look(ascii_only=True))
    assert "".join(row.text for row in rows) == "     PPPPP"


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("cells", [7, 60, 400])
def test_every_instant_is_in_one_column_and_the_cursor_reaches_both_ends(by_time: bool, cells: int) -> None:
    timeline = StepTimeline(gpt())
    window = StepWindow(by_time=by_time)
    edges = window.edges(timeline, cells)
    assert len(edges) == cells + 1
    assert (edges[0], edges[-1]) == (0, timeline.last + 1)
    assert list(edges) == sorted(edges)
    columns = timeline.columns(edges)
    for by, end in ((-1, 0), (1, timeline.last)):
        moved, before = window, None
        for _ in range(2 * cells + timeline.last):
            if moved.cursor == before and before is not None:
                break
            before, moved = moved.cursor, moved.moved(timeline, columns, edges, by)
        assert moved.cursor is not None
        assert (moved.cursor - end) * by >= 0 or columns[0 if by < 0 else -1].instant == moved.cursor


def test_zoom_keeps_what_is_looked_at_in_sight() -> None:
    timeline = StepTimeline(gpt())
    for by_time in (False, True):
        window = StepWindow(by_time=by_time)
        for _ in range(30):
            window = window.zoomed(timeline, -1)
            place = window.column_of(window.edges(timeline, 50), timeline.peak)
            assert place is not None
        for _ in range(40):
            window = window.zoomed(timeline, 1)
        assert window.length is None


# Kept


def test_a_log_keeps_recorded_steps_and_a_replay_shows_them(tmp_path: pathlib.Path) -> None:
    run, log = Run(), LogWriter(str(tmp_path / "log"), "0.1.0")
    log.message(hello(time_ns=5), run.session)
    for number in range(6):
        log.message(run.frame((number + 1) * MIB), run.session)
    step = gpt(time_ns=run.now_ns + 1)
    run.session.apply(step, 0)
    log.message(step, run.session)
    log.message(run.frame(MIB), run.session)
    log.close()
    reader = LogReader(str(tmp_path / "log"))
    assert reader.broken_lines == 0
    assert reader.whole.recorded("cuda:0") == (step,)
    assert reader.session_at(reader.start_ns).recorded("cuda:0") == ()
    found: list[Optional[str]] = []

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while not app.ready:
            await asyncio.sleep(0.02)
        await pilot.press("4")
        await settle(app, pilot)
        found.extend(text(app))

    drive(Replay(str(tmp_path / "log")), test)
    assert any(line and "peak 29.6 GiB in backward" in line for line in found)


def test_the_wire_carries_a_recorded_step_unchanged() -> None:
    step = gpt(lost_events=3, notices=("one",))
    assert codec.decode(codec.encode(step)[4:]) == step
    assert set(step.categories) == set(CATEGORIES)


def test_a_short_phase_of_a_recorded_step_has_the_letter_that_the_help_names() -> None:
    recorder = Recorder()
    for share, phase in enumerate(PHASES):
        recorder.at(share / len(PHASES))
        recorder.mark(phase)
        recorder.alloc(MIB, "activations")
    timeline = StepTimeline(recorder.step())
    edges = tuple(range(1, len(PHASES) + 2))
    for characters in (glyphs.UNICODE, glyphs.ASCII):
        look = make(palette.DARK, characters, "truecolor")
        letters = "".join(characters.phase(phase) for phase in PHASES)
        assert phase_strip(timeline, edges, look).text == f" phase {letters}"
