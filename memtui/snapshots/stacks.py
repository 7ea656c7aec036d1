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

_CPP = 3
#: Frames that are looked at, from the innermost; Python itself stops at so many calls, unless it is told otherwise.
_DEEPEST = 1_000
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
    """One call: `text` as it stands in tables and folded stacks, "train.py:12 forward"; `told` is a category or "".

    `near` is 0 in the program's own files, 1 in a library's, 2 in torch's and Python's, 3 in C++.
    """

    text: str
    near: int
    told: str

    @property
    def python(self) -> bool:
        """Whether it is Python's."""
        return self.near < _CPP


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
        self._lists: dict[int, Stack] = {}

    def stack(self, frames: Frames) -> Stack:
        """That of an event or a block, which must stay in memory as long as this does."""
        found = self._lists.get(id(frames))
        if found is None:
            found = self._lists[id(frames)] = self._made(frames)
        return found

    def _made(self, frames: Frames) -> Stack:
        known = self._frames
        made = []
        for raw in frames[:_DEEPEST]:
            frame = known.get(id(raw))
            if frame is None:
                frame = known[id(raw)] = frame_of(raw)
            made.append(frame)
        key = tuple(made)
        found = self._stacks.get(key)
        if found is None:
            found = self._stacks[key] = stack_of(key)
        return found


def stack_of(frames: tuple[Frame, ...]) -> Stack:
    """Of frames from the innermost; the first that tells something tells, so recomputing in backward is forward."""
    python = tuple(frame for frame in frames if frame.near < _CPP)
    # The innermost of the nearest kind: the first of the least.
    site = min(python, key=lambda frame: frame.near).text if python else NO_STACK
    category = next((frame.told for frame in frames if frame.told), OTHER if python else NO_STACK)
    return Stack(python or frames, site, category)


def frame_of(raw: object) -> Frame:
    """A frame as torch writes it; what is not one is "?"."""
    if not isinstance(raw, dict):
        return Frame("?", _CPP, "")
    function, filename, line = raw.get("name"), raw.get("filename"), raw.get("line")
    function = clean(function, 200) if isinstance(function, str) else "?"
    filename = clean(filename, 400) if isinstance(filename, str) else ""
    if not filename.endswith((".py", ">")) or "::" in function:
        # C++ has no file, or that of its source.
        return Frame(function.replace(";", ":"), _CPP, BACKWARD if "autograd::Engine::" in function else "")
    short = re.split(r"[/\\]", filename)[-1]
    number = f":{line}" if isinstance(line, int) and line > 0 else ""
    near = 2 if _TORCH.search(filename) else 1 if _LIBRARY.search(filename) else 0
    return Frame(f"{short}{number} {function}".replace(";", ":"), near, _told(function, filename))


def _told(function: str, filename: str) -> str:
    if _OPTIMIZER.search(filename):
        return OPTIMIZER
    if _MODULE.search(filename) and function in _CALLS:
        return FORWARD
    if (_MODULE.search(filename) and function in _MOVES) or (_MADE.search(filename) and function in _MAKES):
        return PARAMETERS
    return BACKWARD if _AUTOGRAD.search(filename) and function in _BACKWARD else ""
