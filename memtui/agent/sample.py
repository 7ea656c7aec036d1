"""What is left at a boundary for the agent's thread to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .looks import Look
from .readings import Reading


@dataclass
class Sample:
    """Everything read at a boundary."""

    time_ns: int
    boundary: str
    step: int
    phase: str
    phase_since_ns: int
    step_since_ns: Optional[int]
    last_step_ns: Optional[int]
    readings: list[Reading]
    looks: dict[str, Look]
