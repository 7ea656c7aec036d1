"""Why some programs fail on virtual GPUs and not on others, told from their errors."""

from __future__ import annotations

import re

_LONGEST = 160
_UNKNOWN_CALL = re.compile(r"undefined symbol: (_*(?:cu|nv)\w+)")
#: What is found in an error, and what it means.
_MEANINGS = (
    (
        re.compile(r"Error building extension|CUDA_HOME environment variable is not set|nvcc"),
        "an extension is compiled for CUDA, which takes the CUDA toolkit on this machine too, or to be built before",
    ),
    (
        re.compile(r"not supported in the installed CUDA driver|CUDA driver version is insufficient"),
        "an extension has a CUDA runtime of its own, which needs a driver: build it with -cudart shared, as torch does",
    ),
)


def told_error(error: str) -> str:
    """The error in one line that is not too long, with what it means where that is known."""
    call = _UNKNOWN_CALL.search(error)
    meaning = f"it calls {call[1]}, which virtual GPUs do not have" if call else ""
    meaning = meaning or next((text for pattern, text in _MEANINGS if pattern.search(error)), "")
    if meaning.startswith("an extension is compiled"):
        error = error.partition(": [1/")[0]  # the compiler's command line follows
    shown = error if len(error) <= _LONGEST else error[: _LONGEST - 1] + "…"
    return f"{shown} ({meaning})" if meaning else shown
