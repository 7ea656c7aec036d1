"""Virtual GPUs: torch's real CUDA caching allocator, with no GPU and no driver."""

from __future__ import annotations

from memtui.virtual_gpu.errors import VirtualGpuError
from memtui.virtual_gpu.launch import environment
from memtui.virtual_gpu.profile import Profile, profile_of

__all__ = ["Profile", "VirtualGpuError", "environment", "profile_of"]
