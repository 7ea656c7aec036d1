"""Makes `screenshots/` from real sessions: `python -m tests.pictures [FOLDER]`.

A training runs on a virtual GPU with the agent in it; the app attaches to it at each size and theme, as a user's
would. What is on the pictures was streamed by that training.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from memtui.analysis.analyst import Analyst
from memtui.snapshots.model import snapshot_from
from memtui.snapshots.queries import Opened
from memtui.sources.agent_probe import find_agent
from memtui.sources.history_client import ask_history
from memtui.sources.monitor import Monitor
from memtui.sources.virtual_driver import use_driver_of
from memtui.tui.picture import render_snapshot, save
from memtui.tui.screens.snapshot import Start
from memtui.virtual_gpu import environment, profile_of
from tests.support import programs

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = (ROOT / "memtui" / "examples", programs.PROGRAMS)
#: name, example or test's program with its arguments, memory, seconds to run before, pictures: (suffix, columns, rows,
#: theme, keys)
SESSIONS = (
    (
        "gpt",
        ("gpt.py", "--pace", "1.7", "--seconds", "600"),
        "24GiB",
        34.0,
        (
            ("80x24-dark", 80, 24, "dark", ()),
            ("80x24-light", 80, 24, "light", ()),
            ("120x40-dark", 120, 40, "dark", ()),
            ("120x40-light", 120, 40, "light", ()),
            ("200x50-dark", 200, 50, "dark", ()),
            ("200x50-light", 200, 50, "light", ()),
            ("phases-120x40", 120, 40, "dark", ("plus", "plus", "plus")),
            ("step-120x40", 120, 40, "dark", ("4",)),
            ("step-200x50", 200, 50, "light", ("4", "b", "b", "b", "b")),
            ("tensors-120x40", 120, 40, "dark", ("5",)),
            ("events-120x40", 120, 40, "dark", ("2",)),
            ("what-if-120x40", 120, 40, "dark", ("w", "down", "down")),
            ("help", 120, 40, "dark", ("question_mark",)),
            ("glossary", 120, 40, "dark", ("g",)),
        ),
    ),
    (
        "tight",
        ("gpt.py", "--pace", "0.9", "--seconds", "600", "--batch", "44"),
        "16GiB",
        20.0,
        (("120x40-dark", 120, 40, "dark", ()),),
    ),
    (  # the first backward is over, and the optimizer has not stepped yet
        "short",
        ("gpt.py", "--pace", "60", "--seconds", "600", "--batch", "2"),
        "1792MiB",
        46.0,
        (("120x40-dark", 120, 40, "dark", ()),),
    ),
    (  # batches of many lengths
        "segments",
        ("ragged.py", "0.5", "600"),
        "16GiB",
        40.0,
        (
            ("120x40", 120, 40, "dark", ("6", "f", *"1.5GiB", "enter")),
            ("80x24", 80, 24, "dark", ("6", "f", *"1.5GiB", "enter")),
        ),
    ),
    (
        "out-of-memory",
        ("compacting.py", "--pace", "0.6"),
        "16GiB",
        30.0,
        (
            ("120x40", 120, 40, "dark", ("o",)),
            ("80x24", 80, 24, "dark", ("o",)),
        ),
    ),
)
#: Of what is recorded of one more training: suffix, columns, rows, theme, keys.
SNAPSHOTS = (
    ("80x24", 80, 24, "dark", ()),
    ("120x40", 120, 40, "dark", ("down", "enter")),
    ("flame-120x40", 120, 40, "dark", ("4", *("down",) * 3)),
    ("segments-200x50", 200, 50, "light", ("5",)),
)


def main() -> None:
    """Makes each session's pictures in a process of its own: the driver's library is loaded once in a process."""
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    if len(sys.argv) > 2:
        index = int(sys.argv[2])
        take(folder, index) if index < len(SESSIONS) else take_snapshots(folder)
        return
    folder.mkdir(exist_ok=True)
    for index in range(len(SESSIONS) + 1):
        subprocess.run([sys.executable, "-m", "tests.pictures", str(folder), str(index)], check=True)
    subprocess.run([sys.executable, "-m", "tests.pictures_ranks", str(folder)], check=True)


def take(folder: pathlib.Path, index: int) -> None:
    """Runs one session and writes its pictures."""
    name, arguments, memory, seconds, pictures = SESSIONS[index]
    with tempfile.TemporaryDirectory(prefix="mt") as runtime:
        os.environ["MEMTUI_RUNTIME_DIR"] = runtime
        base = environment(profile_of(memory=memory, context="300MiB"), base=programs.plain_environment())
        env = programs.with_agent(base, pathlib.Path(runtime))
        env["PYTHONPATH"] += f":{ROOT}"  # the test programs train memtui's example models
        use_driver_of(env)
        script = next(str(place / arguments[0]) for place in PROGRAMS if (place / arguments[0]).exists())
        with programs.started(script, *arguments[1:], environment=env, stdout=subprocess.DEVNULL) as process:
            time.sleep(seconds)
            for suffix, columns, rows, theme, keys in pictures:
                path = folder / f"{name}-{suffix}.svg"
                # Tensors and segments are told when a step may be looked at for them.
                after = 12.0 if {"5", "6"} & set(keys) else 0.0
                monitor = Monitor(process.pid, analyst=Analyst())
                save(monitor, str(path), columns, rows, theme=theme, keys=keys, seconds=2.5, after=after)
                print(path)


def take_snapshots(folder: pathlib.Path) -> None:
    """Records two steps of a training, and writes pictures of what is in them."""
    with tempfile.TemporaryDirectory(prefix="mt") as runtime:
        os.environ["MEMTUI_RUNTIME_DIR"] = runtime
        base = environment(profile_of(memory="24GiB", context="300MiB"), base=programs.plain_environment())
        env = programs.with_agent(base, pathlib.Path(runtime))
        script = str(PROGRAMS[0] / "gpt.py")
        with programs.started(script, "--pace", "0.5", environment=env, stdout=subprocess.DEVNULL) as process:
            time.sleep(10.0)
            agent = find_agent(process.pid)
            assert agent is not None
            snapshot = snapshot_from(ask_history(agent, 2).snapshot, "gpt.pickle")

        def start() -> Start:
            opened = Opened(snapshot, snapshot.device(None))
            return Start(opened, opened.course.peak)

        for suffix, columns, rows, theme, keys in SNAPSHOTS:
            path = folder / f"snapshot-{suffix}.svg"
            svg = asyncio.run(render_snapshot(start, "gpt.pickle", columns, rows, theme=theme, keys=keys))
            path.write_text(svg, encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
