"""Would so many bytes fit: the answer against torch's own allocator, in 1,000 random states of it with 5 requests each.

Torch's allocator is brought into each state on a virtual GPU, some hundred in a process. Of the requests of a state
three are drawn, one is the largest that is said to succeed, and one is 512 bytes more. Left open is what hangs on where
the range of addresses of an expandable segment begins and ends, which torch does not tell.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.support import allocations
from tests.support.fits import Answered, answered

from . import surroundings
from .report import Line

#: How many states with which settings; their numbers go on from one to the next.
_SETTINGS = {
    "": 300,
    "expandable_segments:True": 300,
    "max_split_size_mb:64": 100,
    "max_split_size_mb:200,max_non_split_rounding_mb:100,large_segment_size_mb:64": 100,
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]": 100,
    "expandable_segments:True,roundup_power2_divisions:8": 100,
}
_AT_ONCE, _PROCESSES = 100, 2
#: So many that differ are told of one by one.
_TOLD = 20

Job = tuple[str, int, int]


def bench() -> Iterator[Line]:
    """By settings, by what the states have and all of them; then each that differs."""
    with surroundings.runtime_folder() as folder:
        surroundings.with_virtual_gpu(folder, agent=False)  # is skipped here rather than in a process
    with ProcessPoolExecutor(_PROCESSES) as processes:
        found = [(settings, each) for settings, every in processes.map(_done, _jobs()) for each in every]
    for settings in _SETTINGS:
        yield _line(settings or "default settings", [each for own, each in found if own == settings])
    every = [each for _, each in found]
    for kind in allocations.KINDS:
        yield _line(kind, [each for each in every if each.kind == kind])
    yield _line("with a cap", [each for each in every if each.capped])
    yield _line("with another process", [each for each in every if each.shared])
    yield _line("with private pools", [each for each in every if each.private])
    yield _line("drawn requests", [each for each in every if each.drawn])
    wrong = [(settings, each) for settings, each in found if not each.succeeds]
    yield _line(f"all, states 0 to {every[-1].number}", every, met=not wrong)
    past = [(settings, each) for settings, each in found if not each.largest_holds]
    yield Line(
        "the largest succeeded, and nothing larger did", f"{_share(len(every) - len(past), every)}", "100 %", not past
    )
    elsewhere = [(settings, each) for settings, each in found if each.succeeds and not each.equal]
    yield Line("also from where", _share(len(every) - len(wrong) - len(elsewhere), every))
    for settings, each in [*wrong, *past, *elsewhere][:_TOLD]:
        told = each.told
        yield Line(
            f"differs: {each.kind}, number {each.number}",
            f"{settings or 'default'}: {told.asked_bytes:,} bytes, told {told.how}, was {each.real}",
        )


def _jobs() -> Iterator[Job]:
    first = 0
    for settings, count in _SETTINGS.items():
        for begun in range(first, first + count, _AT_ONCE):
            yield settings, begun, min(_AT_ONCE, first + count - begun)
        first += count


def _done(job: Job) -> tuple[str, list[Answered]]:
    """In a process of its own: torch does them in another one, then they are answered here."""
    settings, first, count = job
    with surroundings.runtime_folder() as folder:
        environment = surroundings.with_virtual_gpu(folder, agent=False) | {"PYTORCH_CUDA_ALLOC_CONF": settings}
        program = (sys.executable, "-m", "tests.bench.programs.fits", str(first), str(count), str(folder))
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            raise RuntimeError(f"torch ended with {done.returncode}, {settings}: {done.stderr[-1000:]}")
        return settings, list(answered(folder))


def _line(name: str, found: Sequence[Answered], *, met: bool | None = None) -> Line:
    wrong = sum(not each.succeeds for each in found)
    unsure = sum(each.unsure for each in found)
    hows = ", ".join(
        f"{how} {sum(each.real == how for each in found):,}" for how in ("cache", "driver", "returned", "no")
    )
    states = len({each.number for each in found})
    right = _share(len(found) - wrong - unsure, found)
    said = f"{right} right, {unsure:,} left open, {wrong:,} wrong; {states:,} states; {hows}"
    return Line(name, said, "0 wrong" if met is not None else "", met)


def _share(right: int, found: Sequence[Answered]) -> str:
    return f"{right:,} of {len(found):,} ({100 * right / max(1, len(found)):.2f} %)"
