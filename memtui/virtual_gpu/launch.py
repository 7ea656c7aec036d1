"""The environment under which any program, its children and theirs see virtual GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from memtui.virtual_gpu.build import StubFolder, build
from memtui.virtual_gpu.profile import Profile
from memtui.virtual_gpu.torch_install import find_torch
from memtui.virtual_gpu.usage_file import create_usage_file

_TORCH_SETTINGS = {
    # cuDNN 7's questions instead of the graph API, and cuDNN's attention last: the stand-in answers
    # the former and refuses the latter.
    "TORCH_CUDNN_V8_API_DISABLED": "1",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",
    # Seconds that torch waits at exit for an autograd thread which preload.c holds back.
    "TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT": "0.5",
}


def environment(
    profile: Profile,
    torch_location: str | os.PathLike[str] | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment for a child with virtual GPUs: `base` (or this process's own) and what is needed on top.

    `torch_location` is the torch or site-packages folder of the child's interpreter; without it, this
    interpreter's torch is meant.  Every call makes new, empty devices; processes that are started
    with the same result share them.  Raises `VirtualGpuError`.
    """
    folder = build(find_torch(torch_location))
    result = without_virtual_gpus(os.environ if base is None else base)
    result.update(_TORCH_SETTINGS)
    result.update(profile.environment())
    result["LD_PRELOAD"] = ":".join(filter(None, (str(folder.preload), result.get("LD_PRELOAD", ""))))
    result["TRITON_LIBCUDA_PATH"] = str(folder.path)  # triton asks ldconfig otherwise
    result["VGPU_SHM"] = str(create_usage_file())
    return result


def without_virtual_gpus(base: Mapping[str, str]) -> dict[str, str]:
    """A copy of an environment with nothing in it that `environment` had added."""
    result = {name: value for name, value in base.items() if not name.startswith("VGPU_")}
    for name in (*_TORCH_SETTINGS, "TRITON_LIBCUDA_PATH"):
        if "VGPU_SHM" in base:
            result.pop(name, None)
    kept = [
        entry for entry in result.get("LD_PRELOAD", "").replace(" ", ":").split(":") if entry and not _is_ours(entry)
    ]
    if kept:
        result["LD_PRELOAD"] = ":".join(kept)
    else:
        result.pop("LD_PRELOAD", None)
    return result


def _is_ours(entry: str) -> bool:
    path = Path(entry)
    return path.name == StubFolder(path.parent).preload.name
