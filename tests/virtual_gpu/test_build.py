"""The builder: what it reads from torch, what it makes of it, and how it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.virtual_gpu.build import SOURCE_FOLDER, build, cache_folder, find_compiler
from memtui.virtual_gpu.elf import Import, SharedObject, read_shared_object
from memtui.virtual_gpu.errors import VirtualGpuError
from memtui.virtual_gpu.stubs import plan_for
from memtui.virtual_gpu.torch_install import find_torch
from tests.support.virtual_gpu import require_virtual_gpu


def _torch_folder(base: Path, cuda: str | None, version: str = "2.9.0") -> Path:
    folder = base / "torch"
    (folder / "lib").mkdir(parents=True)
    text = f"from typing import Optional\n__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
    (folder / "version.py").write_text(text)
    return folder


# ---- finding torch ------------------------------------------------------------------------------


def test_torch_is_found_without_an_import(tmp_path: Path) -> None:
    folder = _torch_folder(tmp_path, "12.4", "2.9.0+cu124")
    for location in (tmp_path, folder):
        torch = find_torch(location)
        assert (torch.folder, torch.version, torch.cuda, torch.cuda_version) == (folder, "2.9.0+cu124", (12, 4), 12040)


@pytest.mark.parametrize(
    ("cuda", "problem"),
    [(None, "torch 2.9.0 is a build without CUDA"), ("11.8", "torch 2.9.0 was built for CUDA 11.8")],
)
def test_a_torch_that_cannot_be_used_is_named(tmp_path: Path, cuda: str | None, problem: str) -> None:
    with pytest.raises(VirtualGpuError) as caught:
        find_torch(_torch_folder(tmp_path, cuda))
    assert caught.value.problem == problem
    assert "\n" not in str(caught.value)
    assert caught.value.fix in str(caught.value)


def test_no_torch_at_the_place(tmp_path: Path) -> None:
    with pytest.raises(VirtualGpuError, match="there is no torch at"):
        find_torch(tmp_path)


def test_no_torch_in_the_interpreter() -> None:
    # -S leaves the site-packages folder out
    source = "from memtui.virtual_gpu.torch_install import find_torch; find_torch()"
    root = str(Path(__file__).resolve().parents[2])
    child = subprocess.run(
        [sys.executable, "-S", "-c", source], env={"PYTHONPATH": root}, capture_output=True, text=True, check=False
    )
    assert "VirtualGpuError: torch is not installed for this interpreter (pip install torch)" in child.stderr


# ---- reading shared objects ------------------------------------------------------------------------


def test_imports_and_their_versions(tmp_path: Path) -> None:
    source = tmp_path / "asks.c"
    source.write_text(
        "extern int ncclGetVersion(int *); extern int puts(const char *);\n"
        'int defined(void) { int v; puts(""); return ncclGetVersion(&v); }\n'
    )
    library = tmp_path / "asks.so"
    try:
        subprocess.run([find_compiler(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    except VirtualGpuError as error:
        pytest.skip(str(error))
    found = read_shared_object(library)
    assert "libc.so.6" in found.needed
    by_name = {item.name: item for item in found.imports}
    assert by_name["ncclGetVersion"] == Import("ncclGetVersion", "", "")
    assert by_name["puts"].soname == "libc.so.6"
    assert by_name["puts"].version.startswith("GLIBC_")
    assert "defined" not in by_name


def test_a_file_that_is_no_shared_object(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("INPUT(libx.so.1)")
    with pytest.raises(ValueError, match="is not a 64-bit little-endian ELF file"):
        read_shared_object(tmp_path / "x.so")


# ---- what is made of it ---------------------------------------------------------------------------------


def test_symbols_go_to_the_library_that_owns_them() -> None:
    # GIVEN imports with a version, by prefix, of the driver, and of nobody here
    objects = [
        SharedObject(
            ("libcudart.so.13", "libnccl.so.2", "libcusparseLt.so.0", "libcufile.so.0", "libc.so.6"),
            (
                Import("cudaMalloc", "libcudart.so.13", "libcudart.so.13"),
                Import("ncclSend", "", ""),
                Import("cusparseLtInit", "", ""),
                Import("cuFileRead", "", ""),
                Import("cuLaunchKernel", "", ""),
                Import("puts", "libc.so.6", "GLIBC_2.2.5"),
            ),
        )
    ]
    stubs = {stub.soname: stub for stub in plan_for(objects)}
    # THEN each is where torch will look for it
    assert stubs["libcudart.so.13"].symbols == {"cudaMalloc"}
    assert stubs["libcudart.so.13"].version_script() == "libcudart.so.13 { global: *; };\n"
    assert stubs["libnccl.so.2"].symbols == {"ncclSend"}
    assert stubs["libcusparseLt.so.0"].symbols == {"cusparseLtInit"}
    assert stubs["libcufile.so.0"].symbols == {"cuFileRead"}
    assert "cuLaunchKernel" in stubs["libcuda.so.1"].symbols
    assert stubs["libnvidia-ml.so.1"].symbols == set()
    assert "libc.so.6" not in stubs


def test_a_generated_stub_refuses_where_a_result_is_expected() -> None:
    asked = SharedObject(
        ("libcusolver.so.12",),
        tuple(
            Import(name, "libcusolver.so.12", "libcusolver.so.12")
            for name in ("cusolverDnSpotrf_bufferSize", "cusolverDnSpotrf", "cusolverGetErrorString")
        ),
    )
    text = next(stub for stub in plan_for([asked]) if stub.stem == "libcusolver").generated_source()
    assert 'STUB(cusolverDnSpotrf_bufferSize) { return vgpu_refuse("cusolverDnSpotrf_bufferSize", 9); }' in text
    assert 'STUB(cusolverDnSpotrf) { return vgpu_nothing("cusolverDnSpotrf"); }' in text
    assert 'STUB(cusolverGetErrorString) { return (long)"cusolverGetErrorString"; }' in text


@pytest.mark.parametrize("cuda", [12010, 12040, 12080, 13000])
def test_the_sources_compile_without_a_warning(tmp_path: Path, cuda: int) -> None:
    # -nostdinc is too much: the C library's headers are needed.  CUDA's are not: none is named.
    try:
        compiler = find_compiler()
    except VirtualGpuError as error:
        pytest.skip(str(error))
    sources = sorted(SOURCE_FOLDER.glob("*.c"))
    assert len(sources) > 15
    for source in sources:
        assert "#include <cuda" not in source.read_text()
    subprocess.run(
        [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", f"-DVGPU_CUDA_VERSION={cuda}", "-c"]
        + [str(source) for source in sources],
        cwd=tmp_path,
        check=True,
    )


# ---- building ----------------------------------------------------------------------------------------------


@pytest.mark.virtual_gpu
def test_a_second_build_takes_what_is_there() -> None:
    folder = require_virtual_gpu()
    made = folder.preload.stat()
    again = build(find_torch())
    assert again == folder
    assert (again.preload.stat().st_ino, again.preload.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)


@pytest.mark.virtual_gpu
def test_builds_at_the_same_time_make_one_folder(tmp_path: Path) -> None:
    require_virtual_gpu()
    source = (
        "from memtui.virtual_gpu.build import build; from memtui.virtual_gpu.torch_install import find_torch; "
        "print(build(find_torch()).path)"
    )
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    children = [
        subprocess.Popen([sys.executable, "-c", source], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {child.communicate(timeout=120)[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * 2
    assert len(paths) == 1
    (path,) = paths
    # No drafts are left, and the folder holds everything but the objects.
    assert [str(entry) for entry in (tmp_path / "memtui" / "virtual_gpu").iterdir()] == [path]
    assert {"libvgpu_core.so", "libvgpu_preload.so", "libcuda.so", "libcuda.so.1"} <= set(os.listdir(path))
    assert "objects" not in os.listdir(path)


@pytest.mark.virtual_gpu
@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"PATH": "", "CC": ""}, "there is no C compiler"),
        ({"CC": shutil.which("false") or "false"}, "false failed"),
        ({"XDG_CACHE_HOME": "/proc/nowhere"}, "cannot write to the cache folder"),
        ({"XDG_CACHE_HOME": "/tmp/with a space"}, "has a space or a colon in its path"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], problem: str
) -> None:
    require_virtual_gpu()
    torch = find_torch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(VirtualGpuError, match=problem) as caught:
        build(torch)
    assert "\n" not in str(caught.value)
    # and nothing is left half made
    assert not list(tmp_path.glob("memtui/virtual_gpu/*"))


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/memtui/virtual_gpu")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative is to be ignored")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/home/somebody/.cache/memtui/virtual_gpu")
