"""Torch's CUDA caching allocator, simulated: what it would reserve, and what would fit. Knows no torch."""
