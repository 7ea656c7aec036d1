"""What other threads are doing just now: when hooks can be changed, and gradients be read, from outside.

Python refuses to go on with a loop over a dictionary that has changed: in the program, as its error. And whoever reads
a gradient that a backward pass is writing, or that is being dropped, crashes the process.
"""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Callable
from typing import Any, Optional

#: Functions that loop over hooks while other Python code runs, by the end of their file's name.
_LOOPS = {
    "torch/optim/optimizer.py": {"wrapper", "profile_hook_step"},
    "torch/nn/modules/module.py": {"register_parameter", "add_module", "register_module", "__setattr__"},
}
#: Functions that are on the stack while a backward pass runs, without Python's lock.
_PASSES = {
    "torch/autograd/graph.py": {"_engine_run_backward"},
    "torch/autograd/__init__.py": {"backward", "grad"},
}
_QUIET = {**_LOOPS, **_PASSES}
#: Functions that drop gradients.
_DROPS = {
    "torch/optim/optimizer.py": {"zero_grad", "wrapper", "profile_hook_step"},
    "torch/nn/modules/module.py": {"zero_grad"},
}
_WRITES = {**_PASSES, **_DROPS}
_PAUSE_SECONDS = 0.0005
_DEPTH = 1000


def at_quiet_moment(action: Callable[[], Any], seconds: float) -> bool:
    """Calls `action` while no thread loops over hooks or runs a backward pass.

    False where there was no such moment, and it was not called.
    """
    end = time.monotonic() + seconds
    while True:
        time.sleep(_PAUSE_SECONDS)
        if _is_still(_QUIET):
            action()
            return True
        if time.monotonic() > end:
            return False


def nobody_loops() -> bool:
    """Whether no thread, this one included, is in a function that loops over hooks: they can be changed now."""
    return _is_still(_LOOPS)


def _is_still(functions: dict[str, set[str]]) -> bool:
    """Whether none of the functions is on any thread's stack, nor can have come there since.

    Who has just been given Python's lock keeps it for the switch interval; where the processor was taken away in the
    middle, another thread may have had it.
    """
    begun = time.monotonic()
    return not _anywhere(functions) and time.monotonic() - begun < sys.getswitchinterval() / 2


def others_in_backward() -> bool:
    """Whether another thread runs a backward pass."""
    return _anywhere(_PASSES, _thread.get_ident())


def others_write_gradients() -> bool:
    """Whether another thread runs a backward pass or an optimizer's step, or a function of torch's that drops some."""
    return _anywhere(_WRITES, _thread.get_ident())


def are_only_threads(*others: Optional[int]) -> bool:
    """Whether nobody but this very thread and `others` runs Python: nobody else can have gradients."""
    if not getattr(sys, "_is_gil_enabled", _always)():
        return False
    return set(sys._current_frames()) <= {_thread.get_ident(), *others}


def _anywhere(functions: dict[str, set[str]], but: Optional[int] = None) -> bool:
    """Whether one of the functions is on the stack of any thread `but` one."""
    if not getattr(sys, "_is_gil_enabled", _always)():
        return False  # frames of other threads may not be looked at
    frames = sys._current_frames()
    try:
        return any(_on_stack(frame, functions) for ident, frame in frames.items() if ident != but)
    finally:
        # As long as a frame is held, the locals of its function live on after it has returned.
        frames.clear()


def _on_stack(frame: Any, functions: dict[str, set[str]]) -> bool:
    for _ in range(_DEPTH):
        if frame is None:
            return False
        code = frame.f_code
        for file, names in functions.items():
            if code.co_name in names and code.co_filename.endswith(file):
                return True
        frame = frame.f_back
    return True


def _always() -> bool:
    return True
