"""Builds the stand-in libraries for one torch into a cache folder, once."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from memtui.virtual_gpu.errors import VirtualGpuError
from memtui.virtual_gpu.stubs import StubLibrary, plan
from memtui.virtual_gpu.torch_install import TorchInstall

SOURCE_FOLDER = Path(__file__).resolve().parent / "src"

_CORE = "libvgpu_core.so"
_CORE_SOURCES = ("settings.c", "usage.c", "usage_table.c", "ranges.c", "copies.c", "notes.c", "process.c")
_PRELOAD = "libvgpu_preload.so"

# -O2 without a stack protector: preload.c needs its dlopen() to end in a tail call.
_COMPILE_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector")
_COMPILERS = ("cc", "gcc", "clang")

#: The loader splits LD_PRELOAD at these.
_PRELOAD_SEPARATORS = " :\t\n"


@dataclass(frozen=True)
class StubFolder:
    """A folder of built stand-ins."""

    path: Path

    @property
    def preload(self) -> Path:
        """The library to name in LD_PRELOAD."""
        return self.path / _PRELOAD


def cache_folder() -> Path:
    """Where builds are kept: `$XDG_CACHE_HOME/memtui/virtual_gpu`."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "memtui" / "virtual_gpu"


def find_compiler() -> str:
    """The C compiler's path: `$CC`, or the first of cc, gcc and clang; raises `VirtualGpuError`."""
    for name in (os.environ.get("CC", ""), *_COMPILERS):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise VirtualGpuError("there is no C compiler", "install gcc or clang, or set CC")


def build(torch: TorchInstall) -> StubFolder:
    """The stand-ins for a torch, built if they are not in the cache yet.

    Two processes may build at the same time: each builds in a folder of its own, and the first to
    finish names it.  Raises `VirtualGpuError` where they cannot be built.
    """
    if sys.platform != "linux":
        raise VirtualGpuError("virtual GPUs need Linux", "run on a Linux machine or in a Linux container")
    try:
        stubs = plan(torch.libraries())
    except (OSError, ValueError) as error:
        raise VirtualGpuError(f"cannot read torch's libraries: {error}", "reinstall torch") from error
    target = cache_folder() / _key(torch, stubs)
    if any(separator in str(target) for separator in _PRELOAD_SEPARATORS):
        raise VirtualGpuError(
            f"the cache folder {target.parent} has a space or a colon in its path", "set XDG_CACHE_HOME to one without"
        )
    folder = StubFolder(target)
    if not folder.preload.exists():
        _build_into_place(target, stubs, torch)
    return folder


def _key(torch: TorchInstall, stubs: list[StubLibrary]) -> str:
    digest = hashlib.sha256()
    for part in (platform.machine(), torch.version, str(torch.cuda_version), *_COMPILE_FLAGS):
        digest.update(part.encode() + b"\0")
    for source in sorted(SOURCE_FOLDER.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    for stub in stubs:
        digest.update(f"{stub.soname} {stub.version} {stub.generated_source()}".encode())
    return digest.hexdigest()[:24]


def _build_into_place(target: Path, stubs: list[StubLibrary], torch: TorchInstall) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise VirtualGpuError(
            f"cannot write to the cache folder: {error}", "set XDG_CACHE_HOME to a writable folder"
        ) from error
    try:
        _Build(draft, torch, find_compiler()).run(stubs)
        draft.chmod(0o755)
        try:
            draft.rename(target)
        except OSError:
            # Another process was first; its build is as good.
            if not (target / _PRELOAD).exists():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class _Build:
    def __init__(self, folder: Path, torch: TorchInstall, compiler: str) -> None:
        self._folder = folder
        self._objects = folder / "objects"
        self._torch = torch
        self._compiler = compiler

    def run(self, stubs: list[StubLibrary]) -> None:
        self._objects.mkdir()
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            self._link(_CORE, list(pool.map(self._compile, _CORE_SOURCES)), "-lpthread")
            for _ in pool.map(self._build_stub, stubs):
                pass
        (self._folder / "libcuda.so").symlink_to("libcuda.so.1")  # triton links against that name
        self._link(_PRELOAD, [self._compile("preload.c")], "-ldl")
        shutil.rmtree(self._objects)

    def _build_stub(self, stub: StubLibrary) -> None:
        defines = [f"-DVGPU_CUDNN_MAJOR={_major(stub)}"] if stub.stem == "libcudnn" else []
        objects = [self._compile(source, *defines) for source in stub.sources]
        generated = self._objects / f"{stub.stem}.generated.c"
        generated.write_text(stub.generated_source(), encoding="utf-8")
        script = self._objects / f"{stub.stem}.map"
        script.write_text(stub.version_script(), encoding="utf-8")
        objects.append(self._compile(str(generated)))
        self._link(
            stub.soname,
            objects,
            f"-Wl,--version-script={script}",
            "-Wl,-rpath,$ORIGIN",
            "-Wl,--no-as-needed",
            f"-L{self._folder}",
            "-lvgpu_core",
            "-ldl",
        )

    def _compile(self, source: str, *defines: str) -> Path:
        result = self._objects / (Path(source).name[:-2] + ".o")
        self._run(
            *_COMPILE_FLAGS,
            f"-DVGPU_CUDA_VERSION={self._torch.cuda_version}",
            *defines,
            f"-I{SOURCE_FOLDER}",
            "-c",
            str(SOURCE_FOLDER / source),
            "-o",
            str(result),
        )
        return result

    def _link(self, name: str, objects: list[Path], *flags: str) -> None:
        self._run("-shared", f"-Wl,-soname,{name}", *map(str, objects), *flags, "-o", str(self._folder / name))

    def _run(self, *arguments: str) -> None:
        # Not under an older stand-in: a compiler needs none.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        try:
            subprocess.run([self._compiler, *arguments], check=True, capture_output=True, text=True, env=environment)
        except OSError as error:
            raise VirtualGpuError(f"cannot run {self._compiler}: {error}", "install gcc or clang") from error
        except subprocess.CalledProcessError as error:
            lines = [line for line in error.stderr.splitlines() if "error" in line] or error.stderr.splitlines()
            raise VirtualGpuError(
                f"{self._compiler} failed: {lines[0] if lines else error.returncode}",
                "install the C library's development files (libc6-dev)",
            ) from error


def _major(stub: StubLibrary) -> str:
    return stub.soname.rpartition(".")[2]
