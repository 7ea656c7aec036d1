"""The output tab shows what a terminal would, sends what a keyboard would, and lets nothing else out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rich.color import Color
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Input

from memtui.tui.terminal.backlog import HIDDEN_BYTES
from memtui.tui.terminal.screen import HISTORY_LINES
from memtui.tui.widgets.output import OutputPane


class PaneApp(App[None]):
    """The pane and something else to be focused; `heard` is what the pane posts."""

    CSS = "#below { height: 3; }"

    def __init__(self, shown: bool = True) -> None:
        super().__init__()
        self.pane = OutputPane()
        self.pane.display = shown
        self.heard: list[Message] = []

    def compose(self) -> ComposeResult:
        yield self.pane
        with Vertical(id="below"):
            yield Input()

    def on_mount(self) -> None:
        self.pane.focus()

    def on_output_pane_input(self, message: OutputPane.Input) -> None:
        self.heard.append(message)

    def on_output_pane_reply(self, message: OutputPane.Reply) -> None:
        self.heard.append(message)

    def on_output_pane_resized(self, message: OutputPane.Resized) -> None:
        self.heard.append(message)

    @property
    def typed(self) -> bytes:
        return b"".join(message.data for message in self.heard if isinstance(message, OutputPane.Input))

    @property
    def replies(self) -> bytes:
        return b"".join(message.data for message in self.heard if isinstance(message, OutputPane.Reply))


def run(check: Callable[[PaneApp, Pilot[None]], Awaitable[None]], *, shown: bool = True) -> None:
    """Run `check` with a pane of 40 by 10 cells."""

    async def main() -> None:
        app = PaneApp(shown)
        async with app.run_test(size=(40, 13)) as pilot:
            await pilot.pause()
            await check(app, pilot)

    asyncio.run(main())


def drawn(pane: OutputPane) -> list[str]:
    """The text of the lines as rendered, cut after the last one with text."""
    lines = [pane.render_line(y).text.rstrip() for y in range(pane.size.height)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def style_at(strip: Strip, x: int) -> Style:
    [segment] = list(strip.crop(x, x + 1))
    assert segment.style is not None
    return segment.style


async def settle(app: PaneApp, pilot: Pilot[None]) -> None:
    """Wait until the pane has parsed all it was fed, and would parse more at once."""
    while not app.pane.settled:
        await pilot.pause(0.01)
    await pilot.pause()


def test_text_and_nested_bars() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"start\r\n")
        for step in range(30):
            app.pane.feed(b"\repoch 1\x1b[K\r\n\rstep %d %s\x1b[K\x1b[A\r" % (step, b"#" * (step % 10)))
        await settle(app, pilot)
        assert drawn(app.pane) == ["start", "epoch 1", "step 29 #########"]

    run(check)


def test_colours_and_attributes() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(
            b"\x1b[31ma\x1b[95mb\x1b[38;5;208mc\x1b[38;2;1;2;3md\x1b[38:2::4:5:6me\x1b[0;42mf\x1b[0m"
            b"\x1b[1mg\x1b[0;2mh\x1b[0;3mi\x1b[0;4mj\x1b[0;7mk\x1b[0;9ml\x1b[0mm"
        )
        await settle(app, pilot)
        app.set_focus(None)  # the cursor would be one more style
        line = app.pane.render_line(0)
        assert line.text.rstrip() == "abcdefghijklm"
        colours = [Color.from_ansi(1), Color.from_ansi(13), Color.from_ansi(208), Color.from_rgb(1, 2, 3)]
        assert [style_at(line, x).color for x in range(4)] == colours
        assert style_at(line, 4).color == Color.from_rgb(4, 5, 6)
        assert style_at(line, 5).bgcolor == Color.from_ansi(2)
        for x, attribute in enumerate(["bold", "dim", "italic", "underline", "reverse", "strike"], 6):
            assert getattr(style_at(line, x), attribute) is True, attribute
        assert style_at(line, 12) == app.pane.rich_style

    run(check)


def test_the_cursor_is_there_with_the_focus() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"ab")
        await settle(app, pilot)
        assert style_at(app.pane.render_line(0), 2).reverse
        app.query_one(Input).focus()
        await pilot.pause()
        assert not style_at(app.pane.render_line(0), 2).reverse
        app.pane.focus()
        await pilot.pause()
        app.pane.feed(b"\x1b[?25l")
        await settle(app, pilot)
        assert not style_at(app.pane.render_line(0), 2).reverse

    run(check)


def test_only_changed_lines_are_drawn() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"1\r\n2\r\n3\r\n4\x1b[H")
        await settle(app, pilot)
        rows: list[int] = []
        render_line = app.pane.render_line

        def counted(y: int) -> Strip:
            rows.append(y)
            return render_line(y)

        app.pane.render_line = counted  # type: ignore[method-assign]
        app.pane.feed(b"\x1b[3;5Hx\x1b[H")
        await settle(app, pilot)
        await pilot.pause(0.1)
        assert set(rows) == {0, 2}  # the cursor's and the changed one

    run(check)


def test_nothing_of_the_program_leaves_but_as_cells() -> None:
    secrets = (
        b"\x1b]0;title\x07\x1b]52;c;aGk=\x1b\\\x1bP+q544e\x1b\\\x1b_apc\x1b\\"
        b"\x1b[>4;1m\x1b[?u\x1b[!p\x1b[2 q\x1b[5i\x07\x05"
    )

    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"a" + secrets + b"b\x9b31mc" + "\u202e\x84\x90x\x9cd".encode())
        await settle(app, pilot)
        assert drawn(app.pane)[0].startswith("ab")
        assert all(character.isprintable() for line in drawn(app.pane) for character in line)
        assert app.title == "PaneApp"
        assert app.replies == b""

    run(check)


def test_questions_are_answered_once() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"\x1b[6n\x1b[c", replayed=True)
        app.pane.feed(b"\r\nab\x1b[6n\x1b[5n\x1b[c\x1b[>c\x1b[18t\x1b[?2026$p")
        await settle(app, pilot)
        expected = b"\x1b[2;3R\x1b[0n\x1b[?6c\x1b[>0;0;0c\x1b[8;10;40t\x1b[?2026;0$y"
        assert app.replies == expected
        assert app.typed == b""

    run(check)


def test_questions_are_answered_while_hidden() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        for column in range(3):
            app.pane.feed(b"x\x1b[6n")
            while app.replies.count(b"R") <= column:
                await pilot.pause(0.01)
        assert app.replies == b"\x1b[1;2R\x1b[1;3R\x1b[1;4R"

    run(check, shown=False)


def test_a_full_screen_program_comes_and_goes() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"before\r\n$ ")
        app.pane.feed(b"\x1b[?1049h\x1b[2J\x1b[Hfull" + b"\r\nscreen" * 20)
        await settle(app, pilot)
        assert drawn(app.pane) == ["screen"] * 10
        app.pane.feed(b"\x1b[?1049lafter")
        await settle(app, pilot)
        assert drawn(app.pane) == ["before", "$ after"]
        assert not app.pane._terminal.screen.history

    run(check)


def test_wide_and_combined_characters() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed("日本e\u0301|\r\n日本\x1b[2Gx\r\n".encode() + b"a" * 39 + "日".encode())
        await settle(app, pilot)
        assert drawn(app.pane) == ["日本e\u0301|", " x本", "a" * 39, "日"]
        assert [app.pane.render_line(y).cell_length for y in range(4)] == [40] * 4

    run(check)


def test_scrolling_back() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"".join(b"line %d\r\n" % n for n in range(100)))
        await settle(app, pilot)
        assert drawn(app.pane)[-1] == "line 99"
        await pilot.press("shift+pageup")
        assert drawn(app.pane)[1] == "line 83"
        assert "9 lines up" in drawn(app.pane)[0]
        # What is in view stays in view while the program writes on.
        app.pane.feed(b"more\r\n" * 20)
        await settle(app, pilot)
        assert drawn(app.pane)[1] == "line 83"
        assert "29 lines up" in drawn(app.pane)[0]
        for _ in range(50):
            await pilot.press("ctrl+pageup")
        assert drawn(app.pane)[1] == "line 1"
        await pilot.press("ctrl+pagedown")
        assert drawn(app.pane)[1] == "line 10"
        await pilot.press("x")  # typing returns
        assert drawn(app.pane)[-1] == "more"
        app.pane.post_message(
            events.MouseScrollUp(app.pane, 1, 1, 0, 0, 0, False, False, False, screen_x=1, screen_y=1, style=Style())
        )
        await pilot.pause()
        assert "3 lines up" in drawn(app.pane)[0]

    run(check)


def test_history_is_bounded_and_a_view_into_it_follows() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"".join(b"%d\r\n" % n for n in range(HISTORY_LINES)))
        await settle(app, pilot)
        for _ in range(HISTORY_LINES // 9 + 1):
            app.pane.action_scroll_back(1)
        assert drawn(app.pane)[1] == "1"
        app.pane.feed(b"x\r\n" * 1000)
        await settle(app, pilot)
        assert len(app.pane._terminal.screen.history) == HISTORY_LINES
        assert int(drawn(app.pane)[1]) > 900

    run(check)


def test_keys_reach_the_program() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        await pilot.press("a", "Z", "plus", "space", "enter", "tab", "shift+tab", "backspace", "escape", "delete")
        await pilot.press("ctrl+c", "ctrl+d", "ctrl+@", "ctrl+backslash", "ctrl+z", "up", "ctrl+right", "f1", "f5")
        assert app.typed == (b"aZ+ \r\t\x1b[Z\x7f\x1b\x1b[3~\x03\x04\x00\x1c\x1a\x1b[A\x1b[1;5C\x1bOP\x1b[15~")
        app.heard.clear()
        app.pane.feed(b"\x1b[?1h")
        await settle(app, pilot)
        await pilot.press("up", "home", "shift+up")
        assert app.typed == b"\x1bOA\x1bOH\x1b[1;2A"
        app.heard.clear()
        app.pane.post_message(events.Key("alt+x", "x"))
        app.pane.post_message(events.Key("é", "é"))
        await pilot.pause()
        assert app.typed == b"\x1bx\xc3\xa9"

    run(check)


def test_the_keyboard_is_given_back() -> None:
    for key in ("ctrl+right_square_bracket", "f12"):

        async def check(app: PaneApp, pilot: Pilot[None], key: str = key) -> None:
            await pilot.press(key)
            assert app.focused is None
            await pilot.press("a")
            assert app.typed == b""

        run(check)


def test_pastes() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.post_message(events.Paste("one\ntwo\x1b[201~\x03"))
        await pilot.pause()
        assert app.typed == b"one\rtwo[201~"
        app.heard.clear()
        app.pane.feed(b"\x1b[?2004h")
        await settle(app, pilot)
        app.pane.post_message(events.Paste("a\r\nb"))
        await pilot.pause()
        assert app.typed == b"\x1b[200~a\rb\x1b[201~"

    run(check)


def test_the_size_is_told_and_followed() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        assert [(m.columns, m.rows) for m in app.heard if isinstance(m, OutputPane.Resized)] == [(40, 10)]
        app.pane.feed(b"".join(b"\r\nline %d" % n for n in range(9)))
        await settle(app, pilot)
        app.heard.clear()
        await pilot.resize_terminal(30, 8)
        assert [(m.columns, m.rows) for m in app.heard if isinstance(m, OutputPane.Resized)] == [(30, 5)]
        assert drawn(app.pane) == [f"line {n}" for n in range(4, 9)]
        await pilot.press("shift+pageup")
        assert drawn(app.pane)[1] == "line 1"

    run(check)


def test_a_hidden_pane_parses_only_the_end_when_it_is_shown() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        pane = app.pane
        pane.feed(b"\x1b[?1h")  # a mode must not be lost with the text around it
        for n in range(200_000):
            pane.feed(b"line %06d\r\n" % n)
        assert pane.lines == [""] * 24
        assert pane._terminal.waiting_bytes <= 2 * HIDDEN_BYTES
        pane.display = True
        await pilot.pause()
        await settle(app, pilot)
        assert drawn(pane)[-1] == "line 199999"
        text = ["".join(part for part, _ in runs) for runs in pane._terminal.screen.history]
        pane.focus()
        await pilot.press("up")
        assert app.typed == b"\x1bOA"
        numbers = [int(line[5:]) for line in text[-2000:]]
        assert numbers == list(range(numbers[0], numbers[0] + 2000))

    run(check, shown=False)


def test_a_gap_is_said_where_it_is() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        pane = app.pane
        pane.feed(b"first \x1b[31mred")
        await settle(app, pilot)
        pane.feed(b"x" * HIDDEN_BYTES + b"\nlast one\r\n" + b"end")
        await settle(app, pilot)
        kib = (HIDDEN_BYTES + 1) // 1024
        assert drawn(pane)[:2] == ["first red", f"… {kib} KiB skipped"]
        app.set_focus(None)
        pane.note_lost(5000)
        assert drawn(pane)[-1] == "… 4 KiB skipped"

    run(check)


def test_much_output_at_once_is_shown_at_its_end() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        for n in range(100):
            app.pane.feed(b"".join(b"line %06d %s\r\n" % (n * 100 + m, b"-" * 90) for m in range(100)))
        await settle(app, pilot)
        assert drawn(app.pane)[-3].startswith("line 009999")
        history = ["".join(part for part, _ in runs) for runs in app.pane._terminal.screen.history]
        assert any(line.startswith("… ") and line.endswith("KiB skipped") for line in history)

    run(check)


def test_reset_begins_again() -> None:
    async def check(app: PaneApp, pilot: Pilot[None]) -> None:
        app.pane.feed(b"old\r\n" * 30 + b"\x1b[?1049h\x1b[?1h")
        await settle(app, pilot)
        app.pane.reset()
        app.pane.feed(b"new")
        await settle(app, pilot)
        assert drawn(app.pane) == ["new"]
        await pilot.press("up", "shift+pageup")
        assert app.typed == b"\x1b[A"
        assert drawn(app.pane) == ["new"]

    run(check)
