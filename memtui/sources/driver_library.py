"""Which NVML is used."""

from __future__ import annotations

#: Path of another NVML than the system's (the virtual GPU's): loaded first, it answers to the same name.
LIBRARY_VARIABLE = "MEMTUI_NVML_LIBRARY"
