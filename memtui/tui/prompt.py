"""A line of text that is typed into a part of the screen."""

from __future__ import annotations

from typing import Optional

from textual import events

MOST = 60


class Prompt:
    """What has been typed so far; `question` is what for, "" while nothing is typed."""

    def __init__(self) -> None:
        self.question = ""
        self.text = ""

    @property
    def open(self) -> bool:
        """Whether keys are text."""
        return bool(self.question)

    def ask(self, question: str) -> None:
        """Keys are text from now on."""
        self.question, self.text = question, ""

    def close(self) -> None:
        """Keys are keys again."""
        self.question, self.text = "", ""

    def key(self, event: events.Key) -> Optional[str]:
        """Takes a key while it is open; the whole text once it is complete, None before that.

        What is no text, as ctrl+c, is left to others.
        """
        done: Optional[str] = None
        if event.key == "enter":
            done = self.text.strip()
            self.close()
        elif event.key == "escape":
            self.close()
        elif event.key == "backspace":
            self.text = self.text[:-1]
        elif event.key == "ctrl+u":
            self.text = ""
        elif event.character is not None and event.is_printable:
            self.text = (self.text + event.character)[:MOST]
        else:
            return None
        event.stop()
        event.prevent_default()
        return done

    def paste(self, text: str) -> None:
        """Pasted text."""
        self.text = (self.text + text.strip())[:MOST]
