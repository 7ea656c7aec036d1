"""Call stacks of a snapshot: the line of the program they lead to, and what the memory may be for."""

from __future__ import annotations

import re
from typing import NamedTuple

from memtui.analysis.text import clean

from .model import Frames

#: What can be told by a stack; the rest is "other", and NO_STACK where there is none.
PARAMETERS = "parameters"
OPTIMIZER = "optimizer"
FORWARD = "forward"
BACKWARD = "backward"
OTHER = "other"
#: The thread that runs backward has no Python frames, and neither has what was recorded without stacks.
NO_STACK = "no Python stack"
#: What was there when the recording begins, or what it dropped, has the stack of nobody.
BEFORE = "before the recording"
CATEGORIES = (PARAMETERS, OPTIMIZER, FORWARD, BACKWARD, OTHER, NO_STACK, BEFORE)

_TORCH = re.compile(r"[/\\]torch[/\\]|^torch[/\\]|[/\\]importlib[/\\]|^<frozen ")
#: Libraries, of which the caller is more telling.
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]python3\.\d+[/\\]")
_OPTIMIZER = re.compile(r"[/\\](?:torch|torchao|bitsandbytes|apex|deepspeed)[/\\](?:.*[/\\])?optim(?:izers?)?[/\\]")
_MODULE = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py$")
_MADE = re.compile(r"[/\\]torch[/\\]nn[/\\](?:init\.py$|modules[/\\]|parameter\.py$)")
_AUTOGRAD = re.compile(r"[/\\]torch[/\\](?:autograd[/\\]|_tensor\.py$)")
_MOVES = frozenset(("_apply", "to", "cuda", "half", "bfloat16", "float", "to_empty"))
_CALLS = frozenset(("_call_impl", "_wrapped_call_impl"))
_MAKES = frozenset(("__init__", "reset_parameters", "_reset_parameters"))
_BACKWARD = frozenset(("_engine_run_backward", "backward", "_make_grads", "grad"))


class Frame(NamedTuple):
    """One call: cleaned texts, the line 0 where it is not known."""

    function: str
    filename: str
    line: int

    @property
    def python(self) -> bool:
        """Whether it is Python's, and not C++'s, of which torch tells no file or the source's."""
        return self.filename.endswith((".py", ">")) and "::" not in self.function

    @property
    def text(self) -> str:
        """As it stands in a table and in folded stacks: "train.py:12 forward"."""
        if not self.line and self.filename in {"", "??"}:
            return self.function.replace(";", ":")
        short = re.split(r"[/\\]", self.filename)[-1]
        return f"{short}:{self.line} {self.function}".replace(";", ":")


class Stack(NamedTuple):
    """Frames from the innermost; `site` is the innermost line of the program's own, `category` one of CATEGORIES.

    The frames are Python's where it has any, else C++'s.
    """

    frames: tuple[Frame, ...]
    site: str
    category: str

    @property
    def folded(self) -> str:
        """From the outermost, as flame graph tools read it."""
        return ";".join(frame.text for frame in reversed(self.frames)) or self.site


NOWHERE = Stack((), BEFORE, BEFORE)


class Stacks:
    """Stacks of one snapshot, each made once: torch gives the same frames again and again."""

    def __init__(self) -> None:
        self._frames: dict[int, Frame] = {}
        self._stacks: dict[tuple[Frame, ...], Stack] = {}

    def stack(self, frames: Frames) -> Stack:
        """That of an event or a block, which must stay in memory as long as this does."""
        known = self._frames
        made = []
        for raw in frames:
            frame = known.get(id(raw))
            if frame is None:
                frame = known[id(raw)] = _frame(raw)
            made.append(frame)
        key = tuple(made)
        found = self._stacks.get(key)
        if found is None:
            python = tuple(frame for frame in key if frame.python)
            found = self._stacks[key] = Stack(python or key, _site(python), category_of(key))
        return found


def _frame(raw: object) -> Frame:
    if not isinstance(raw, dict):
        return Frame("?", "", 0)
    function, filename, line = raw.get("name"), raw.get("filename"), raw.get("line")
    return Frame(
        clean(function, 200) if isinstance(function, str) else "?",
        clean(filename, 400) if isinstance(filename, str) else "",
        line if isinstance(line, int) and not isinstance(line, bool) and line >= 0 else 0,
    )


def _site(python: tuple[Frame, ...]) -> str:
    foreign = [frame for frame in python if not _TORCH.search(frame.filename)]
    own = [frame for frame in foreign if not _LIBRARY.search(frame.filename)]
    for each in (own, foreign, list(python)):
        if each:
            return each[0].text
    return NO_STACK


def category_of(frames: tuple[Frame, ...]) -> str:
    """What the innermost frame that tells something says; recomputation in backward is forward."""
    if not frames:
        return NO_STACK
    for frame in frames:
        told = _told(frame)
        if told:
            return told
    return OTHER if any(frame.python for frame in frames) else NO_STACK


def _told(frame: Frame) -> str:
    if not frame.python:
        return BACKWARD if "autograd::Engine::" in frame.function else ""
    function, filename = frame.function, frame.filename
    if _OPTIMIZER.search(filename):
        return OPTIMIZER
    if _MODULE.search(filename) and function in _CALLS:
        return FORWARD
    if (_MODULE.search(filename) and function in _MOVES) or (_MADE.search(filename) and function in _MAKES):
        return PARAMETERS
    return BACKWARD if _AUTOGRAD.search(filename) and function in _BACKWARD else ""
