"""Virtual GPUs for tests: `require_virtual_gpu()` skips where there are none, `virtual_environment()` runs a child."""

from __future__ import annotations

import functools

import pytest

from memtui.virtual_gpu import VirtualGpuError, environment, profile_of
from memtui.virtual_gpu.build import StubFolder, build
from memtui.virtual_gpu.torch_install import find_torch


def require_virtual_gpu() -> StubFolder:
    """Skip the calling test, with the reason, where torch is absent or CPU-only or there is no compiler."""
    found = _build_once()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def _build_once() -> StubFolder | str:
    try:
        return build(find_torch())
    except VirtualGpuError as error:
        return f"no virtual GPU: {error}"


def virtual_environment(**profile: object) -> dict[str, str]:
    """The environment of a child with virtual GPUs of its own; skips as `require_virtual_gpu` does.

    Arguments are those of `profile_of`: `virtual_environment(memory="24GiB", count=2, context="400MiB")`.
    Children that are to see each other's memory must be given the same result.
    """
    require_virtual_gpu()
    return environment(profile_of(**profile))  # type: ignore[arg-type]  # profile_of checks them
