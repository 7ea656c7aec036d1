"""Leaks that are found, and trainings that leak nothing and are left alone.

Trainings of many kinds are recorded through the agent, on the virtual GPU, by the real allocator. They are stretched to
runs of thousands of steps, of which as many are read as the agent would read.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import pathlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Optional

from memtui.analysis.leak import find_leak
from memtui.analysis.policy import DEFAULT
from memtui.session.floors import Floors
from memtui.session.session import Session
from memtui.sources.log_reader import apply_line

from . import stretched, surroundings
from .report import Line, at_most
from .stretched import Held

RUNS = PLANTED = 1_000
_WITHIN_STEPS = 200
_PLANTED_STEPS = 1_500
_FOUND_SHARE = 0.99
_LOG_SECONDS = 300
_DEVICE = "cuda:0"
#: Processor time for a floor: taken in, and judged.
_FLOOR_MICROSECONDS = 100


@dataclass(frozen=True)
class _Found:
    """What came of one run."""

    kind: str
    base: str = ""  # what a leak was planted on
    leaks: int = 0  # floors at which one was named
    warnings: int = 0  # … and full within the policy's horizon
    after_steps: Optional[int] = None  # of a planted one
    off: float = 0.0  # by what share of its true rate it was wrong when it was named first
    floors: int = 0
    seconds: float = 0.0


def bench() -> Iterator[Line]:
    """False alarms, planted leaks that were found, and the time of it."""
    recorded = record()
    quiet = {kind: held for kind, held in recorded.items() if not kind.startswith("leak")}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        left = pool.map(_quiet, _tasks(sorted(quiet), recorded, RUNS), chunksize=10)
        found = pool.map(_planted, _tasks(sorted(set(recorded) - set(quiet)), recorded, PLANTED), chunksize=10)
    yield from _quiet_lines(left)
    yield from _planted_lines(found)
    floors, seconds = (sum(getattr(each, name) for each in left + found) for name in ("floors", "seconds"))
    yield at_most("processor time a floor", 1e6 * seconds / floors, _FLOOR_MICROSECONDS, "µs", 1, f" ({floors:,})")


def _quiet_lines(left: list[_Found]) -> Iterator[Line]:
    alarms = [each for each in left if each.leaks]
    kinds = sorted({each.kind for each in alarms})
    told = ", ".join(f"{kind} {sum(each.kind == kind for each in alarms)}" for kind in kinds)
    about = f"false alarms in {len(left):,} runs of {stretched.STEPS:,} steps"
    yield Line(about, f"{len(alarms)}{f' ({told})' if told else ''}", "0", not alarms)
    yield Line("of these in the verdict", str(sum(each.warnings > 0 for each in alarms)))


def _planted_lines(found: list[_Found]) -> Iterator[Line]:
    plain = [each for each in found if each.base not in stretched.GIVE_BACK]
    share = _in_time(plain) / len(plain)
    named = [each for each in plain if each.after_steps is not None]
    after = statistics.median(each.after_steps or 0 for each in named)
    note = f"{100 * share:.1f} % of {len(plain):,}; median after {after:.0f} steps"
    bar = f"≥ {100 * _FOUND_SHARE:.0f} %"
    yield Line(f"planted, ≥ 0.1 % a step, in {_WITHIN_STEPS} steps", note, bar, share >= _FOUND_SHARE)
    off = sorted(each.off for each in named)
    late = f"median {100 * statistics.median(off):.0f} %, nine of ten within {100 * off[9 * len(off) // 10]:.0f} %"
    yield Line("their rate as first named, off by", late)
    for name in ("kind", "base"):
        for value in sorted({getattr(each, name) for each in found}):
            runs = [each for each in (plain if name == "kind" else found) if getattr(each, name) == value]
            never = sum(each.after_steps is None for each in runs)
            about = f"  {value}" if name == "kind" else f"  on top of: {value}"
            yield Line(about, f"{_in_time(runs)} of {len(runs)}; {never} not in the {_PLANTED_STEPS:,} steps")


def _in_time(runs: list[_Found]) -> int:
    return sum(each.after_steps is not None and each.after_steps <= _WITHIN_STEPS for each in runs)


def _tasks(kinds: list[str], recorded: dict[str, list[Held]], count: int) -> list[Any]:
    return [(kinds[number % len(kinds)], recorded, number) for number in range(count)]


def _quiet(task: tuple[str, dict[str, list[Held]], int]) -> _Found:
    """One run that leaks nothing, from any step on."""
    kind, recorded, seed = task
    chance = random.Random(seed)
    run = stretched.quiet_run(kind, recorded[kind], stretched.STEPS, chance)
    first = chance.choice((0, chance.randrange(3_000)))
    return _watch(_Found(kind), run, first, chance)


def _planted(task: tuple[str, dict[str, list[Held]], int]) -> _Found:
    """One run of any kind with a leak from some step on."""
    kind, recorded, seed = task
    chance = random.Random(-1 - seed)
    base = chance.choice([each for each in sorted(recorded) if not each.startswith("leak")])
    run = stretched.quiet_run(base, recorded[base], _PLANTED_STEPS, chance)
    planted = stretched.plant(run, stretched.increments(recorded[kind]), chance.randrange(50, 1_000), chance)
    return _watch(_Found(kind, base), planted.run, chance.randrange(planted.first_step), chance, planted)


def _watch(
    about: _Found, run: list[Held], first: int, chance: random.Random, planted: Optional[stretched.Planted] = None
) -> _Found:
    """Judges at every floor that is read; the device holds half as much again as the run, or up to 30 times that."""
    room = max(size for size, _ in run) * math.exp(chance.uniform(math.log(1.5), math.log(30)))
    floors, leaks, warnings, spent, first_leak = Floors(), 0, 0, 0.0, None
    for floor in stretched.read(run, stretched.step_seconds(chance), first, chance):
        begun = time.thread_time()
        floors.add(floor)
        leak = find_leak(floors, round(room) - floor.allocated_bytes, DEFAULT)
        spent += time.thread_time() - begun
        if leak is not None:
            leaks, warnings = leaks + 1, warnings + leak.fills_soon(DEFAULT)
            if planted is not None and floor.step > planted.first_step:
                first_leak = leak
                break
    watched = replace(about, leaks=leaks, warnings=warnings, floors=floors.count, seconds=spent)
    if first_leak is None or planted is None:
        return watched
    off = abs(first_leak.bytes_per_step / planted.bytes_per_step - 1)
    return replace(watched, after_steps=first_leak.last_step - planted.first_step, off=off)


def record() -> dict[str, list[Held]]:
    """What every kind of training held at each step's beginning, by the agent's word; two are recorded at a time."""
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        program = [sys.executable, str(surroundings.PROGRAMS / "leaks.py")]
        kinds = subprocess.run(program, env=environment, stdout=-1, check=True, text=True).stdout.splitlines()

        def one(number: int) -> list[Held]:
            log = runtime / f"{number}.log"
            command = [sys.executable, "-m", "memtui", "run", "--headless", "--log", str(log), "--", *program]
            subprocess.run(
                [*command, kinds[number]], env=environment, stdout=-3, stderr=-3, check=True, timeout=_LOG_SECONDS
            )
            return held_in(log)

        with ThreadPoolExecutor(2) as threads:
            return dict(zip(kinds, threads.map(one, range(len(kinds)))))


def held_in(log: pathlib.Path) -> list[Held]:
    """Bytes and blocks at each step's beginning in a log in which every step was read."""
    session, held = Session(), []
    with log.open("rb") as file:
        for line in file:
            apply_line(session, json.loads(line))
            floors = session.floors(_DEVICE)
            newest = None if floors is None else floors.newest
            if newest is not None and newest.num_blocks is not None and newest.step >= len(held):
                # A step whose frame was lost leaves what the one before has left.
                held += [held[-1] if held else (newest.allocated_bytes, newest.num_blocks)] * (newest.step - len(held))
                held.append((newest.allocated_bytes, newest.num_blocks))
    return held
