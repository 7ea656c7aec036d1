"""A small transformer's training that keeps, or gives back, what one kind of training does; every step is read.

    leaks.py KIND

Without a kind prints all there are: those that leak begin with "leak".
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any, Callable

import torch
from torch import nn
from torch.nn import functional

from memtui.examples.gpt import GPT

STEPS = 240
_WIDTH, _CONTEXT, _BATCH, _VOCABULARY = 192, 128, 4, 2048
#: A viewer that has frames to itself loses none at this rate.
_STEP_SECONDS = 0.02
_chance = random.Random(5)


class Training:
    """What all kinds have; a kind overrides what it does otherwise."""

    def __init__(self) -> None:
        self.model: nn.Module = GPT(_VOCABULARY, 2, _WIDTH, 6, _CONTEXT).cuda()
        self.kept: list[Any] = []
        self.scores: Any = None
        self.prepare()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def prepare(self) -> None:
        """Before the optimizer is made."""

    def length(self, _step: int) -> int:
        """Of the step's sequences."""
        return _CONTEXT

    def loss(self, step: int) -> torch.Tensor:
        """Forward; the scores stay in a variable till the next, as they do in most scripts."""
        tokens = torch.randint(0, _VOCABULARY, (_BATCH, self.length(step)), device="cuda")
        self.scores = self.model(tokens)
        return functional.cross_entropy(self.scores.flatten(0, 1), tokens.flatten())

    def step(self, step: int) -> None:
        """One step."""
        loss = self.loss(step)
        self.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.after(step, loss)

    def backward(self, loss: torch.Tensor) -> None:
        """Its backward pass."""
        loss.backward()

    def after(self, step: int, loss: torch.Tensor) -> None:
        """What it keeps or gives back."""


class WarmUp(Training):
    """Experts that are used by chance, and get gradients and optimizer state when they are for the first time."""

    def prepare(self) -> None:
        self.experts = nn.ModuleList(nn.Linear(_WIDTH, 64) for _ in range(24)).cuda()
        self.model.experts = self.experts

    def loss(self, step: int) -> torch.Tensor:
        used = [expert for expert in self.experts if _chance.random() < 0.04]
        inputs = torch.randn(8, _WIDTH, device="cuda")
        return super().loss(step) + sum((expert(inputs).mean() for expert in used), torch.zeros((), device="cuda"))


class Lengths(Training):
    """Sequences of any length, with a list of targets of any number."""

    def length(self, _step: int) -> int:
        return _chance.randrange(8, _CONTEXT + 1)

    def after(self, step: int, loss: torch.Tensor) -> None:
        self.kept = [torch.zeros(16, 4, device="cuda") for _ in range(_chance.randrange(2, 12))]


class Evaluation(Training):
    """Every 25 steps; the first leaves its metrics, each keeps its predictions till the next."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        if step % 25 != 24:
            return
        self.model.eval()
        with torch.no_grad():
            predictions = [
                self.model(torch.randint(0, _VOCABULARY, (_BATCH, _CONTEXT), device="cuda")).argmax(-1)
                for _ in range(_chance.randrange(3, 9))
            ]
        self.model.train()
        metrics = self.kept[:12] or [torch.zeros(64, 64, device="cuda") for _ in range(12)]
        self.kept = metrics + predictions


class Fragmenting(Training):
    """Tensors of odd sizes that live for some steps."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        self.kept = [(end, held) for end, held in self.kept if end > step]
        for _ in range(_chance.randrange(4)):
            size = _chance.randrange(1, 400_000)
            self.kept.append((step + _chance.randrange(1, 12), torch.empty(size, device="cuda")))


class Checkpoint(Training):
    """Every 40 steps a copy of the parameters, held for some steps."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        if step % 40 == 39:
            self.kept = [each.detach().clone() for each in self.model.parameters()]
        elif step % 40 == 3:
            self.kept = []


class Logging(Training):
    """Losses are kept, and cleared every 50 steps; scores every 20."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        if step % 50 == 0:
            self.kept = []
        if step % 20 == 0:
            self.outputs: list[Any] = []
        self.kept.append(loss.detach())
        self.outputs.append(self.scores.detach())


class Cycles(Training):
    """Scores in cycles, which Python's collector finds in its own time."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        cycle: list[Any] = [self.scores.detach().clone()]
        cycle.append(cycle)


class Curriculum(Training):
    """Sequences that grow from step to step."""

    def length(self, step: int) -> int:
        return 8 + (_CONTEXT - 8) * step // STEPS


class LateWorkspace(Training):
    """From one step on something is computed on a stream of its own, which gets a workspace of cuBLAS for good."""

    def prepare(self) -> None:
        self.stream = torch.cuda.Stream()
        self.square = torch.ones(64, 64, device="cuda")

    def after(self, step: int, loss: torch.Tensor) -> None:
        if step >= 99:
            with torch.cuda.stream(self.stream):
                self.square @ self.square


class LeakLosses(Training):
    """Losses are kept for a plot."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        self.kept.append(loss.detach())


class LeakGraphs(Training):
    """Losses are kept with their graphs."""

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward(retain_graph=True)

    def after(self, step: int, loss: torch.Tensor) -> None:
        self.kept.append(loss)


class LeakActivations(Training):
    """Scores are kept."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        self.kept.append(self.scores.detach())


class LeakReplay(Training):
    """A buffer of samples with no end, of any number a step."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        self.kept += [torch.randn(_chance.randrange(64, 4096), device="cuda") for _ in range(_chance.randrange(1, 5))]


class LeakHooks(Training):
    """Another hook at every step, each with the outputs of its first call."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        held: list[Any] = []

        def hook(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            if not held:
                held.append(output.detach().clone())

        if step % 2 == 0:
            next(self.model.children()).register_forward_hook(hook)


class LeakEvaluations(Training):
    """What an evaluation finds is kept, every 8 steps."""

    def after(self, step: int, loss: torch.Tensor) -> None:
        if step % 8 == 7:
            with torch.no_grad():
                scores = self.model(torch.randint(0, _VOCABULARY, (_BATCH, _CONTEXT), device="cuda"))
            self.kept += [scores, scores.argmax(-1)]


KINDS: dict[str, Callable[[], Training]] = {
    "steady": Training,
    "warm-up": WarmUp,
    "variable batches": Lengths,
    "evaluation spikes": Evaluation,
    "fragmenting": Fragmenting,
    "checkpoints": Checkpoint,
    "logs that are cleared": Logging,
    "cycles": Cycles,
    "curriculum": Curriculum,
    "a workspace that stays": LateWorkspace,
    "leak: losses": LeakLosses,
    "leak: graphs": LeakGraphs,
    "leak: activations": LeakActivations,
    "leak: replay buffer": LeakReplay,
    "leak: hooks": LeakHooks,
    "leak: evaluations": LeakEvaluations,
}


def main() -> None:
    """Trains."""
    if len(sys.argv) < 2:
        print("\n".join(KINDS))
        return
    readings = sys.modules["_memtui_agent_of_this_process"].agent.observer.readings  # type: ignore[attr-defined]
    readings.due = lambda _now_ns: True
    training = KINDS[sys.argv[1]]()
    for step in range(STEPS):
        begun = time.monotonic()
        training.step(step)
        time.sleep(max(0.0, begun + _STEP_SECONDS - time.monotonic()))


if __name__ == "__main__":
    main()
