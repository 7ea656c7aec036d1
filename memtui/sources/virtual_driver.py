"""Reading the virtual GPUs of a program instead of this machine's driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .driver_library import LIBRARY_VARIABLE, MACHINE_VARIABLE
from .environ import environment_of

_NVML = "libnvidia-ml.so.1"


def use_driver_of(environment: Mapping[str, str]) -> bool:
    """Makes NVML in this process answer for the virtual GPUs of a program started with `environment`, if it has any.

    The library is only taken from a file of this user: the environment of a process is not to be trusted further.
    """
    if MACHINE_VARIABLE not in environment:
        return False
    for entry in environment.get("LD_PRELOAD", "").split(":"):
        library = Path(entry).parent / _NVML
        if not Path(entry).name.startswith("libvgpu") or not library.is_file():
            continue
        if library.stat().st_uid != os.geteuid() or library.stat().st_mode & 0o022:
            continue
        for name in [name for name in os.environ if name.startswith("VGPU_")]:
            del os.environ[name]  # of other virtual GPUs
        os.environ.update({name: value for name, value in environment.items() if name.startswith("VGPU_")})
        os.environ[LIBRARY_VARIABLE] = str(library)
        return True
    return False


def is_read_here(environment: Mapping[str, str]) -> bool:
    """Whether NVML in this process answers for the GPUs of a program started with `environment`.

    Virtual GPUs of several programs have the same UUIDs.
    """
    return environment.get(MACHINE_VARIABLE) == os.environ.get(MACHINE_VARIABLE)


def use_driver_of_process(pid: int) -> bool:
    """As `use_driver_of`, for a running process of this user."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
    except OSError:
        return False
    return use_driver_of(environment_of(pid))
