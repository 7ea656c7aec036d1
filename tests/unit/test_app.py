"""The app under the fingers: keys, pause, time, devices, the end."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from memtui.sources.program import ExitStatus
from memtui.tui.app import DisplayFailed, MemtuiApp, Outcome, run_app
from memtui.tui.picture import save
from memtui.wire.frames import Event
from tests.support.made_up import BEGUN_NS, SECOND, MadeUpFeed, MadeUpProgram, MadeUpRecording, Training
from tests.support.screens import drive, settle, text


def test_the_top_lines_answer_and_the_figures_agree() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await settle(app, pilot)
        lines = text(app)
        assert "train.py --model gpt-1.6b" in lines[0]
        assert "pid 4242" in lines[0]
        assert "cuda:0" in lines[0]
        assert "predicted peak" in lines[1]
        frame = app.feed.session.device_frame("cuda:0")
        assert frame is not None
        shown = next(line for line in lines if "⣿ allocated" in line)
        assert f"{(frame.allocated_bytes or 0) / 2**30:.1f} GiB" in shown

    drive(MadeUpFeed(), test)


def test_a_pause_holds_the_picture_while_frames_come() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("p")
        before = text(app)
        assert "PAUSED" in before[2]
        app.feed.advance(20)  # type: ignore[attr-defined]
        await pilot.pause(0.3)
        after = text(app)
        assert "20 s" in after[2]
        assert after[:2] + after[3:] == before[:2] + before[3:]
        await pilot.press("p")
        assert text(app)[0] != before[0]
        assert "PAUSED" not in text(app)[2]

    drive(MadeUpFeed(), test)


@pytest.mark.parametrize(("into", "out"), [("z", "x"), ("plus", "minus")])
def test_zoom_goes_in_and_out(into: str, out: str) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        wide = app.monitor.chart.cell_ns()
        await pilot.press(into)
        assert app.monitor.chart.cell_ns() < wide
        await pilot.press(out)
        assert app.monitor.chart.cell_ns() == wide
        for _ in range(30):
            await pilot.press(out)
        assert any("−7 d" in line or "−6 d" in line for line in text(app))

    drive(MadeUpFeed(), test)


def test_the_cursor_tells_the_figures_at_its_time_and_end_is_live_again() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*["left"] * 10)
        readout = text(app)[2]
        assert "allocated" in readout
        assert "reserved 49.6 GiB" in readout
        assert "ago" in readout
        await pilot.press("home")
        window = app.monitor.chart.input.window
        assert window.cursor_ns is not None
        assert window.cursor_ns - BEGUN_NS < SECOND
        assert window.end_ns is not None
        app.feed.advance(5)  # type: ignore[attr-defined]
        await settle(app, pilot)
        assert app.monitor.chart.input.window == window
        await pilot.press("end")
        assert app.monitor.chart.input.window.cursor_ns is None
        assert "now" in "".join(text(app))

    drive(MadeUpFeed(seconds=400), test)


def test_devices_are_switched_and_stay() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        assert "cuda:0" in text(app)[0]
        await pilot.press("right_square_bracket")
        assert "cuda:1" in text(app)[0]
        await pilot.press("tab")
        assert "cuda:2" in text(app)[0]
        await pilot.press("tab")
        assert "cuda:0" in text(app)[0]
        await pilot.press("left_square_bracket")
        assert "cuda:2" in text(app)[0]

    drive(MadeUpFeed(Training(devices=3)), test)


def test_one_device_only_is_said() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab")
        assert "one device only" in text(app)[2]

    drive(MadeUpFeed(), test)


def test_a_figure_is_explained() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("down", "down")
        assert "the caching allocator's segments" in text(app)[2]
        await pilot.press("escape")
        assert "segments" not in text(app)[2]

    drive(MadeUpFeed(), test)


def test_the_cursor_s_figures_take_the_place_of_an_explanation() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("down", "down")
        await pilot.press("left")
        assert "segments" not in text(app)[2]
        at_cursor = text(app)[2]
        assert "allocated" in at_cursor
        await pilot.press("down")  # and the other way round
        assert text(app)[2] != at_cursor

    drive(MadeUpFeed(), test)


def test_tabs() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        lines = text(app)
        assert "events, the newest first" in lines[3]
        assert not any("fragmentation" in line for line in lines)
        await pilot.press("3")
        assert "not started by memtui run" in text(app)[2]
        await pilot.press("1")
        assert any("fragmentation" in line for line in text(app))

    drive(MadeUpFeed(), test)


def test_nothing_of_the_program_is_markup() -> None:
    """GIVEN names that look like Textual's markup WHEN they are shown THEN they are shown as they are."""

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await settle(app, pilot)
        assert "[red]x[/red] [@click=app.quit]" in text(app)[0]
        await pilot.press("q")
        assert any("[red]x[/red]" in line for line in text(app))

    feed = MadeUpFeed(seconds=0)
    feed.session.program = "[red]x[/red] [@click=app.quit]"
    feed.program = MadeUpProgram()
    drive(feed, test)


# Leaving


def test_attached_q_just_leaves() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("q")

    feed = MadeUpFeed()
    assert drive(feed, test) == Outcome("detach")
    assert feed.started
    assert feed.stopped


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_a_running_program_is_asked_about(key: str) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press(key)
        assert any("is still running" in line for line in text(app))
        await pilot.press("c")
        assert app.screen is app.monitor
        assert app.return_value is None
        await pilot.press(key, "l")
        await pilot.pause(0.1)

    feed = MadeUpFeed()
    feed.program = MadeUpProgram()
    assert drive(feed, test) == Outcome("detach")
    assert feed.program.running
    assert not [sent for sent in feed.program.sent if sent in ("interrupt", "kill")]


def test_stop_interrupts_and_leaves_when_it_has_ended() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("q", "s")
        await pilot.pause(0.3)

    feed = MadeUpFeed()
    feed.program = MadeUpProgram()
    assert drive(feed, test) == Outcome("stop")
    assert "interrupt" in feed.program.sent


def test_a_program_that_survives_is_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtui.tui.app.PATIENCE_S", 0.2)

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("q", "down", "enter")
        for _ in range(50):
            await pilot.pause(0.1)
            if app.screen is not app.monitor:
                break
        assert any("still runs" in line for line in text(app))
        await pilot.press("k")
        await pilot.pause(0.3)

    feed = MadeUpFeed()
    feed.program = MadeUpProgram(patience=5)
    assert drive(feed, test) == Outcome("stop")
    assert [sent for sent in feed.program.sent if not sent.startswith("resize")] == ["interrupt", "kill"]


def test_the_end_stays_on_the_screen_with_its_reason() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await settle(app, pilot)
        before = text(app)
        app.feed.end("OutOfMemoryError", "CUDA out of memory. " + "Tried to allocate 2.00 GiB. " * 4, 1)  # type: ignore[attr-defined]
        await settle(app, pilot)
        lines = text(app)
        assert "OutOfMemoryError" in lines[1]
        assert "status 1" in lines[1]
        assert "ENDED" in lines[2]
        assert "Tried to allocate" in lines[2]
        assert any("peak allocated" in line for line in lines[1:4])
        allocated = next(line for line in before if "⣿ allocated" in line).split("⣿ allocated")[1]
        assert any(allocated in line for line in lines)
        await pilot.press("q")

    assert drive(MadeUpFeed(), test) == Outcome("ended")


@pytest.mark.parametrize("width", [80, 120])
def test_of_an_exception_of_several_lines_the_first_is_shown(width: int) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        app.feed.end("ValueError", "\nthe shapes do not match\nexpected (3, 4)\ngot (4, 3)" * 3, 1)  # type: ignore[attr-defined]
        await settle(app, pilot)
        lines = text(app)
        assert "exited with status 1: ValueError:  the shapes do not match" in lines[1]
        assert "ENDED" in lines[2]
        assert not any("expected" in line or "got" in line for line in lines[:4])

    drive(MadeUpFeed(), test, size=(width, 30))


def test_an_end_during_a_pause_is_told_with_its_status() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while not app.ready:
            await pilot.pause(0.05)
        await pilot.press("p")
        feed.session.ended(feed.now_ns())
        await settle(app, pilot)
        assert "the program has ended ·" in text(app)[2]
        assert "status is on its way" in text(app)[1]
        await pilot.press("p")
        assert "ENDED" in text(app)[2]
        assert not any("not known" in line or "finished" in line for line in text(app)[1:3])
        await pilot.press("p")
        feed.program.running = False
        feed.program.listener.program_exited(ExitStatus(3, None, False, 0.0))
        await pilot.pause()
        assert "the program has ended: exited with status 3 ·" in text(app)[2]
        await pilot.press("p")
        assert "exited with status 3" in text(app)[1]
        assert "ENDED" in text(app)[2]
        assert not any("not known" in line or "on its way" in line for line in text(app)[1:3])

    feed: Any = MadeUpFeed()
    feed.program = MadeUpProgram()
    drive(feed, test)


# The program's output


def test_the_output_tab_types_into_the_program() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        for _ in range(20):
            await pilot.pause(0.05)
            if feed.program.listener is not None:
                break
        feed.program.listener.program_output(b"epoch 1\r\n\x1b[31mloss 0.5\x1b[0m", False)
        await pilot.press("3")
        await pilot.pause(0.3)
        assert any("loss 0.5" in line for line in text(app))
        assert app.monitor.typing
        await pilot.press("q", "ctrl+c", "ctrl+p")
        await pilot.pause()
        assert [sent for sent in feed.program.sent if sent.startswith("input")] == [
            "input b'q'",
            "input b'\\x03'",
            "input b'\\x10'",
        ]
        await pilot.press("f12")
        await pilot.pause()
        assert not app.monitor.typing
        await pilot.press("1")
        assert any("fragmentation" in line for line in text(app))

    feed: Any = MadeUpFeed()
    feed.program = MadeUpProgram()
    drive(feed, test)


def test_the_keyboard_comes_back_when_the_program_ends() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        while not app.ready:
            await pilot.pause(0.05)
        for width in (40, 50, 60, 80, 100, 120, 140, 200):
            await pilot.resize_terminal(width, 30)
            await pilot.press("3")
            await pilot.pause()
            assert "ctrl+] or F12" in text(app)[-1]
            if width in (40, 200):  # between them it depends on how many tabs there are
                assert ("the keyboard is the program's" in text(app)[-1]) == (width == 200)
            await pilot.press("f12")
        await pilot.press("3")
        await pilot.pause()
        assert app.monitor.typing
        feed.program.running = False
        feed.program.listener.program_exited(ExitStatus(3, None, False, 0.0))
        assert not app.monitor.typing
        await pilot.pause()
        assert "keyboard" not in text(app)[-1]
        assert "F12" not in text(app)[-1]
        await pilot.press("1", "3")
        await pilot.pause()
        assert "quit" in text(app)[-1]
        await pilot.press("pageup", "q")

    feed: Any = MadeUpFeed()
    feed.program = MadeUpProgram()
    assert drive(feed, test) is not None


# Recordings


def test_a_recording_is_moved_through() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.pause(0.2)
        assert "REPLAY" in text(app)[2]
        end = app.feed.now_ns()
        await pilot.press("left", "left")
        assert app.feed.now_ns() == end - 2 * app.monitor.chart.cell_ns()
        await pilot.press("home")
        assert app.feed.now_ns() == BEGUN_NS
        assert app.monitor.chart.input.window.cursor_ns == BEGUN_NS
        await pilot.press("right")
        assert app.feed.now_ns() > BEGUN_NS
        await pilot.press("end")
        assert app.feed.now_ns() == end
        assert "end" in "".join(text(app))

    drive(MadeUpRecording(), test)


# Terminals


def test_no_colour_is_none_and_stays_so() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("t")
        assert "NO_COLOR" in text(app)[2]
        for strip in app.screen._compositor.render_strips(app.size):
            for segment in strip:
                style = segment.style
                assert style is None or style.color is None or style.color.is_default
                assert style is None or style.bgcolor is None or style.bgcolor.is_default

    drive(MadeUpFeed(), test, environment={"NO_COLOR": "1"})


@pytest.mark.parametrize("keys", [(), ("question_mark",), ("g",), ("2",), ("left",), ("q",)])
def test_ascii_is_all_there_is_where_the_terminal_has_no_more(keys: tuple[str, ...]) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)
        assert [line for line in text(app) if not line.isascii()] == []

    feed = MadeUpFeed()
    feed.program = MadeUpProgram()
    drive(feed, test, ascii_only=True)


def test_all_themes_are_gone_through() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        seen = [app.look.colors.name]
        for _ in range(5):
            await pilot.press("t")
            seen.append(app.look.colors.name)
            assert f"theme: {seen[-1]}" in text(app)[2]
        assert seen == ["dark", "light", "colour-blind", "contrast", "no-colour", "dark"]

    drive(MadeUpFeed(), test)


def test_the_palette_has_the_own_commands() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("ctrl+p")
        await pilot.press(*"device")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await pilot.pause(0.3)

    async def named(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert {"Quit", "Picture", "Theme: light", "Device: cuda:1"} <= set(titles)

    drive(MadeUpFeed(Training(devices=2)), test)
    drive(MadeUpFeed(Training(devices=2)), named)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 50)])
def test_a_terminal_that_becomes_too_small_says_so_and_comes_back(size: tuple[int, int]) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        for width, height in ((30, 8), (3, 1), (20, 40), size):
            await pilot.resize_terminal(width, height)
            await pilot.pause(0.1)
            app.feed.advance(0.5)  # type: ignore[attr-defined]
            await settle(app, pilot)
            if (width, height) != size:
                assert text(app)[0].startswith("enlarge"[:width])
        lines = text(app)
        assert "train.py" in lines[0]
        assert any("device" in line and "▐" in line for line in lines)

    drive(MadeUpFeed(), test, size=size)


SIZES = ((80, 24), (120, 40), (40, 10), (10, 3), (2, 1), (200, 50))


@pytest.mark.parametrize("make", [lambda: MadeUpFeed(seconds=400), MadeUpRecording])
def test_time_keys_and_sizes_in_any_order(make: Any) -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        chance = random.Random(7)
        keys = ("home", "end", "pageup", "pagedown", "left", "right", "z", "x", "y", "p", "shift+left", "up", "down")
        for width, height in (*SIZES, SIZES[0]):
            await pilot.resize_terminal(width, height)
            await pilot.press("home", "end", "pageup", "pagedown", *chance.choices(keys, k=6))
            if not app.feed.replay:
                app.feed.advance(1)  # type: ignore[attr-defined]
            await settle(app, pilot)
        await pilot.press("end")
        assert app.monitor.chart.input.window.end_ns is None

    drive(make(), test)


def test_an_app_that_breaks_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """GIVEN a running program WHEN drawing fails THEN memtui fails with one line, and the program is left alone."""
    feed = MadeUpFeed()
    feed.program = MadeUpProgram()
    monkeypatch.setattr(MemtuiApp, "run", lambda app: asyncio.run(app.run_async(headless=True)))

    def broken(*_: object) -> None:
        raise IndexError("list index\nout of range")

    monkeypatch.setattr("memtui.tui.widgets.chart.Chart.draw", broken)
    for debug in ("", "1"):
        monkeypatch.setenv("MEMTUI_DEBUG", debug)
        with pytest.raises(DisplayFailed) as raised:
            run_app(feed)
        assert str(raised.value) == (
            "the display failed (IndexError: list index out of range); process 4242 goes on, "
            "memtui attach --pid 4242 shows it again; MEMTUI_DEBUG=1 shows where"
        )
        captured = capfd.readouterr()
        assert ("Traceback" in captured.err) == bool(debug)
    assert feed.program.running
    assert not [sent for sent in feed.program.sent if sent in ("interrupt", "kill")]


def test_every_line_of_every_size_is_drawn_to_its_width() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        for width in (40, 63, 64, 79, 80, 110, 121, 200):
            for height in (10, 15, 24, 31, 60):
                await pilot.resize_terminal(width, height)
                await settle(app, pilot)
                strips = app.screen._compositor.render_strips(app.size)
                assert [strip.cell_length for strip in strips] == [width] * height

    drive(MadeUpFeed(), test)


def test_before_torch_everything_is_unknown_and_nothing_is_zero() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await settle(app, pilot)
        lines = text(app)
        assert "STARTING" in lines[2]
        assert any("allocated" in line and "–" in line for line in lines)
        assert not any(" 0.0 " in line or " 0 B" in line for line in lines)

    drive(MadeUpFeed(seconds=0), test)


def test_the_direct_way_and_the_compositor_show_the_same() -> None:
    """GIVEN many frames drawn cell by cell WHEN all is composed anew THEN nothing differs."""

    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        for _ in range(60):
            app.feed.advance(0.7)  # type: ignore[attr-defined]
            app.monitor.draw_changes(force=True)
            await asyncio.sleep(0)
        kept = text(app)
        for part in (app.monitor.chart, app.monitor.figures, app.monitor.bar, app.monitor.header):
            part.set_look(app.look)
        await settle(app, pilot)
        assert text(app) == kept

    drive(MadeUpFeed(), test)


def test_pictures_are_made_without_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "screen.svg"
    save(MadeUpFeed(), str(path), 80, 24, theme="light", keys=("left",))
    svg = path.read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "capacity" in svg
    assert "#fbfbf9" in svg


def test_what_textual_would_toast_is_said_in_the_status_line() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        app.notify("a [b]word[/b]", title="title")
        await pilot.pause()
        assert "title: a [b]word[/b]" in text(app)[2]

    drive(MadeUpFeed(), test)


def test_events_are_scrolled() -> None:
    async def test(app: MemtuiApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2")
        before = text(app)
        await pilot.press("down")
        assert text(app)[4:] != before[4:]
        await pilot.press("pagedown", "pagedown", "pagedown", "up", "pageup", "pageup", "pageup")
        assert text(app)[4:-1] == before[4:-1]

    feed = MadeUpFeed()
    for index in range(60):
        time_ns = feed.clock_ns + index
        feed.session.apply(Event("alloc_retry", time_ns, 6, "forward", "cuda:0", {"num_alloc_retries": index}), time_ns)
    drive(feed, test, size=(100, 24))
