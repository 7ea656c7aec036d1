"""Published figures against the closed form of the same training."""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Iterator

from memtui.analysis.estimate.accuracy import FITTED, PUBLISHED, KnownError
from memtui.analysis.units import size

from .estimate_rows import Row, estimated_bytes, parts, peaks, without_shapes
from .report import Line, Skipped

_ROWS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "cases" / "ground_truth.jsonl"
#: Units as the sources print them; those of NVML and of one paper say MB and mean MiB.
_UNITS = {
    "GiB": 2**30,
    "MiB": 2**20,
    "MB": 2**20,
    "MB (NVML used)": 2**20,
    "GB": 10**9,
    "GB (1e9)": 10**9,
    "GB approx.": 10**9,
}


def bench() -> Iterator[Line]:
    """Each row; then what `memtui estimate` says of its own error, which must be what comes out here."""
    published = _published()
    for rows, stated, words in (
        (peaks(), PUBLISHED, ""),
        (without_shapes(), FITTED, ", by the number of parameters"),
    ):
        errors = []
        for row in rows:
            line, error = _compared(row, published[row.id])
            errors.append(abs(error))
            yield line
        found = known_error(errors)
        figures = f"median {found.median:.1%}, nine in ten {found.ninetieth:.1%}, worst {found.worst:.1%}"
        yield Line(f"{found.rows} peaks{words}", figures, "as memtui estimate says", found == stated)
    for row in parts():
        yield _compared(row, published[row.id])[0]


def known_error(errors: list[float]) -> KnownError:
    """The figures that `memtui estimate` prints, to a thousandth."""
    ordered = sorted(errors)
    ninetieth = ordered[-(-9 * len(ordered) // 10) - 1]
    return KnownError(len(ordered), round(statistics.median(ordered), 3), round(ninetieth, 3), round(ordered[-1], 3))


def _compared(row: Row, published_bytes: float) -> tuple[Line, float]:
    found = estimated_bytes(row)
    error = found / published_bytes - 1
    return Line(f"{row.id} {row.what}", f"{size(round(published_bytes))} -> {size(found)}, {error:+.1%}"), error


def _published() -> dict[str, float]:
    """Bytes by row."""
    try:
        lines = _ROWS.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise Skipped("the published figures are not beside the checkout") from None
    rows = [json.loads(line) for line in lines]
    return {row["id"]: row["figure"] * _UNITS[row["unit"]] for row in rows if row["unit"] in _UNITS}
