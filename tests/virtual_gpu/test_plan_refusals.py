"""`memtui plan` of what cannot be planned: one line says why, and what is known all the same is told."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from memtui.virtual_gpu.build import find_compiler
from tests.support.planning import FITS, TRAINING, UNKNOWN, called, plan, write_script
from tests.support.virtual_gpu import require_virtual_gpu

#: What a compiled extension does: it registers a kernel, takes memory past torch, and launches.
_EXTENSION = """
typedef struct { unsigned x, y, z; } dim3;
int cudaMalloc(void **, unsigned long);
int cudaLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFunction(void **, const void *, char *, const char *, int, void *, void *, void *, void *, int *);
static void kernel(void) {}
__attribute__((constructor)) static void load(void)
{
    static long binary[8];
    void **handle = __cudaRegisterFatBinary(binary);
    __cudaRegisterFunction(handle, kernel, "kernel", "kernel", -1, 0, 0, 0, 0, 0);
}
int take(unsigned long bytes) { void *address; return cudaMalloc(&address, bytes); }
int launch(void) { dim3 one = { 1, 1, 1 }; return cudaLaunchKernel(kernel, one, one, 0, 0, 0); }
"""
_STRANGE = "int cudaNoSuchCall(void);\nint take(unsigned long bytes) { return cudaNoSuchCall(); }\n"
_USES_IT = TRAINING.replace(
    "for step",
    "import ctypes\nextension = ctypes.CDLL('./extension.so')\nassert not extension.take(1 << 30)\nfor step",
).replace("    optimizer.step()", "    assert extension.launch() == 0\n    optimizer.step()")


def _extension(tmp_path: pathlib.Path, source: str) -> None:
    """Linked against the stand-in, as a real one is against what has its name."""
    folder = require_virtual_gpu().path
    (tmp_path / "extension.c").write_text(source)
    (runtime,) = folder.glob("libcudart.so.*")
    words = ["-shared", "-fPIC", "-w", "-o", "extension.so", "extension.c", f"-L{folder}", f"-l:{runtime.name}"]
    subprocess.run([find_compiler(), *words], cwd=tmp_path, check=True)


def test_memory_of_a_compiled_extension_is_the_devices(tmp_path: pathlib.Path) -> None:
    _extension(tmp_path, _EXTENSION)
    without = plan(tmp_path, "--gpu", "24GiB", "--json", write_script(tmp_path), status=FITS)
    answer = plan(tmp_path, "--gpu", "24GiB", "--json", write_script(tmp_path, _USES_IT), status=FITS)
    assert answer["peak_device_bytes"] == without["peak_device_bytes"] + (1 << 30)
    assert answer["peak_reserved_bytes"] == without["peak_reserved_bytes"]


def test_an_extension_that_calls_what_is_not_there(tmp_path: pathlib.Path) -> None:
    """The call is named, and what was seen until then is told."""
    _extension(tmp_path, _STRANGE)
    text = plan(tmp_path, "--gpu", "24GiB", write_script(tmp_path, _USES_IT), status=UNKNOWN)
    line = " ".join(text.split())
    assert "unknown: the program failed before its first step: OSError:" in line
    assert "it calls cudaNoSuchCall, which virtual GPUs do not have" in line
    assert "peak until then" in line
    assert "32.0 MiB" in line  # the model's parameters


def test_an_extension_that_cannot_be_compiled(tmp_path: pathlib.Path) -> None:
    """Neither a compiler of CUDA nor what drives it is needed for the line, which names the toolkit."""
    compiled = "import torch\nfrom torch.utils import cpp_extension\ncpp_extension.CUDA_HOME = None\n"
    compiled += "cpp_extension.verify_ninja_availability = lambda: None\n"
    compiled += "open('kernel.cu', 'w').write('__global__ void kernel() {}')\n"
    compiled += "torch.zeros(9, device='cuda')\n"
    compiled += "cpp_extension.load('kernel', ['kernel.cu'], build_directory='.')\n"
    line = " ".join(plan(tmp_path, "--gpu", "24GiB", write_script(tmp_path, compiled), status=UNKNOWN).split())
    assert "unknown: the program failed before its first step: OSError: CUDA_HOME" in line
    assert "which takes the CUDA toolkit on this machine too" in line


def test_without_a_compiler_one_line_says_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("sh", "env"):
        os.symlink(shutil.which(name) or name, tmp_path / "bin" / name)
    cold = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": ""}
    done = called(tmp_path, "--gpu", "24GiB", write_script(tmp_path), **cold)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "memtui: there is no C compiler: install gcc or clang, or set CC\n"


def test_a_torch_without_cuda_is_one_line(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "packages" / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text("__version__ = '2.9.0+cpu'\ncuda = None\n")
    path = os.pathsep.join([str(package.parent), str(pathlib.Path(__file__).resolve().parents[2])])
    done = called(tmp_path, "--gpu", "24GiB", write_script(tmp_path), PYTHONPATH=path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("memtui: torch 2.9.0+cpu is a build without CUDA: ")


@pytest.mark.parametrize("sized", [True, False])
def test_lines_that_read_values_are_named(tmp_path: pathlib.Path, sized: bool) -> None:
    read = "torch.rand(64, device='cuda').sum().item()"
    line = f"rows = torch.zeros(int({read}), device='cuda')" if sized else "rows = torch.ones(9, device='cuda')"
    text = TRAINING.replace("for step", f"{line}\nrows = rows[rows > 0]\nfor step")
    answer = plan(tmp_path, write_script(tmp_path, text), "--gpu", "24GiB", status=FITS)
    place = text.splitlines().index(line) + 1
    told = " ".join(answer.split())
    assert f"train.py:{place + 1} sizes a tensor by values (nonzero)" in told
    assert (f"train.py:{place} (item) reads values: where one decides a size or a branch" in told) is sized
