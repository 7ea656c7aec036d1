"""What is to become of the program when the monitor is quit."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from memtui.tui import roles
from memtui.tui.look import Look
from memtui.tui.rows import Line, Row, shorten, words
from memtui.tui.widgets.lines import Lines

Answer = Literal["detach", "interrupt", "kill", "cancel"]

_FIRST: tuple[tuple[str, Answer, str], ...] = (
    ("l", "detach", "leave it running; memtui attach finds it again"),
    ("s", "interrupt", "stop it, as ctrl+c would"),
    ("c", "cancel", "cancel"),
)
_AGAIN: tuple[tuple[str, Answer, str], ...] = (
    ("l", "detach", "leave it; it may still be saving its work"),
    ("k", "kill", "kill it now; what it has not saved is lost"),
    ("c", "cancel", "back to the monitor"),
)


class Question(Lines):
    """A sentence and the answers, one of them marked."""

    def __init__(self, look: Look, program: str, again: bool) -> None:
        super().__init__(look, id="question")
        self.program = program
        self.answers = _AGAIN if again else _FIRST
        self.again = again
        self.chosen = 0

    def draw(self, width: int, height: int) -> list[Row]:
        """One line an answer."""
        program = words(self.look.text(self.program), width - 30, self.look.glyphs.ellipsis)
        sentence = "was interrupted and still runs." if self.again else "is still running."
        rows = [
            Line().row(width),
            Line().add(f"  {program} ", roles.BRIGHT).add(sentence, roles.TEXT).row(width),
            Line().row(width),
        ]
        for place, (key, _, text) in enumerate(self.answers):
            marked = place == self.chosen
            line = Line().add(f"  {self.look.glyphs.marker if marked else ' '} ", roles.KEY)
            line.add(f" {key} ", roles.ACTIVE if marked else roles.KEY).add(" ", " ")
            said = shorten(self.look.text(text), width - line.width - 1, self.look.glyphs.ellipsis)
            rows.append(line.add(said, roles.BRIGHT if marked else roles.TEXT).row(width))
        return [*rows, Line().row(width)]


class QuitScreen(ModalScreen[Answer]):
    """Asks what is to become of the program."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,d", "answer('detach')", show=False),
        Binding("s,i", "answer('interrupt')", show=False),
        Binding("k", "answer('kill')", show=False),
        Binding("c,escape,q,n", "answer('cancel')", show=False),
        Binding("ctrl+c", "answer('cancel')", show=False, priority=True),
        Binding("up,left,shift+tab", "choose(-1)", show=False),
        Binding("down,right,tab", "choose(1)", show=False),
        Binding("enter,space", "take", show=False),
    ]

    def __init__(self, look: Look, program: str, *, again: bool = False) -> None:
        super().__init__()
        self.question = Question(look.raised(), program, again)

    def compose(self) -> ComposeResult:
        """The question alone."""
        yield self.question

    def on_resize(self) -> None:
        """As wide as is readable."""
        self.question.styles.width = min(self.app.size.width, 66)
        self.question.styles.height = min(self.app.size.height, 7)

    def action_choose(self, by: int) -> None:
        """Marks the next answer."""
        self.question.chosen = (self.question.chosen + by) % len(self.question.answers)
        self.question.take_changes()
        self.question.refresh()

    def action_take(self) -> None:
        """Gives the marked answer."""
        self.dismiss(self.question.answers[self.question.chosen][1])

    def action_answer(self, answer: Answer) -> None:
        """Gives an answer, if it is one of those asked for."""
        if any(answer == offered for _, offered, _ in self.question.answers):
            self.dismiss(answer)
