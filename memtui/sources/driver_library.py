"""Which NVML is used."""

from __future__ import annotations

#: Path of another NVML than the system's (the virtual GPU's): loaded first, it answers to the same name.
LIBRARY_VARIABLE = "MEMTUI_NVML_LIBRARY"
#: Which virtual GPUs it tells of: those of all programs with the same value.
MACHINE_VARIABLE = "VGPU_SHM"
