"""The peak of batches twice as long as any before, from steps that the agent records unasked."""

from __future__ import annotations

import pytest

from tests.bench.shapes import errors, measure
from tests.support.virtual_gpu import require_virtual_gpu

pytestmark = pytest.mark.virtual_gpu


def test_a_gpt_whose_batches_are_of_any_length() -> None:
    """Three steps of other lengths are recorded; they tell twice the length to 2 %, its attention written out."""
    require_virtual_gpu()
    found = measure("GPT, any length", 2)
    assert len(found.recorded) == 3
    assert found.forecast is not None
    assert found.forecast.reason == ""
    allocated, reserved = errors(found)
    assert abs(allocated) < 2
    assert abs(reserved) < 10
    assert (found.forecast.factor or 0) > 1.9


def test_batches_that_vary_in_two_ways_are_refused() -> None:
    """No single size says how their attention grows."""
    require_virtual_gpu()
    found = measure("GPT, any batch and length", 2)
    assert len(found.recorded) == 3
    assert found.forecast is not None
    assert "cannot be told" in found.forecast.reason
