"""What a look at the categories costs the training's thread, beside torch's own snapshot, and the search of its heap.

Processor time of the thread, in a training process. A look is repeated at the end of a forward, where there are most
blocks; then every boundary of further steps is looked at, or only torch's snapshot taken there, when the training has
just emptied the processor's caches.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from . import surroundings
from .report import Line, at_most

#: GPTs by their layers: as many blocks as the bars are for, and a deep one; and a chain by its parameters.
_TRAININGS = (
    ("about 600 blocks", ("11",), 0.4),
    ("about 4,600 blocks", ("90",), 4.0),
    ("96 layers", ("96",), None),
    ("2,000 parameters", ("--parameters", "2000"), None),
)
#: The bar of larger ones grows with their blocks.
_MS_A_BLOCK = 4.0 / 4600
_OBJECTS = ((300_000, 50), (1_000_000, 200), (2_500_000, 200))


def bench() -> Iterator[Line]:
    """A look repeated, looks at boundaries, and the pause for the search."""
    for name, arguments, bar in _TRAININGS:
        yield from _look_lines(name, _child("looks.py", *arguments), bar)
    for objects, bar in _OBJECTS:
        found = _child("discovery.py", str(objects))
        [pause] = found["in_training"]
        what = "searched" if found["complete"] else "not searched, too many"
        note = f" ({found['objects']:,} objects {what}; again {_range(found['pauses'])})"
        asked = "".join(f"; for optimizers alone {1e3 * seconds:.1f} ms" for seconds in found["optimizers"])
        yield at_most(f"search of {objects:,} objects, no optimizer", 1e3 * pause, bar, "ms", 1, note + asked)


def _child(program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(surroundings.PROGRAMS / program), *arguments]
    with surroundings.runtime_folder() as runtime:
        environment = surroundings.with_virtual_gpu(runtime)
        found: dict[str, Any] = json.loads(subprocess.run(command, env=environment, stdout=-1, check=True).stdout)
    return found


def _look_lines(name: str, found: dict[str, Any], bar: Any) -> Iterator[Line]:
    again = found["again"]
    about = f"{name}: a look again and again, {found['blocks']:,} blocks"
    note = f", least {1e3 * min(again['looks']):.2f}; torch's snapshot {_range(again['snapshots'])}"
    if bar is None:
        bar = round(found["blocks"] * _MS_A_BLOCK, 1)
    yield at_most(about, 1e3 * statistics.median(again["looks"]), bar, "ms", 2, note)
    for kind, each in found["boundaries"].items():
        shown = f"{_range(each['looks'])}; torch's snapshot {_range(each['snapshots'])}"
        yield Line(f"{name}: at {kind}, {each['blocks']:,} blocks", shown)


def _range(seconds: list[float]) -> str:
    """The least and the median."""
    return f"{1e3 * min(seconds):.2f} / {1e3 * statistics.median(seconds):.2f} ms"
