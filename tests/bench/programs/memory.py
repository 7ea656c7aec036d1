"""What a training process holds in memory, at two moments; prints JSON.

    memory.py SECONDS

Bytes after training for SECONDS, and again once the agent, if there is one, has all the history that it ever keeps.
"""

from __future__ import annotations

import ctypes
import gc
import json
import random
import re
import sys
import time
from typing import Any

import training

_VARIANTS = 997
_DAY_NS = 86_400_000_000_000
_PR_SET_THP_DISABLE = 41


def own_bytes() -> int:
    """Memory that is no file's: libraries count as this process's or as shared by who else runs them at the moment.

    Source: the kernel's smaps_rollup.
    """
    gc.collect()
    with open("/proc/self/smaps_rollup") as file:
        return sum(1024 * int(line.split()[1]) for line in file if line.startswith("Anonymous:"))


def fill(agent: Any) -> int:
    """Gives the history a frame for every tenth of a second of a day; how many it keeps."""
    history = agent._history
    frame = history._tiers[0][-1][2].decode("latin-1")
    chance = random.Random(1)
    # Frames of a viewer's size whose figures differ in every digit but the first.
    messages = [
        re.sub(r"(?<=\d)\d", lambda _: str(chance.randrange(10)), frame).encode("latin-1") for _ in range(_VARIANTS)
    ]
    begun = time.monotonic_ns()
    for place in range(_DAY_NS // 100_000_000):
        message = messages[place % _VARIANTS]
        history.append(begun + place * 100_000_000, place % 9973, message[:-1] + message[-1:])
    return len(history)


def main() -> None:
    """Trains, and measures."""
    # Huge pages come and go in their own time, two megabytes each.
    ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    _, step = training.make(12)
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        step()
        time.sleep(0.05)
    result: dict[str, Any] = {"after": own_bytes(), "kept": 0}
    sentry: Any = sys.modules.get("_memtui_agent_of_this_process")
    if sentry is not None:
        agent = sentry.agent
        agent._tick = lambda *_: None
        result["kept"] = fill(agent)
    result["full"] = own_bytes()
    result["modules"] = sorted({name.partition(".")[0] for name in sys.modules})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
