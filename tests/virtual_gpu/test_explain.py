"""Messages that PyTorch's own allocator prints, explained, against its own figures at that moment."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from memtui.analysis.oom.answer import explain
from memtui.analysis.oom.parse import find_messages
from tests.support.virtual_gpu import virtual_environment

pytestmark = pytest.mark.virtual_gpu

#: Of 2 GiB. Where it is fragmented, each of three freed segments is pinned by a block that fills most of it.
PROGRAM = """
import json, sys, torch

def hold(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")

def impossible():
    hold(4096)

def full():
    kept = [hold(100) for _ in range(18)]
    hold(300)

def cap():
    torch.cuda.set_per_process_memory_fraction(0.25)
    kept = [hold(100) for _ in range(4)]
    hold(400)

def fragmentation():
    freed = [hold(600), hold(600), hold(400)]
    freed.clear()
    kept = [hold(390), hold(350), hold(350)]
    hold(900)

for cause in (impossible, full, fragmentation, cap):
    try:
        cause()
    except torch.OutOfMemoryError as error:
        text = str(error)
        stats, (free, total) = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
        # The frame of the function still holds its blocks: the figures are those of the message.
        allocated, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
        figures = {"free": free, "total": total, "allocated": allocated, "unallocated": reserved - allocated}
        print(json.dumps([cause.__name__, text, figures]), flush=True)
    torch.cuda.empty_cache()
"""


def test_what_the_allocator_prints_is_understood() -> None:
    """GIVEN an error of each cause, THEN the cause, and figures among which the allocator's own are."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=virtual_environment(memory="2GiB"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, _, _ in told] == ["impossible", "full", "fragmentation", "cap"]
    for name, text, figures in told:
        [found] = find_messages(io.BytesIO(text.encode()))
        assert found.message.complete
        assert explain(found.message).cause.kind == name
        for figure, size in figures.items():
            interval = found.message.interval(figure)
            assert interval is not None
            assert interval.low <= size <= interval.high, (name, figure)
