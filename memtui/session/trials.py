"""What is known of optimizers from before their first step: how each was made, and what trying it out has shown."""

from __future__ import annotations

from typing import Optional

from memtui.wire.frames import Model, Optimizer, Recipe

from .readings import OptimizerTrial


class Trials:
    """Of one process. Later descriptions of an optimizer leave its recipe out."""

    def __init__(self) -> None:
        self._trials: dict[tuple[str, str, int], OptimizerTrial] = {}
        self._recipes: dict[tuple[str, int], Recipe] = {}

    def described(self, model: Model) -> None:
        """Takes in what the agent says of the optimizers."""
        for optimizer in model.optimizers:
            if optimizer.recipe is not None:
                self._recipes[optimizer.name, optimizer.trainable_parameters] = optimizer.recipe

    def tried(self, trial: OptimizerTrial) -> None:
        """Takes in what an optimizer's first steps will take."""
        name = trial.where.rpartition(":")[2].rpartition(".")[2]
        self._trials[name, trial.device, trial.trainable_bytes] = trial

    def trial(self, optimizer: Optimizer, device: str) -> Optional[OptimizerTrial]:
        """What was found of this optimizer before its first step; None where it was not tried."""
        return self._trials.get((optimizer.name, device, optimizer.trainable_bytes.get(device, 0)))

    def recipe(self, optimizer: Optimizer) -> Optional[Recipe]:
        """As it was before its first step; None where that was not told."""
        return self._recipes.get((optimizer.name, optimizer.trainable_parameters))

    def copy(self) -> Trials:
        """Another one, with what is known now."""
        twin = Trials()
        twin._trials, twin._recipes = dict(self._trials), dict(self._recipes)
        return twin
