"""Whose error it is that arises on the program's thread while the agent runs there."""

from __future__ import annotations

import os

#: What torch's functions raise where they are not as they are known.
TROUBLE = (RuntimeError, TypeError, ValueError, AttributeError, KeyError)
_HERE = os.path.dirname(os.path.abspath(__file__))


def is_own(error: BaseException) -> bool:
    """Whether an error arose in the agent, and not in a signal handler that ran while the agent did."""
    trace, last = error.__traceback__, None
    while trace is not None:
        last, trace = trace, trace.tb_next
    if last is None:
        return True
    file = last.tb_frame.f_code.co_filename
    # Errors of torch's own functions that the agent called are the agent's fault.
    return file.startswith(_HERE) or f"{os.sep}torch{os.sep}" in file
