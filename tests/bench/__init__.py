"""Benchmarks against the numbers that memtui holds: `python -m tests.bench [NAME ...]`."""
