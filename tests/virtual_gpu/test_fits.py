"""Would so many bytes fit: the answer, by the message that an agent sends, against what torch's allocator then does."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tests.support import programs
from tests.support.fits import answered

pytestmark = pytest.mark.virtual_gpu

STATES = 40


@pytest.mark.parametrize(
    "settings",
    ["", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4"],
)
def test_the_prompt_agrees_with_the_allocator(settings: str, tmp_path: pathlib.Path) -> None:
    """GIVEN random states, some with a cap, another process or private pools, THEN each answer is what happens.

    Only at the edge of an expandable segment, whose range of addresses torch does not tell, is it left open.
    """
    program = ("-m", "tests.bench.programs.fits", "7000", str(STATES), str(tmp_path))
    done = subprocess.run(
        [sys.executable, *program],
        cwd=pathlib.Path(__file__).parents[2],
        env=programs.plain_environment()
        | programs.virtual_gpu.virtual_environment()
        | {"PYTORCH_CUDA_ALLOC_CONF": settings},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = list(answered(tmp_path))
    assert len(found) > 4 * STATES
    assert [each for each in found if not (each.succeeds and each.largest_holds)] == []
    assert sum(each.unsure for each in found) <= (STATES // 2 if "expandable" in settings else 0)
    assert {each.real for each in found} == {"cache", "driver", "returned", "no"}
    for kind in ("capped", "shared", "private"):
        assert any(getattr(each, kind) for each in found), kind
