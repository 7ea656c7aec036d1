from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

RunChild = Callable[..., Any]

_SECONDS = 120


@pytest.fixture
def run_child() -> RunChild:
    """Run Python source in a child; returns what it printed last, read as JSON."""

    def run(source: str, environment: Mapping[str, str], *arguments: str, executable: str = sys.executable) -> Any:
        child = subprocess.run(
            [executable, "-c", source, *arguments],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        return json.loads(child.stdout.splitlines()[-1])

    return run
