"""Trials of optimizers for several ranks: what one of them was told holds for the others that have the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memtui.session.readings import OptimizerTrial
from memtui.wire.frames import Optimizer

from .optimizer_trials import OptimizerTrials

Hear = Callable[[OptimizerTrial], None]
_Key = tuple[str, int]  # module:class, bytes of the parameters


class SharedTrials:
    """Each class with so many bytes of parameters is tried once, whichever device a rank has them on."""

    def __init__(self) -> None:
        self.known: dict[_Key, OptimizerTrial] = {}
        self.waiting: dict[_Key, list[tuple[str, Hear]]] = {}

    def of_rank(self, hear: Hear) -> OptimizerTrials:
        """The trials of one rank; `hear` gets what came of them."""
        return _OfRank(hear, self)


class _OfRank(OptimizerTrials):
    def __init__(self, hear: Hear, shared: SharedTrials) -> None:
        super().__init__(hear)
        self._hear_own, self._shared = hear, shared

    def begin(self, pid: int, executable: str, optimizer: Optimizer, device: str) -> None:
        assert optimizer.recipe is not None  # else it is not tried
        key = optimizer.recipe.where, optimizer.trainable_bytes.get(device, 0)
        if key in self._shared.known:
            self._hear_own(replace(self._shared.known[key], device=device))
            return
        waiting = self._shared.waiting.setdefault(key, [])
        waiting.append((device, self._hear_own))
        if len(waiting) == 1:
            super().begin(pid, executable, optimizer, device)

    def tell(self, trial: OptimizerTrial) -> None:
        key = trial.where, trial.trainable_bytes
        self._shared.known[key] = trial
        for device, hear in self._shared.waiting.pop(key, []):
            hear(replace(trial, device=device))
