"""A busy training whose losses are the same in every run: `injected.py DEVICE FOLDER STEPS`; STEPS 0: until told.

Threads that train on their own, threads that wait in system calls, a storm of child processes, a signal every 2 ms.
Writes each step's loss and nanoseconds into FOLDER/steps, and ends once FOLDER/stop is there.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time

import torch

SIGNAL_SECONDS = 0.002
WRONG: list[str] = []


def main(device: str, folder: str, steps: int) -> None:
    """Trains."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    ticks = [0]

    def tick(_number: int, _frame: object) -> None:
        ticks[0] += 1

    signal.signal(signal.SIGALRM, tick)
    for target in (_train_beside, _train_beside, _run_children, _wait_in_poll, _wait_in_sleep, _wait_in_select):
        threading.Thread(target=target, daemon=True).start()
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    signal.setitimer(signal.ITIMER_REAL, SIGNAL_SECONDS, SIGNAL_SECONDS)
    done = 0
    with open(os.path.join(folder, "steps"), "wb", buffering=0) as file:
        while done < steps or (not steps and (done % 16 or not os.path.exists(os.path.join(folder, "stop")))):
            begun = time.perf_counter_ns()
            loss = model(torch.randn(16, 32).to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            # What a virtual GPU computes is nothing: there only that it goes on counts.
            value = float(loss.detach()) if device == "cpu" else 0.0
            file.write(struct.pack("<dq", value, time.perf_counter_ns() - begun))
            done += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"{done} steps, {ticks[0]} signals", *WRONG, sep="\n", flush=True)
    # The other threads are in the middle of a backward pass: an orderly end would be none.
    os._exit(3 if WRONG else 0)


def _train_beside() -> None:
    weight = torch.ones(64, 64, requires_grad=True)
    while True:
        (weight @ weight).sum().backward()
        weight.grad = None
        time.sleep(0.001)


def _run_children() -> None:
    while True:
        done = subprocess.run([sys.executable, "-S", "-E", "-c", "print(7)"], capture_output=True, check=False)
        if done.returncode or done.stdout != b"7\n" or done.stderr:
            WRONG.append(f"a child ended with {done.returncode}: {done.stdout!r} {done.stderr!r}")


def _wait_in_poll() -> None:
    """In the C library itself, where an interrupted call shows: nothing here may ever be interrupted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    libc = ctypes.CDLL(None, use_errno=True)
    while True:
        if libc.poll(None, 0, 7) != 0:
            WRONG.append(f"poll: error {ctypes.get_errno()}")


def _wait_in_sleep() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    libc = ctypes.CDLL(None, use_errno=True)
    span = (ctypes.c_long * 2)(0, 20_000_000)
    while True:
        begun = time.monotonic_ns()
        code = libc.nanosleep(span, None)
        if code or time.monotonic_ns() - begun < 20_000_000:
            WRONG.append(f"nanosleep: {code}, error {ctypes.get_errno()}")


def _wait_in_select() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    while True:
        if select.select([], [], [], 0.011) != ([], [], []):
            WRONG.append("select found something")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
