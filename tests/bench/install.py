"""What installing memtui without torch puts on the disk."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator

from . import surroundings
from .report import Line, Skipped, at_most


def bench() -> Iterator[Line]:
    """Into a new environment; needs a package index."""
    with tempfile.TemporaryDirectory(prefix="mb-") as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder, "bin", "python")
        site = next(pathlib.Path(folder, "lib").glob("python*/site-packages"))
        for entry in [*site.glob("pip*"), *site.glob("setuptools*"), *site.glob("pkg_resources*")]:
            entry.rename(pathlib.Path(folder, entry.name))
        _install(site)
        size = sum(
            path.stat().st_size for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts
        )
        found = [entry.name for entry in site.glob("*.dist-info")]
        subprocess.run([str(python), "-c", "import memtui.tui.app"], env=surroundings.bare(), cwd=folder, check=True)
        whole = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    yield at_most("installed, without byte code", size / 1e6, 35, "MB", 1)
    yield at_most("installed, with the byte code", whole / 1e6, 35, "MB", 1)
    yield at_most("distributions", len(found), 15, "distributions", 0)


def _install(site: pathlib.Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), str(surroundings.ROOT)]
    done = subprocess.run(command, env=surroundings.bare(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"pip: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
