"""Why a Python program ended, from what it wrote last."""

from __future__ import annotations

import re

from memtui.analysis.text import clean

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b")
#: Of the interpreter itself: "/usr/bin/python: No module named x".
_COMPLAINT = re.compile(r"(?:\S*/)?(?:python|pypy)[\d.]*t?: (?=\S)")
_LONGEST = 200


def exception_line(output: str) -> str:
    """The last line that names an exception or is the interpreter's complaint; "" where there is none."""
    for line in reversed(output.splitlines()):
        text = clean(line, 4 * _LONGEST).rstrip()  # what is indented is a line of the program
        complaint = _COMPLAINT.match(text)
        if complaint or _EXCEPTION.match(text):
            return clean(text[complaint.end() :] if complaint else text, _LONGEST)
    return ""


def last_line(output: str) -> str:
    """The last line that is not empty."""
    return next((clean(line, _LONGEST) for line in reversed(output.splitlines()) if line.strip()), "")
