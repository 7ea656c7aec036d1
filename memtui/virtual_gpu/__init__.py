"""Virtual GPUs: torch's real CUDA caching allocator, with no GPU and no driver."""

from __future__ import annotations

from memtui.virtual_gpu.cards import Card, card_for, cards, find_card, profile_for
from memtui.virtual_gpu.errors import VirtualGpuError
from memtui.virtual_gpu.launch import environment
from memtui.virtual_gpu.profile import Profile, profile_of

__all__ = [
    "Card",
    "Profile",
    "VirtualGpuError",
    "card_for",
    "cards",
    "environment",
    "find_card",
    "profile_for",
    "profile_of",
]
