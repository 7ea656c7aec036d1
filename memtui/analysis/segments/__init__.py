"""The allocator's address space: what lies where, what pins what, and what would fit."""
