"""Torch's own web view of a snapshot, written by the torch of this Python."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from memtui.cli import CommandError
from memtui.snapshots.reading import load

_GZIP = b"\x1f\x8b"


def write_html(snapshot: str, out: str, available_bytes: int) -> None:
    """Writes the page to `out`; raises SnapshotError and CommandError.

    Torch reads pickles without a check, so that of this program comes first, with the bound on memory.
    """
    folder = os.path.dirname(os.path.abspath(out))
    if not os.path.isdir(folder):
        raise CommandError(f"cannot write {out}: there is no folder {folder}")
    viewer = _viewer()
    load(snapshot, available_bytes)
    with _plain(snapshot) as plain:
        done = subprocess.run(
            [sys.executable, "-I", viewer, "trace_plot", plain, "-o", os.path.abspath(out)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no word of why"]
        raise CommandError(f"torch's viewer did not write {out}: {said[-1][:200]}")


def _viewer() -> str:
    """The script that torch brings, found without importing torch."""
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        script = os.path.join(folder, "cuda", "_memory_viz.py")
        if os.path.exists(script):
            return script
    raise CommandError(
        f"--html is written by torch's own viewer, and {sys.executable} has no torch: "
        "use the Python that has, or drop the snapshot on pytorch.org/memory_viz"
    )


@contextlib.contextmanager
def _plain(snapshot: str) -> Iterator[str]:
    """The file, or a copy that is not gzipped, which goes afterwards."""
    with open(snapshot, "rb") as file:
        zipped = file.read(2) == _GZIP
    if not zipped:
        yield os.path.abspath(snapshot)
        return
    with tempfile.NamedTemporaryFile(suffix=".pickle") as copy:
        with gzip.open(snapshot) as unpacked:
            shutil.copyfileobj(unpacked, copy)
        copy.flush()
        yield copy.name
