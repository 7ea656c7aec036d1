"""Questions that programs ask their terminal, and the answers of one that nobody looks at."""

from __future__ import annotations

import re

#: Status, cursor position, primary and secondary attributes.
_QUERY = re.compile(rb"\x1b\[(?:5n|6n|0?c|>0?c)")

_ANSWERS = {
    b"5n": b"\x1b[0n",
    # Somebody has to answer; where the cursor is, only a screen would know.
    b"6n": b"\x1b[1;1R",
    b"c": b"\x1b[?6c",
    b"0c": b"\x1b[?6c",
    b">c": b"\x1b[>0;0;0c",
    b">0c": b"\x1b[>0;0;0c",
}


def answers(output: bytes) -> bytes:
    """What a terminal would send back for the queries in `output`; a query cut in two pieces is missed."""
    if b"\x1b[" not in output:
        return b""
    return b"".join(_ANSWERS[match[0][2:]] for match in _QUERY.finditer(output))
