"""Whose error it is that arises on the program's thread while the agent runs there."""

from __future__ import annotations

import os

#: What torch's functions raise where they are not as they are known.
TROUBLE = (RuntimeError, TypeError, ValueError, AttributeError, KeyError)
_HERE = os.path.dirname(os.path.abspath(__file__))
_PYTHON = os.path.dirname(os.path.abspath(os.__file__))
#: Folders within Python's own in which other people's packages are.
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TORCH = f"{os.sep}torch{os.sep}"


def is_own(error: BaseException) -> bool:
    """Whether an error arose in the agent, and not in a signal handler that ran while the agent did.

    What torch's and Python's own functions raise that the agent has called is the agent's fault.
    """
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        ours = file.startswith((_HERE, "<frozen")) or _TORCH in file
        if not ours and (not file.startswith(_PYTHON) or any(folder in file for folder in _PACKAGES)):
            return False
        trace = trace.tb_next
    return True
