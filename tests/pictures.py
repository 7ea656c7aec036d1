"""Makes `screenshots/` from real sessions: `python -m tests.pictures [FOLDER]`.

A training runs on a virtual GPU with the agent in it; the app attaches to it at each size and theme, as a user's
would. What is on the pictures was streamed by that training.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from memtui.analysis.analyst import Analyst
from memtui.sources.monitor import Monitor
from memtui.sources.ranks import Ranks
from memtui.sources.virtual_driver import use_driver_of
from memtui.tui.picture import save
from memtui.virtual_gpu import environment, profile_of
from tests.support import programs

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "memtui" / "examples"
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
#: Ranks side by side: how many, what they do, seconds to run before, pictures. More than eight are recorded streams of
#: one training, the last of which falls silent.
RANKS = (
    (
        2,
        ("--kind", "fsdp", "--large", "1", "--pause", "0.35"),
        40.0,
        (("80x24", 80, 24, "dark", ()), ("120x40", 120, 40, "dark", ())),
    ),
    (
        8,
        ("--large", "5", "--stray", "3", "--pause", "0.6"),
        50.0,
        (
            ("80x24", 80, 24, "dark", ("down", "down")),
            ("120x40", 120, 40, "dark", ("s",)),
            ("200x50", 200, 50, "light", ()),
            ("compare-120x40", 120, 40, "dark", (*("down",) * 5, "c")),
            ("one-120x40", 120, 40, "dark", (*("down",) * 5, "enter")),
        ),
    ),
    (64, ("41",), 30.0, (("80x24", 80, 24, "dark", ()), ("200x50", 200, 50, "dark", ()))),
)


def main() -> None:
    """Makes each session's pictures in a process of its own: the driver's library is loaded once in a process."""
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    if len(sys.argv) > 2:
        take(folder, int(sys.argv[2]))
        return
    folder.mkdir(exist_ok=True)
    for index in range(len(SESSIONS) + len(RANKS)):
        subprocess.run([sys.executable, "-m", "tests.pictures", str(folder), str(index)], check=True)


def take(folder: pathlib.Path, index: int) -> None:
    """Runs one session and writes its pictures."""
    if index >= len(SESSIONS):
        take_ranks(folder, *RANKS[index - len(SESSIONS)])
        return
    name, arguments, memory, seconds, pictures = SESSIONS[index]
    with tempfile.TemporaryDirectory(prefix="mt") as runtime:
        os.environ["MEMTUI_RUNTIME_DIR"] = runtime
        base = environment(profile_of(memory=memory, context="300MiB"), base=programs.plain_environment())
        env = programs.with_agent(base, pathlib.Path(runtime))
        use_driver_of(env)
        paths = (place / arguments[0] for place in (EXAMPLES, programs.PROGRAMS))
        script = str(next(path for path in paths if path.is_file()))
        with programs.started(script, *arguments[1:], environment=env, stdout=subprocess.DEVNULL) as process:
            time.sleep(seconds)
            for suffix, columns, rows, theme, keys in pictures:
                path = folder / f"{name}-{suffix}.svg"
                after = 12.0 if "5" in keys else 0.0  # tensors are told when a step may be looked at for them
                monitor = Monitor(process.pid, analyst=Analyst())
                save(monitor, str(path), columns, rows, theme=theme, keys=keys, seconds=2.5, after=after)
                print(path)


def take_ranks(
    folder: pathlib.Path,
    count: int,
    arguments: tuple[str, ...],
    seconds: float,
    pictures: tuple[tuple[str, int, int, str, tuple[str, ...]], ...],
) -> None:
    """Runs so many ranks and writes their pictures."""
    with tempfile.TemporaryDirectory(prefix="mt") as runtime:
        os.environ["MEMTUI_RUNTIME_DIR"] = runtime
        profile = profile_of(memory="8GiB", context="300MiB", count=min(count, 8))
        env = programs.with_agent(environment(profile, base=programs.plain_environment()), pathlib.Path(runtime))
        use_driver_of(env)
        if count <= 8:
            ranked = str(programs.PROGRAMS / "ranked.py")
            command = ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "--master-port", "29641", ranked]
            command += ["--seconds", "600", "--batch", "16384", *arguments]
        else:
            from tests.bench import ranks, surroundings

            recording = pathlib.Path(runtime, "recording.json")
            with ranks.training(pathlib.Path(runtime)) as pid:
                recording.write_text(json.dumps(ranks.record(pathlib.Path(runtime), pid)))
            streams = str(surroundings.PROGRAMS / "streams.py")
            command = [streams, str(recording), runtime, str(count), *arguments]
        quiet = subprocess.DEVNULL
        with programs.started(*command, environment=env, direct=False, stdout=quiet, stderr=quiet) as process:
            time.sleep(seconds)
            watched = 7.0 if count <= 8 else 18.0
            for suffix, columns, rows, theme, keys in pictures:
                path = folder / f"ranks-{count}-{suffix}.svg"
                feed = Ranks(Monitor(process.pid), search=True, analyst=Analyst)
                save(
                    feed,
                    str(path),
                    columns,
                    rows,
                    theme=theme,
                    keys=keys,
                    seconds=7.0 if count <= 8 else 18.0,
                    after=1.0,
                )
                print(path)
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
