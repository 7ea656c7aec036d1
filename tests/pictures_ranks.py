"""The pictures of several ranks, as `tests.pictures` makes the others: `python -m tests.pictures_ranks FOLDER`."""

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
from tests.bench import ranks as recorded
from tests.bench import surroundings
from tests.support import programs

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


def main(folder: pathlib.Path) -> None:
    """Makes each session's pictures in a process of its own: the driver's library is loaded once in a process."""
    for index in range(len(RANKS)):
        subprocess.run([sys.executable, "-m", "tests.pictures_ranks", str(folder), str(index)], check=True)


def take(
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
            launcher, folder_of = str(pathlib.Path(sys.executable).with_name("torchrun")), str(programs.PROGRAMS)
            command = [launcher, "--standalone", "--nproc-per-node", str(count), "ranked.py"]
            command += ["--seconds", "600", "--batch", "16384", *arguments]
        else:
            recording = pathlib.Path(runtime, "recording.json")
            with recorded.training(pathlib.Path(runtime)) as pid:
                recording.write_text(json.dumps(recorded.record(pathlib.Path(runtime), pid)))
            streams = str(surroundings.PROGRAMS / "streams.py")
            command, folder_of = [streams, recording.name, ".", str(count), *arguments], runtime
        quiet = subprocess.DEVNULL
        with programs.started(
            *command, environment=env, direct=False, cwd=folder_of, stdout=quiet, stderr=quiet
        ) as process:
            time.sleep(seconds)
            watched = 7.0 if count <= 8 else 18.0
            for suffix, columns, rows, theme, keys in pictures:
                path = folder / f"ranks-{count}-{suffix}.svg"
                feed = Ranks(Monitor(process.pid), search=True, analyst=lambda _rank: Analyst())
                save(feed, str(path), columns, rows, theme=theme, keys=keys, seconds=watched, after=1.0)
                print(path)
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        take(pathlib.Path(sys.argv[1]), *RANKS[int(sys.argv[2])])
    else:
        main(pathlib.Path(sys.argv[1]))
