"""The torch to build for, found and read without importing it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memtui.virtual_gpu.errors import VirtualGpuError

_OLDEST_CUDA = (12, 0)
_FIND_TORCH = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"


@dataclass(frozen=True)
class TorchInstall:
    """A CUDA build of torch: its package folder, its version, and the CUDA version (major, minor) it was built for."""

    folder: Path
    version: str
    cuda: tuple[int, int]

    @property
    def cuda_version(self) -> int:
        """The CUDA version as CUDA writes it: 12040 is 12.4."""
        return 1000 * self.cuda[0] + 10 * self.cuda[1]

    def libraries(self) -> Iterator[Path]:
        """Yield torch's own shared objects, and torchvision's and torchaudio's where they lie beside it."""
        yield from sorted(self.folder.glob("lib/*.so"))
        yield from sorted(self.folder.glob("_C*.so"))
        for companion in ("torchvision", "torchaudio"):
            yield from sorted((self.folder.parent / companion).glob("**/*.so"))


def find_torch(location: str | os.PathLike[str] | None = None) -> TorchInstall:
    """Find the torch of this interpreter, or the one at `location` (a torch or a site-packages folder).

    Raises `VirtualGpuError` where there is none, or one that was not built for CUDA 12 or later.
    """
    folder = _folder_of_this_interpreter() if location is None else _folder_at(Path(location))
    return _read_install(folder)


def torch_location_of(python: str) -> Path | None:
    """Ask another Python interpreter where its torch is; `None` where it has none or does not answer."""
    try:
        answer = subprocess.run(
            [python, "-c", _FIND_TORCH],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    origin = answer.stdout.strip()
    return Path(origin).parent if origin else None


def _folder_of_this_interpreter() -> Path:
    loaded = sys.modules.get("torch")
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise VirtualGpuError("torch is not installed for this interpreter", "pip install torch")
    return Path(spec.origin).parent


def _folder_at(location: Path) -> Path:
    for candidate in (location, location / "torch"):
        if (candidate / "version.py").is_file() and (candidate / "lib").is_dir():
            return candidate
    raise VirtualGpuError(f"there is no torch at {location}", "name a site-packages folder or the torch folder in it")


def _read_install(folder: Path) -> TorchInstall:
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except OSError as error:
        raise VirtualGpuError(f"cannot read torch's version: {error}", "reinstall torch") from error
    version = _assigned("__version__", text)
    cuda = _assigned("cuda", text)
    if version is None:
        raise VirtualGpuError(f"{folder / 'version.py'} names no version", "reinstall torch")
    if cuda is None:
        raise VirtualGpuError(
            f"torch {version} is a build without CUDA",
            "the default Linux build has it: pip install torch; without NVIDIA's libraries, which virtual GPUs do not "
            "need: pip install --no-deps torch && pip install filelock fsspec jinja2 networkx sympy typing-extensions",
        )
    major, _, minor = cuda.partition(".")
    number = (int(major), int(minor or 0))
    if number < _OLDEST_CUDA:
        raise VirtualGpuError(f"torch {version} was built for CUDA {cuda}", "use a build for CUDA 12 or later")
    return TorchInstall(folder, version, number)


def _assigned(name: str, text: str) -> str | None:
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None
