"""Runs a command so that nothing is kept, as `memtui plan` does, and tells in one line of JSON what came of it.

Its argument is JSON: the command, and what else is to be so. By path, in a Python that has no memtui installed.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from memtui.planning.capability import probe
from memtui.planning.throwaway import throwaway


def main() -> None:
    wish: dict[str, Any] = json.loads(sys.argv[1])
    cwd = os.environ["PWD"]
    if wish.get("forbidden"):
        with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:
            file.write("0")
    capability = probe(cwd, base=pathlib.Path(wish["base"]) if "base" in wish else None)
    answer: dict[str, Any] = {"capability": {**asdict(capability), "base": str(capability.base)}}
    writable = [pathlib.Path(path) for path in wish.get("writable", ())]
    with throwaway(
        wish["command"], cwd, os.environ, capability, writable=writable, keep=wish.get("keep", False)
    ) as run:
        process = subprocess.Popen(
            run.command,
            cwd=run.cwd,
            env=run.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if "signal" in wish:
            assert process.stdout is not None
            process.stdout.readline()  # it is there
            threading.Timer(0.1, os.killpg, (process.pid, signal.Signals[wish["signal"]])).start()
        answer["stdout"], answer["stderr"] = process.communicate(timeout=100)
        answer.update(pid=process.pid, status=process.returncode, warnings=run.warnings)
    answer["discarded"] = None if run.discarded is None else asdict(run.discarded)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
