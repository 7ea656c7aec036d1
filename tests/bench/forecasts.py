"""What is foretold of a training's peaks, against what came 20 steps on; beside it what others foretell.

Each program is a session of `memtui run --headless --log`, read back from its log. Forecasts are made at three moments:
after the first forward and before the first optimizer step, by the first step's figures and the optimizer's trial, of
the peak allocated (nothing is foretold of the reserved then); and after one step that was recorded unasked, done again
by the simulated allocator, of both. Until a second pass tells whether gradients are dropped before it, the first two
say two figures, one for either case: the one that came true counts, and the row says "gradients stay" where it is the
higher one. A third of the programs are drawn by MEMTUI_BENCH_SEED, the day where it is unset. MEMTUI_BENCH_KINDS is a
regular expression that chooses among the names of all.

Rivals, all but the last two of the peak allocated alone. At the first two moments: twice what is allocated when the
first backward begins; a line by least squares through the last ten samples, on to the end of the 20 steps. Before any:
the closed form with activations where it knows the network, else weights, gradients and state alone; torch's MemTracker
over two steps. After the recorded step: the highest figure until it had ended ("naive"), and the same from an empty
allocator, the optimizer's state being still to come: as for a program that starts afresh.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Optional

from . import surroundings
from .forecast_rivals import closed_form, doubled, line_fitted, tracked
from .forecast_run import Peaks, Session, measure
from .report import Line, Skipped, at_most

_MIB = 1 << 20
#: DESIGN's bars: median and worst.
_RECORDED, _EARLY = (0.1, 5.0), (0.2, 6.0)
#: Its batches differ in length, which no single step can tell: it counts for no bar.
_UNTOLD = frozenset(("GPT, any length",))
#: Their forwards run inside the optimizer's step: there is no moment after the first and before that.
_INSIDE = frozenset(("MLP, L-BFGS",))
#: Kinds that are also run with other settings of the allocator.
_SETTINGS = {
    "expandable_segments:True": ("GPT, AdamW foreach", "four tasks, any order", "ResNet, AMP"),
    "max_split_size_mb:64": ("GPT, AdamW foreach", "LSTM, RMSprop"),
    "roundup_power2_divisions:4": ("GPT, checkpointed",),
}
FORWARD, OPTIMIZER, ALLOCATED, RESERVED = (
    "after the first forward: allocated",
    "before the first optimizer step: allocated",
    "after a recorded step: allocated",
    "after a recorded step: reserved",
)


def bench() -> Iterator[Line]:
    """Two lines a program, then the bars over all of them, then the rivals."""
    seed, left_out, kinds = _kinds()
    yield Line("seed", f"{seed}: MEMTUI_BENCH_SEED={seed} draws the same")
    if left_out:
        yield Line("left out", f"torchvision is not installed: {'; '.join(left_out)}")
    if not kinds:
        raise Skipped("MEMTUI_BENCH_KINDS chooses none")
    trackers = tracked(list(dict.fromkeys(kind for kind, _ in kinds)))
    own, others = Errors(), Errors()
    for kind, settings in kinds:
        name = f"{kind}, {settings}" if settings else kind
        try:
            found = measure(kind, settings)
        except subprocess.CalledProcessError as error:
            told = (error.stderr or b"").decode(errors="replace").strip().splitlines()
            yield Line(name, f"it failed: {(told or [str(error)])[-1][:200]}", "", False)
            continue
        said, rivals = forecasts(found), _rivals(found, trackers.get(kind, (None, ""))[0])
        yield _line(name, found, said)
        yield _rival_line(name, found, rivals, trackers.get(kind, (None, "not run"))[1])
        if kind not in _UNTOLD:
            own.add(name, said)
            others.add(name, rivals)
    yield from _bars(own)
    for what, errors in others.found.items():
        yield Line(f"rival: {what}", _spread(errors, others.missing[what]))


class Errors:
    """By forecast, its errors in percent without their sign, and the names of the programs that had none."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}
        self.missing: dict[str, list[str]] = {}

    def add(self, name: str, errors: dict[str, Optional[float]]) -> None:
        """Those of one program."""
        for what, error in errors.items():
            self.found.setdefault(what, [])
            self.missing.setdefault(what, [])
            if error is None:
                self.missing[what].append(name)
            else:
                self.found[what].append(abs(error))


def _kinds() -> tuple[str, list[str], list[tuple[str, str]]]:
    """(the seed, names that need torchvision where it is absent, chosen kinds with their settings)."""
    words = "\n".join(
        (
            "from tests.bench.programs.forecasts.loops import kinds, lacking, seed",
            "print(seed())",
            "for kind in kinds(): print(int(lacking(kind)), kind)",
        )
    )
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        done = subprocess.run(
            [sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True
        )
    seed, *rows = done.stdout.splitlines()
    chosen = re.compile(os.environ.get("MEMTUI_BENCH_KINDS", ""))
    here = [row[2:] for row in rows if row[0] == "0"]
    every = [(kind, "") for kind in here] + [(kind, each) for each, some in _SETTINGS.items() for kind in some]
    left_out = [row[2:] for row in rows if row[0] == "1"]
    return seed, left_out, [pair for pair in every if chosen.search(", ".join(filter(None, pair)))]


def off(said: Optional[int], came: int) -> Optional[float]:
    """In percent, with its sign."""
    return None if said is None else 100 * (said - came) / came


def forecasts(found: Session) -> dict[str, Optional[float]]:
    """The viewer's own, by how far they are off."""
    predicted = None if found.recorded is None else found.recorded.predicted
    actual = found.actual.allocated
    return {
        FORWARD: off(found.after_forward and found.after_forward.nearer(actual), actual),
        OPTIMIZER: off(found.before_optimizer and found.before_optimizer.nearer(actual), actual),
        ALLOCATED: off(predicted and predicted.allocated, found.actual.allocated),
        RESERVED: off(predicted and predicted.reserved, found.actual.reserved),
    }


def _rivals(found: Session, tracker: Optional[int]) -> dict[str, Optional[float]]:
    size, whole = closed_form(found.facts)
    recorded = found.recorded
    said = {
        "twice what it is now": doubled(found.samples),
        "line, after the first forward": line_fitted(found.samples, "backward_start"),
        "line, before the first optimizer step": line_fitted(found.samples, "optimizer_start"),
        "closed form": size if whole else None,
        "closed form without activations": None if whole else size,
        "MemTracker": tracker,
    }
    errors = {what: off(size, found.actual.allocated) for what, size in said.items()}
    for what, peaks in (("naive", recorded and recorded.naive), ("from nothing", recorded and recorded.afresh)):
        errors[f"{what}: allocated"] = off(peaks and peaks.allocated, found.actual.allocated)
        errors[f"{what}: reserved"] = off(peaks and peaks.reserved, found.actual.reserved)
    return errors


def _line(name: str, found: Session, said: dict[str, Optional[float]]) -> Line:
    """The peaks that came, in MiB, and the errors."""
    forward, optimizer, *recorded = map(_shown, said.values())
    parts = [f"{_mib(found.actual)} MiB: {forward}, {optimizer}, {'/'.join(recorded)} %"]
    if found.recorded is not None:
        replay = found.recorded.replay
        parts.append("every address" if replay.exact else f"{replay.same_place} of {replay.compared} addresses")
        parts.append("steady" if replay.steady else "rising")
    stay = [found.after_forward, found.before_optimizer]
    if any(early is not None and early.nearer(found.actual.allocated) != early.bytes_held for early in stay):
        parts.append("gradients stay")
    if found.untried:
        parts.append("its optimizer was not tried in time")
    return Line(name, "; ".join(parts))


def _rival_line(name: str, found: Session, errors: dict[str, Optional[float]], refused: str) -> Line:
    doubled, forward, optimizer, whole, without, tracker, *both = map(_shown, errors.values())
    form = f"closed form {whole}" if without == "–" else f"closed form {without} without activations"
    torchs = f"MemTracker refused ({refused[:60]})" if refused else f"MemTracker {tracker}"
    first = _shown(off(found.peaks[0].allocated, found.actual.allocated))
    return Line(
        f"{name}: others",
        f"twice {doubled}, line {forward}, {optimizer}, {form}, {torchs}, naive {'/'.join(both[:2])}, from nothing "
        f"{'/'.join(both[2:])}, first step {first} %",
    )


def _bars(own: Errors) -> Iterator[Line]:
    for what in (FORWARD, OPTIMIZER, ALLOCATED, RESERVED):
        yield from _bar(what, own.found.get(what, []), _EARLY if what in (FORWARD, OPTIMIZER) else _RECORDED)
        without = own.missing.get(what, [])
        if what in (FORWARD, OPTIMIZER):
            without = [name for name in without if name not in _INSIDE]
        if without:
            yield Line(f"{what}, not told", "; ".join(without), "none", False)
    both = [*own.found.get(ALLOCATED, []), *own.found.get(RESERVED, [])]
    yield from _bar("after a recorded step: both", both, _RECORDED)


def _bar(what: str, errors: Iterable[float], bars: tuple[float, float]) -> Iterator[Line]:
    found = list(errors)
    if found:
        note = f" of {len(found)}"
        yield at_most(f"{what}: median error", statistics.median(found), bars[0], "%", note=note)
        yield at_most(f"{what}: worst error", max(found), bars[1], "%", note=note)


def _spread(errors: list[float], without: list[str]) -> str:
    if not errors:
        return "never"
    told = f"{statistics.median(errors):.2f} and {max(errors):.1f} %, median and worst of {len(errors)}"
    return f"{told}; {len(without)} without" if without else told


def _shown(error: Optional[float]) -> str:
    return "–" if error is None else f"{error:+.2f}"


def _mib(peaks: Peaks) -> str:
    return "/".join(f"{size / _MIB:,.1f}" for size in peaks)
