"""What the far end reads of a process without psutil is what psutil reads."""

from __future__ import annotations

import os
import subprocess
import sys

from memtui.relay.process import ProcessReader
from memtui.sources.host import HostSource


def test_this_process() -> None:
    there, here = ProcessReader(os.getpid()).read(), HostSource(os.getpid()).read()
    assert (there.alive, there.zombie, there.stopped, there.reason) == (True, False, False, "")
    for name in ("cmdline", "user", "name", "total_bytes", "limit_bytes"):
        assert getattr(there, name) == getattr(here, name), name
    assert there.created_s is not None
    assert here.created_s is not None
    assert abs(there.created_s - here.created_s) < 1
    for one, other in ((there.rss_bytes, here.rss_bytes), (there.file_bytes, here.file_bytes)):
        assert one is not None
        assert other is not None
        assert abs(one - other) < 32 << 20


def test_a_process_that_ends() -> None:
    """A zombie is not alive, and a pid that is given out again is another process."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    reader = ProcessReader(child.pid)
    assert reader.read().alive
    assert not ProcessReader(child.pid, started=1).read().alive
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    dead = reader.read()
    assert (dead.alive, dead.zombie, dead.rss_bytes) == (False, True, None)
    child.communicate()
    assert not reader.read().alive
