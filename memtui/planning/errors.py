"""The one exception of this package."""

from __future__ import annotations


class PlanningError(Exception):
    """A plan cannot be made as asked: one line of what is wrong, and one of how to mend it."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem} ({fix})")
        self.problem = problem
        self.fix = fix
