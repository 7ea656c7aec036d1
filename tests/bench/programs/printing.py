"""Prints a megabyte a second, by turns to its standard output and to a pipe that is drained at once.

    printing.py FILE

Every step's time is a line of FILE: monotonic nanoseconds at its end, 1 for standard output, nanoseconds it took.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

STEP_SECONDS, BLOCK_STEPS = 0.02, 25
_LINE = b"step 12345 | loss 0.123456 | " + b"." * 69 + b"\n"
#: Lines a step.
_LINES = int(1e6 * STEP_SECONDS / len(_LINE))


def work() -> float:
    """Something to do that takes about the same time each time."""
    total = 0.0
    for number in range(60_000):
        total += number * 0.5
    return total


def main() -> None:
    """Prints until it is killed."""
    chance = random.Random(1)
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as drain,
        open(sys.argv[1], "w", buffering=1) as log,
    ):
        assert drain.stdin is not None
        places = {1: 1, 0: drain.stdin.fileno()}
        while True:
            order = [0, 1]
            chance.shuffle(order)
            for place in order:
                for _ in range(BLOCK_STEPS):
                    begun = time.monotonic_ns()
                    work()
                    for _ in range(_LINES):
                        view = memoryview(_LINE)
                        while view:
                            view = view[os.write(places[place], view) :]
                    ended = time.monotonic_ns()
                    log.write(f"{ended} {place} {ended - begun}\n")
                    time.sleep(max(0.0, STEP_SECONDS - (ended - begun) / 1e9))


if __name__ == "__main__":
    main()
