"""Programs that the benchmarks run as children."""
