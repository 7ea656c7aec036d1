"""Keeps torch.compile's eyes off what the agent does on the program's thread, and its errors away from the program."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Optional

from .errors import is_own

#: In the place of dynamo's callback where there was nothing to set back.
NOT_TRACED = object()


class Untraced:
    """What the agent does on the program's thread: no compiler traces it, and no error of it reaches the program.

    An exception that a signal handler of the program raises while the agent runs is the program's and goes on its way.
    """

    def __init__(self, torch: Any, fail: Callable[[Exception], None], functions: Iterable[Any]) -> None:
        """`functions` run while dynamo may still look; `fail` is told of an error of the agent's own."""
        self._fail = fail
        self._frames: list[Any] = []
        evaluation = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
        #: Exchanges dynamo's callback for this thread.
        self.set_eval_frame: Callable[[Any], Any] = getattr(evaluation, "set_eval_frame", _no_eval_frame)
        skip = getattr(evaluation, "skip_code", None)
        if skip is not None:
            for function in (*functions, Untraced.__enter__, Untraced.__exit__):
                skip(function.__code__)

    def __enter__(self) -> None:
        # torch.compile looks at every Python frame that runs while its callback is set.
        self._frames.append(self.set_eval_frame(None) if "torch._dynamo" in sys.modules else NOT_TRACED)

    def __exit__(self, kind: Any, error: Optional[BaseException], _trace: Any) -> bool:
        callback = self._frames.pop()
        if callback is not NOT_TRACED:
            self.set_eval_frame(callback)
        if error is None or not isinstance(error, Exception) or not is_own(error):
            return False
        self._fail(error)
        return True


def _no_eval_frame(_callback: Any) -> Any:
    return NOT_TRACED


def tracing_test(torch: Any) -> Any:
    """What torch.compile takes for True while it traces: there is nothing to note, and noting would become part of
    the graph. The shorter of two where there are two.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", str(torch.__version__))[:2])
    if version >= (2, 4):
        return torch.compiler.is_dynamo_compiling
    return torch.compiler.is_compiling if version >= (2, 3) else torch._utils.is_compiling


def compiles() -> bool:
    """Whether torch.compile is used here: what it compiled is bound to the very dictionaries of the modules."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is None:
        return False
    backends = getattr(compiler, "cached_backends", None)  # None among them is that of what is never compiled
    return backends is None or any(backend is not None for backend in list(backends.values()))
