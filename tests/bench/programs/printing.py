"""Prints a megabyte a second, by turns to its standard output, to another terminal and to a pipe.

    printing.py FILE

The other terminal and the pipe are drained at once. Every step is a line of FILE: the number of its turn, where it
printed to (0 pipe, 1 standard output, 2 the other terminal), monotonic nanoseconds at its end, nanoseconds it took.
"""

from __future__ import annotations

import os
import pty
import random
import subprocess
import sys
import time

STEP_SECONDS, TURN_STEPS = 0.02, 10
_LINE = b"step 12345 | loss 0.123456 | " + b"." * 69 + b"\n"
#: Lines a step.
_LINES = int(1e6 * STEP_SECONDS / len(_LINE))


def work(rounds: int) -> float:
    """Something to do that takes about the same time each time."""
    total = 0.0
    for number in range(rounds):
        total += number * 0.5
    return total


def rounds_for(seconds: float) -> int:
    """How many rounds of `work` last about so long."""
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        work(50_000)
        times.append(time.perf_counter() - begun)
    return int(50_000 * seconds / sorted(times)[5])


def show(descriptor: int) -> None:
    """Prints one step's lines, each with a write of its own."""
    for _ in range(_LINES):
        view = memoryview(_LINE)
        while view:
            view = view[os.write(descriptor, view) :]


def main() -> None:
    """Prints until it is killed."""
    chance, rounds = random.Random(1), rounds_for(STEP_SECONDS)
    pipe_out, pipe_in = os.pipe()
    terminal, program_side = pty.openpty()
    for end in (pipe_out, terminal):
        subprocess.Popen(["cat"], stdin=end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(end)
    descriptors = (pipe_in, 1, program_side)
    with open(sys.argv[1], "w", buffering=1) as log:
        turn = 0
        while True:
            turn += 1
            for place in chance.sample(range(3), 3):
                for _ in range(TURN_STEPS):
                    begun = time.monotonic_ns()
                    work(rounds)
                    show(descriptors[place])
                    ended = time.monotonic_ns()
                    log.write(f"{turn} {place} {ended} {ended - begun}\n")


if __name__ == "__main__":
    main()
