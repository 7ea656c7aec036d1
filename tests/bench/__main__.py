"""Runs the benchmarks that are named, or all, and prints a table; 1 where a bar is missed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from .report import Line, Skipped, heading, render

#: In the order of their cost; each module has a `bench` that yields lines.
NAMES = (
    "startup",
    "estimates",
    "messages",
    "attaching",
    "chart",
    "install",
    "children",
    "viewer",
    "ranks",
    "watch",
    "serve",
    "printing",
    "memory",
    "looks",
    "record",
    "whatif",
    "snapshots",
    "categories",
    "steps",
    "forecasts",
    "shapes",
    "allocator",
    "fits",
    "injections",
    "frameworks",
    "convolutions",
    "published",
    "plans",
    "leaks",
)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args().names or NAMES
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors", flush=True)
    print(heading(), flush=True)
    missed = 0
    for name in names:
        module = importlib.import_module(f"{__package__}.{name}")
        try:
            for line in module.bench():
                print(render(name, line), flush=True)
                missed += line.met is False
        except Skipped as reason:
            print(render(name, Line("skipped", str(reason))), flush=True)
    print(f"{missed} missed" if missed else "all met", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
