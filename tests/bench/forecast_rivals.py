"""What others say of a training's peak at the same moments: twice as much, a line, a formula, torch's MemTracker."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Optional

from memtui.analysis.estimate.architecture import Transformer
from memtui.analysis.estimate.build import estimate
from memtui.analysis.estimate.convolutional import find_convnet
from memtui.analysis.estimate.optimizers import RECIPES
from memtui.analysis.estimate.precision import PRECISIONS
from memtui.analysis.estimate.request import Request

from . import surroundings
from .forecast_run import STEPS, Sample

_TRACKED = str(surroundings.PROGRAMS / "forecasts" / "tracked.py")
#: As many samples make the line.
_LAST = 10
_TRACKER_SECONDS = 1800
#: Of what a closed form is told, the fields that are a request's by their own names.
_PLAIN = ("batch", "sequence", "accumulation", "kept_gradients", "released_logits", "flash", "dropout", "lora_rank")
_NAMES = ("checkpointing", "implementation")


def doubled(samples: Sequence[Sample]) -> Optional[int]:
    """Twice what is allocated when the first backward begins; None where that was not sampled."""
    place = _first(samples, "backward_start")
    return None if place is None else 2 * samples[place].allocated_bytes


def line_fitted(samples: Sequence[Sample], boundary: str) -> Optional[int]:
    """The last samples until the first `boundary`, by least squares, on to the end of the last step.

    Or the highest sample until then, where the line falls. It is told when the training will end.
    """
    place = _first(samples, boundary)
    if place is None:
        return None
    last = samples[max(0, place + 1 - _LAST) : place + 1]
    highest = max(sample.allocated_bytes for sample in samples[: place + 1])
    if len({sample.time_ns for sample in last}) < 2:
        return highest
    end_ns = next((sample.time_ns for sample in samples if sample.step >= STEPS), samples[-1].time_ns)
    start_ns = last[0].time_ns
    line = statistics.linear_regression(
        [sample.time_ns - start_ns for sample in last], [sample.allocated_bytes for sample in last]
    )
    return max(highest, round(line.slope * (end_ns - start_ns) + line.intercept))


def _first(samples: Sequence[Sample], boundary: str) -> Optional[int]:
    return next((place for place, sample in enumerate(samples) if sample.boundary == boundary), None)


def closed_form(facts: dict[str, Any]) -> tuple[Optional[int], bool]:
    """(bytes, whether activations are in them): by the estimate's formulas where these know the network.

    Elsewhere weights, gradients and state by the number of parameters; None where the optimizer's are not known.
    """
    recipe = RECIPES.get(facts.get("optimizer") or "")
    if recipe is None:
        return None, False
    convolutional = find_convnet(facts.get("named", ""))
    transformer = Transformer("", **facts["transformer"]) if "transformer" in facts else None
    model = convolutional or transformer
    common: dict[str, Any] = {"optimizer": recipe, "precision": PRECISIONS[facts["precision"]]}
    names = _PLAIN if model is not None else ("accumulation", "kept_gradients")
    common |= {name: facts[name] for name in (*names, *_NAMES) if name in facts}
    if "lora_targets" in facts:
        common["lora_targets"] = tuple(facts["lora_targets"])
    if model is None and recipe.rule != "multiple":
        return None, False
    found = estimate(Request(model, 0 if model else facts["trained"], **common))
    return found.peak.bytes, model is not None


def tracked(kinds: Sequence[str]) -> dict[str, tuple[Optional[int], str]]:
    """By kind, MemTracker's peak of two steps in bytes, or None and why it refuses."""
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime, agent=False)
        done = subprocess.run(
            ["nice", "-n", "5", sys.executable, _TRACKED, *kinds],
            env=environment, capture_output=True, text=True, timeout=_TRACKER_SECONDS, check=True,
        )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["kind"]: (row.get("peak_bytes"), " ".join(row.get("refused", "").split())) for row in rows}
