"""Published memory figures of real GPUs, against the same programs on the virtual GPU; and two rivals on the same rows.

Rows are `../shared/cases/ground_truth.jsonl` beside the checkout; every one that plain torch reproduces and that has a
program in `programs/published` is run with this interpreter's torch, or with the version that it was published with
where `MEMTUI_BENCH_TORCHES` names that. `MEMTUI_BENCH_ROWS=ViT,BERT` asks for some series alone. A figure's error is
told whole; bars hold for what of it is beyond the last digit published. Compiled runs come in the order of their
publication and share what the compiler keeps on disk. Rivals are the closed form and torch's own MemTracker, of this
interpreter's torch, under fake tensors: its figure is what it alone says, of the same program without a GPU.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any, Optional

from memtui.virtual_gpu import VirtualGpuError, environment, profile_of
from memtui.virtual_gpu.cards import card_for
from memtui.virtual_gpu.torch_install import torch_location_of

from . import surroundings
from .published_rows import UNAVAILABLE, Case, Run, Shape, case_of, claimed, rows, where
from .published_torches import python_with, wanted
from .report import Line, Skipped, at_most

_SECONDS = 590
_TRACKER_SECONDS = 240
#: Beyond the last published digit, a figure that is further off than this is listed with what is known of its cause.
_MISS = 0.001
_DRIVER_MISS = 0.02


@dataclasses.dataclass(frozen=True)
class Scored:
    """A case, the torch that ran it, and its prediction."""

    case: Case
    torch: str
    predicted_bytes: float
    #: Where it ran again: what the first run had.
    first_bytes: Optional[float] = None

    @property
    def error(self) -> float:
        """As a share of the published figure, with its sign."""
        return self.predicted_bytes / self.case.published_bytes - 1

    @property
    def beyond(self) -> float:
        """What of the error is beyond the last published digit, as a share."""
        off = abs(self.predicted_bytes - self.case.published_bytes) - self.case.open_bytes
        return max(0.0, off) / self.case.published_bytes

    @property
    def same_torch(self) -> bool:
        """Whether it was run with the version that it was published with."""
        return self.case.torch is not None and self.torch.partition("+")[0] == self.case.torch


def bench() -> Iterator[Line]:
    """Rows and their versions, figures by kind, misses, what is open, the split of constants, and the rivals."""
    found = rows()
    if found is None:
        raise Skipped(f"no {where().name} beside the checkout, in ../shared/cases")
    if importlib.util.find_spec("torch") is None:
        raise Skipped("torch is not installed")
    cases, reasons = _cases(found)
    yield Line("rows", f"{len(found)}: {len(cases)} to run; " + "; ".join(f"{n} {why}" for why, n in reasons.items()))
    compiled = {case.torch for case in cases if case.run.compiled}
    pythons: dict[str, pathlib.Path] = {}
    for version in wanted():
        python = python_with(version, version in compiled)
        if isinstance(python, str):
            yield Line(f"torch {version}", f"skipped, it could not be installed: {python}")
        else:
            pythons[version] = python
    runner = Runner(pythons)
    yield from versions(cases, set(pythons))
    scored = []
    for case in _together(cases):
        result = runner.result(case)
        if isinstance(result, str):
            yield Line(case.name, f"not run: {result}")
        else:
            first = result["first"][case.figure] if "first" in result else None
            scored.append(Scored(case, result["torch"], result[case.figure], first))
            yield _row(scored[-1])
    if not scored:
        raise Skipped("nothing could be run")
    yield from summary(scored)
    yield from misses(scored)
    yield from choices(scored)
    yield from constants(scored, found)
    yield from rivals(scored, runner)


def versions(cases: list[Case], had: set[str]) -> Iterator[Line]:
    """Which torch each row was published with, and whether that runs here."""
    for version, count in Counter(case.torch or "not named" for case in cases).items():
        if version in had:
            shown = "runs with that"
        elif version == "not named":
            shown = "any may be the one; none counts as its own"
        else:
            nearest = {case.nearest for case in cases if case.torch == version} & had
            why = UNAVAILABLE.get(version, "not among MEMTUI_BENCH_TORCHES")
            shown = f"not to be had, {why}; runs with {' or '.join(map(str, nearest)) or 'the one at hand'}"
        yield Line(f"published with torch {version}", f"{count} rows: {shown}")


def _row(one: Scored) -> Line:
    published, predicted = (size / 2**20 for size in (one.case.published_bytes, one.predicted_bytes))
    shown = f"{published:.2f} published, {predicted:.2f} MiB predicted, {100 * one.error:+.3f} %"
    return Line(f"{one.case.series}: {one.case.name}", f"{shown}, torch {one.torch.partition('+')[0]}")


def _cases(found: list[dict[str, Any]]) -> tuple[list[Case], dict[str, int]]:
    """What is to run, and why others are not, with how many."""
    asked = os.environ.get("MEMTUI_BENCH_ROWS", "").split(",")
    cases, reasons = [], Counter[str]()
    for row in found:
        case = case_of(row) if claimed(row) else "not of plain torch alone, by their own note"
        if isinstance(case, str):
            reasons[case] += 1
        elif not any(part in case.series for part in asked):
            reasons["of other series than MEMTUI_BENCH_ROWS names"] += 1
        else:
            cases.append(case)
    return cases, dict(reasons.most_common())


def _together(cases: list[Case]) -> list[Case]:
    """Attention's sizes of a kind are one run, as they were."""
    names: dict[Run, tuple[str, ...]] = {}
    for case in cases:
        if case.run.program == "attention.py":
            alone = dataclasses.replace(case.run, arguments=())
            names[alone] = (*names.get(alone, ()), *case.run.arguments)
    made = []
    for case in cases:
        alone = dataclasses.replace(case.run, arguments=())
        together = dataclasses.replace(alone, arguments=names[alone]) if alone in names else case.run
        made.append(dataclasses.replace(case, run=together))
    return made


class Runner:
    """Runs each program once, or where it had run before, twice."""

    def __init__(self, pythons: dict[str, pathlib.Path]) -> None:
        self._pythons = pythons
        self._kept: dict[tuple[str, Run], dict[str, Any] | str] = {}
        self._compiled = tempfile.TemporaryDirectory()

    def result(self, case: Case, seconds: float = _SECONDS) -> dict[str, Any] | str:
        """What the case's run printed, with what a first run of two did; or why it did not."""
        run = case.run
        version = case.torch if case.torch in self._pythons else case.nearest
        python = str(self._pythons.get(version or "", sys.executable))
        if (python, run) not in self._kept:
            found = _run(python, run, self._compiled.name, seconds)
            if run.again and not isinstance(found, str):
                second = _run(python, run, self._compiled.name, seconds)
                found = second if isinstance(second, str) else {**second, "first": found}
            self._kept[python, run] = found
        return self._kept[python, run]


def _run(python: str, run: Run, caches: str, seconds: float) -> dict[str, Any] | str:
    location = None if python == sys.executable else torch_location_of(python)
    if run.compiled and not _has_triton(location):
        return "Triton is not installed"
    profile = profile_of(memory=run.memory, cc=run.cc, context=run.context, multiprocessors=run.multiprocessors)
    command = ["nice", "-n", "5", python]
    if "--ddp" in run.arguments:  # a rank's memory does not depend on how many there are
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    command += [str(surroundings.PROGRAMS / "published" / run.program), *run.arguments]
    kept = {"TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor", "TRITON_CACHE_DIR": f"{caches}/triton"}
    try:
        given = {**environment(profile, location, surroundings.plain()), **kept}
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=seconds, check=False)
    except VirtualGpuError as error:
        return f"no virtual GPU: {error}"
    except subprocess.TimeoutExpired:
        return f"not over after {seconds:.0f} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return " ".join((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1].split())[:150]
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _has_triton(location: Optional[pathlib.Path]) -> bool:
    if location is None:
        return importlib.util.find_spec("triton") is not None
    return (location.parent / "triton").exists()


def summary(scored: list[Scored]) -> Iterator[Line]:
    """A line a series, then the bars."""
    for series in dict.fromkeys(one.case.series for one in scored):
        those = [one for one in scored if one.case.series == series]
        versions = "+".join(sorted({one.torch.partition("+")[0] for one in those}))
        yield Line(f"{series}, torch {versions}", _spread([abs(one.error) for one in those]))
    allocator = [one for one in scored if not one.case.driver]
    driver = [one for one in scored if one.case.driver]
    if allocator:
        yield Line("allocator figures", _spread([abs(one.error) for one in allocator]))
    same = [one.beyond for one in allocator if one.same_torch]
    if same:
        note = f", worst of {len(same)}; {sum(one <= _MISS for one in same)} of them within it"
        yield at_most("allocator, beyond the last digit, its own torch", 100 * max(same), 0.1, "%", 3, note)
    else:
        yield Line("allocator, beyond the last digit, its own torch", "none was run: MEMTUI_BENCH_TORCHES names them")
    if allocator:
        beyond = [one.beyond for one in allocator]
        yield at_most(
            "allocator, beyond the last digit, all", 100 * _high(beyond), 1, "%", 3, f", p90 of {len(beyond)}"
        )
    if driver:
        beyond = [abs(one.error) for one in driver]
        yield Line("driver's figures (nvidia-smi)", _spread(beyond))
        yield at_most("driver's figures, context of its source", 100 * statistics.median(beyond), 2, "%", 2, ", median")
        yield at_most("driver's figures, context of its source", 100 * max(beyond), 10, "%", 2, ", worst")


def misses(scored: list[Scored]) -> Iterator[Line]:
    """Figures that are off, and why as far as is known."""
    for one in scored:
        if one.beyond > (_DRIVER_MISS if one.case.driver else _MISS):
            gib = f"{one.case.published_bytes / 2**30:.4f} published, {one.predicted_bytes / 2**30:.4f} GiB"
            cause = one.case.cause or "not known"
            if one.case.torch and not one.same_torch:
                cause += f" (published with torch {one.case.torch}, run with {one.torch.partition('+')[0]})"
            yield Line(f"off: {one.case.name}", f"{gib} predicted, {100 * one.error:+.2f} %: {cause}")


def choices(scored: list[Scored]) -> Iterator[Line]:
    """What a source leaves open that decides the figure, and what the other choice gives."""
    for one in scored:
        if one.case.choice and one.first_bytes is not None:
            other = one.first_bytes / one.case.published_bytes - 1
            yield Line(
                f"open: {one.case.name}",
                f"{one.case.choice} ({100 * one.error:+.3f} %; the first run of the two: {100 * other:+.3f} %)",
            )


def constants(scored: list[Scored], found: list[dict[str, Any]]) -> Iterator[Line]:
    """The driver's figures with a context that another source measured, for each multiprocessor of its card.

    A context is what the driver sets aside for the threads of each multiprocessor, and torch's kernels: all of them
    where they are loaded eagerly, as by a torch before 1.13, which knows nothing else. A lazy one is another constant.
    That source means GiB: it says that an A100 of 80 GB has 79.21 in all.
    """
    driver = [one for one in scored if one.case.driver]
    for row in found:
        if "stas00" in row["source"] and driver:
            config = row["config"]
            card = card_for(config["gpu"].split()[0] + "G")
            assert card.multiprocessors is not None
            errors = []
            for one in driver:
                own = profile_of(context=one.case.run.context).context_bytes
                other = row["figure"] * 2**30 * one.case.run.multiprocessors / card.multiprocessors
                errors.append(abs((one.predicted_bytes - own + other) / one.case.published_bytes - 1))
            name = f"the same with {card.name}'s context a multiprocessor, torch {config['torch']}"
            if config["CUDA_MODULE_LOADING"] == "EAGER":
                yield at_most(name, 100 * statistics.median(errors), 2, "%", 2, ", median")
                yield at_most(name, 100 * max(errors), 10, "%", 2, ", worst")
            else:
                yield Line(f"{name}, lazy: not theirs", _spread(errors))


def rivals(scored: list[Scored], runner: Runner) -> Iterator[Line]:
    """The closed form where a row is a transformer's peak, MemTracker where it tells such a figure; both's spread."""
    formula, tracker, refused = [], [], Counter[str]()
    for one in scored:
        shown = [f"virtual GPU {100 * one.error:+.2f}"]
        if one.case.tracked:
            found = _tracked(one, runner)
            if isinstance(found, str):
                refused[found] += 1
                shown.append(f"MemTracker – ({found})")
            else:
                tracker.append((one, _with_context(one, found)))
                shown.append(f"MemTracker {100 * tracker[-1][1]:+.2f}")
        if one.case.shape is not None:
            formula.append((one, _with_context(one, closed_form_bytes(one.case.shape))))
            shown.append(f"closed form {100 * formula[-1][1]:+.2f}")
        if len(shown) > 1:
            yield Line(f"rivals, {one.case.name}", ", ".join(shown) + " %")
    for name, those in (("closed form", formula), ("MemTracker", tracker)):
        if those:
            yield Line(name, _spread([abs(error) for _, error in those]))
            yield Line(f"virtual GPU on {name}'s rows", _spread([abs(one.error) for one, _ in those]))
    for why, count in refused.items():
        yield Line("MemTracker does not run", f"{count} rows: {why}")


def _tracked(one: Scored, runner: Runner) -> float | str:
    """What MemTracker says of the row's program, in bytes, or why it says nothing."""
    run = one.case.run
    if run.compiled:
        return "compiled"
    run = dataclasses.replace(run, arguments=(*run.arguments, "--tracker"))
    found = runner.result(dataclasses.replace(one.case, run=run, torch=None, nearest=None), _TRACKER_SECONDS)
    if isinstance(found, str):
        return found
    size: float = found.get("tracker_peak", found.get(one.case.figure))
    return size


def _with_context(one: Scored, size: float) -> float:
    own = profile_of(context=one.case.run.context).context_bytes
    return (size + own) / one.case.published_bytes - 1


def closed_form_bytes(shape: Shape) -> float:
    """A training's bytes by the published formula.

    Parameters, gradients and Adam's moments in the parameters' own precision, and activations of s·b·h·(34 + 5·a·s/h)
    a layer at two bytes an element (Korthikanti et al., "Reducing Activation Recomputation", 2022).
    """
    states = 4 * shape.parameters * shape.element_bytes
    layer = shape.sequence * shape.batch * shape.width * (34 + 5 * shape.heads * shape.sequence / shape.width)
    return states + shape.layers * layer * shape.element_bytes / 2


def _high(errors: list[float]) -> float:
    """The 90th percentile, by the nearest rank."""
    return sorted(errors)[max(0, -(-9 * len(errors) // 10) - 1)]


def _spread(errors: list[float]) -> str:
    shown = " / ".join(f"{100 * one:.3f}" for one in (statistics.median(errors), _high(errors), max(errors)))
    return f"{len(errors)} rows: off by {shown} % (median / p90 / worst)"
