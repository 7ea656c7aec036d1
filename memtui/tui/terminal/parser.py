"""Splits a program's output into text, controls and escape sequences, wherever the pieces are cut."""

from __future__ import annotations

import codecs
import re
from typing import Protocol

#: An escape sequence that has not ended after so many characters never will.
MAX_SEQUENCE = 256

#: Introduce a string that ends with ST (or BEL): DCS, SOS, OSC, PM, APC. None of them is ever shown or obeyed.
_STRING_STARTS = "PX]^_"

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    # Controls inside a sequence are executed and the sequence goes on; ESC, CAN and SUB end it.
    r"|(?:\x1b\[|\x9b)(?P<body>[\x00-\x17\x19\x1c-\x3f]*)(?P<final>[\x40-\x7e])"
    r"|\x1b(?P<intermediate>[\x20-\x2f]+)(?P<designated>[\x30-\x7e])"
    r"|(?P<string>\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])"
    r"|\x1b(?P<escape>[\x30-\x5a\x5c\x60-\x7e])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x8f\x91-\x97\x99\x9a\x9c])"
)

#: What may still become a sequence when more arrives.
_PARTIAL = re.compile(r"(?:\x1b\[|\x9b)[\x00-\x17\x19\x1c-\x3f]*\Z|\x1b[\x20-\x2f]*\Z")

#: A sequence that something else broke off.
_BROKEN = re.compile(r"(?:\x1b\[|\x9b)[\x00-\x17\x19\x1c-\x3f]*|\x1b[\x20-\x2f]*")

#: The end of a string, or what aborts it.
_STRING_END = re.compile(r"\x1b\\|[\x07\x18\x1a\x9c]|\x1b(?=[^\\])")

_CONTROLS_IN_BODY = re.compile(r"[\x00-\x1f]")
_BODY = re.compile(r"([\x30-\x3f]*)([\x20-\x2f]*)\Z")


class Actions(Protocol):
    """What the parser calls; a terminal screen."""

    def draw(self, data: str) -> None:
        """Printable text."""

    def control(self, character: str) -> None:
        """A C0 or C1 control."""

    def escape(self, intermediate: str, final: str) -> None:
        """ESC, intermediates, final."""

    def csi(self, parameters: str, intermediate: str, final: str) -> None:
        """Control sequence; `parameters` with its private marker, as it stood."""


class Parser:
    """Feed it bytes; it calls `actions`. Unknown, broken and endless sequences are swallowed."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._in_string = False

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; a character or sequence cut at their end waits for the rest."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        position = 0
        end = len(text)
        match_token = _TOKEN.match
        draw = self._actions.draw
        while position < end:
            if self._in_string:
                position = self._skip_string(text, position)
                continue
            token = match_token(text, position)
            if token is None:
                if _PARTIAL.match(text, position):
                    # Of an endless one, enough is kept to be recognised as too long when it ends after all.
                    self._rest = text[position : position + 2 * MAX_SEQUENCE]
                    return
                position = self._skip_broken(text, position)
                continue
            position = token.end()
            kind = token.lastgroup
            if kind == "text":
                draw(token[0])
            elif kind == "final":
                self._csi(token["body"], token["final"])
            elif kind == "control":
                self._actions.control(token[0])
            elif kind == "string":
                self._in_string = True
            elif kind == "escape":
                self._actions.escape("", token["escape"])
            else:
                self._actions.escape(token["intermediate"], token["designated"])

    def reset(self) -> None:
        """Forget a sequence begun, as after a gap in the output."""
        self._decoder.reset()
        self._rest = ""
        self._in_string = False

    def _csi(self, body: str, final: str) -> None:
        if len(body) > MAX_SEQUENCE:
            return
        if not body.isprintable():
            for control in _CONTROLS_IN_BODY.findall(body):
                self._actions.control(control)
            body = _CONTROLS_IN_BODY.sub("", body)
        parts = _BODY.match(body)
        if parts is not None:
            self._actions.csi(parts[1], parts[2], final)

    def _skip_string(self, text: str, position: int) -> int:
        found = _STRING_END.search(text, position)
        if found is not None:
            self._in_string = False
            return found.end() if found[0] != "\x1b" else found.start()
        if text.endswith("\x1b"):
            self._rest = "\x1b"  # perhaps the first half of its end
        return len(text)

    @staticmethod
    def _skip_broken(text: str, position: int) -> int:
        # Up to the character that broke the sequence, which is looked at anew.
        found = _BROKEN.match(text, position)
        return found.end() if found else position + 1
