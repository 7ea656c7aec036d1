"""What a thread is busy with that no hook tells: saving, loading, compiling. Its stack's code objects say it.

Only names of files and functions are read, never a frame's locals: asking for those would keep them alive.
"""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Any, Optional

from .workers import is_foreign

#: Frames looked at, from the innermost outwards. What compiles has its marks all along its stack.
DEPTH = 200
_FILES_KEPT = 4096

CHECKPOINT, COMPILATION = "checkpoint", "compilation"
#: Under a data loader's fetch, what is loaded is a sample.
_SAMPLE = "sample"

#: What is done in files with these ends of names, and the functions that do it, by a part of their names; None where
#: all do. Of a file that runs compiled code too, only what compiles.
_AUTOTUNES = ("precompile", "bench", "autotune", "coordinate_descent")
_FILES: dict[str, tuple[str, Optional[tuple[str, ...]]]] = {
    "torch/serialization.py": (CHECKPOINT, ("save", "load")),
    "safetensors/torch.py": (CHECKPOINT, None),
    "torch/utils/data/_utils/fetch.py": (_SAMPLE, None),
    "torch/_dynamo/convert_frame.py": (COMPILATION, None),
    "torch/_dynamo/symbolic_convert.py": (COMPILATION, None),
    "torch/_inductor/compile_fx.py": (COMPILATION, ("compile",)),
    "torch/_inductor/graph.py": (COMPILATION, None),
    "torch/_inductor/scheduler.py": (COMPILATION, None),
    "torch/_inductor/runtime/triton_heuristics.py": (COMPILATION, _AUTOTUNES),
    "torch/_inductor/triton_heuristics.py": (COMPILATION, _AUTOTUNES),  # up to torch 2.4
    "triton/compiler/compiler.py": (COMPILATION, None),
    "triton/runtime/autotuner.py": (COMPILATION, ("bench",)),
}
_FOLDERS = {"torch/distributed/checkpoint/": CHECKPOINT}

#: The name of a file's own code: it is being imported.
_IMPORTED = "<module>"

_Rule = tuple[str, Optional[tuple[str, ...]]]


#: Functions that a phase runs in, from the innermost outwards.
_PASSES = {
    ("torch/nn/modules/module.py", "_call_impl"): "forward",
    ("torch/autograd/graph.py", "_engine_run_backward"): "backward",
    ("torch/optim/optimizer.py", "profile_hook_step"): "optimizer",
    ("torch/optim/optimizer.py", "wrapper"): "optimizer",
}


def own_pass() -> str:
    """The phase that this very thread's stack is in; empty where it does not say. A device's own runs backward."""
    if is_foreign(_thread.get_ident()):
        return "backward"
    frame: Any = sys._getframe(1)
    for _ in range(DEPTH):
        if frame is None:
            break
        code = frame.f_code
        for (file, name), phase in _PASSES.items():
            if code.co_name == name and code.co_filename.endswith(file):
                return phase
        frame = frame.f_back
    return ""


class Stack:
    """Tells what the code objects on a thread's stack mean."""

    def __init__(self) -> None:
        self._rules: dict[str, Optional[_Rule]] = {}  # by name of file

    def doing(self, thread: int, *, others: bool = False) -> Optional[str]:
        """Says "checkpoint", "compilation" or None; with `others` also what another thread compiles."""
        # References to frames go as soon as may be: as long as one is held, the locals of its function live on after
        # it has returned. Without its global lock, Python's frames of other threads may not be looked at.
        if not getattr(sys, "_is_gil_enabled", _always)():
            return None
        found = self._walk(sys._current_frames().get(thread))
        if found is not None or not others:
            return found
        frames = sys._current_frames()
        frames.pop(threading.get_ident(), None)  # this very function's: a local that holds it would be a cycle
        while frames:
            if self._walk(frames.popitem()[1]) == COMPILATION:
                return COMPILATION
        return None

    def _walk(self, frame: Any) -> Optional[str]:
        rules, found = self._rules, None
        for _ in range(DEPTH):
            if frame is None:
                break
            code = frame.f_code
            name = code.co_filename
            rule = rules[name] if name in rules else self._learn(name)
            if rule is not None:
                found = _with(found, rule, code.co_name)
            frame = frame.f_back
        return found

    def _learn(self, name: str) -> Optional[_Rule]:
        if len(self._rules) >= _FILES_KEPT:
            self._rules.clear()
        rule = next((rule for end, rule in _FILES.items() if name.endswith("/" + end)), None)
        if rule is None:
            rule = next(((kind, None) for folder, kind in _FOLDERS.items() if "/" + folder in name), None)
        self._rules[name] = rule
        return rule


def _with(found: Optional[str], rule: _Rule, function: str) -> Optional[str]:
    """What was found further inside, and what this function adds to it."""
    does, functions = rule
    if function == _IMPORTED:
        return None  # what goes on inside defines functions, and does not call them
    if functions is not None and not any(part in function for part in functions):
        return found
    if does == _SAMPLE:
        return None if found == CHECKPOINT else found
    return found or does


def _always() -> bool:
    return True
