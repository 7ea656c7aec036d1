"""The part of memtui that lives inside the training process: it observes and changes nothing.

Standard library and the torch that is already imported. Nothing is imported here, so that a process which never
trains pays nothing; also loadable as `_memtui.agent` from a path, where memtui is not installed.
"""

from __future__ import annotations

VERSION = "0.1.0"


#: "1" in a program's environment asks for exact peaks of steps.
EXACT_PEAKS = "MEMTUI_EXACT_PEAKS"


#: In a program's environment, how many of its steps are tried out, "0" where that is not known yet: the first are all
#: looked at, whatever that takes; after the last it waits to be ended; and before its own end for its viewer.
REHEARSAL = "MEMTUI_REHEARSAL"
#: Of such a program, how many bytes of parameters on the host keep their values.
REHEARSAL_HOST = "MEMTUI_REHEARSAL_HOST"


def environment(
    base: dict[str, str], *, exact_peaks: bool = False, rehearsal: int | None = None, host_bytes: int | None = None
) -> dict[str, str]:
    """`base` with what makes every Python started under it load the agent once it imports torch."""
    import os

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")
    rest = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != folder]
    asked = {EXACT_PEAKS: "1"} if exact_peaks or rehearsal is not None else {}
    if rehearsal is not None:
        asked[REHEARSAL] = str(rehearsal)
    if host_bytes is not None:
        asked[REHEARSAL_HOST] = str(host_bytes)
    return {**base, **asked, "PYTHONPATH": os.pathsep.join([folder, *rest])}
