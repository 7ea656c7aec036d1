"""Optimizers as other packages have them: 8-bit with block scales, factored, one whose step needs a closure."""

from __future__ import annotations

from typing import Any, Callable

import torch


class Blockwise(torch.optim.Optimizer):
    """Moments of 8 bits, and a scale for each block of them; small parameters keep theirs in full."""

    def __init__(self, parameters: Any, lr: float = 1e-3, block: int = 256) -> None:
        super().__init__(parameters, {"lr": lr})
        self.block = block

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Once."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    small = parameter.numel() < 4 * self.block
                    dtype = torch.float32 if small else torch.uint8
                    for name in ("first", "second"):
                        state[name] = torch.zeros(parameter.shape, dtype=dtype, device=parameter.device)
                        if not small:
                            blocks = -(-parameter.numel() // self.block)
                            state[f"{name}_scale"] = torch.ones(blocks, device=parameter.device)
                moved = state["first"].float() * 0.9 + parameter.grad
                parameter.add_(moved, alpha=-group["lr"])


class Factored(torch.optim.Optimizer):
    """A row and a column of second moments for matrices, all of them for the rest; a total for each layer."""

    def __init__(self, parameters: Any, lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Once."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state, squared = self.state[parameter], parameter.grad.square()
                if parameter.ndim == 2:
                    state["row"], state["column"] = squared.mean(1), squared.mean(0)
                else:
                    state["all"] = squared
                state["layer"] = {"total": squared.sum(), "history": [squared.mean()]}
                parameter.add_(parameter.grad * squared.mean().rsqrt(), alpha=-group["lr"])


class Asking(torch.optim.Optimizer):
    """Evaluates the loss once more from a moved place, as sharpness-aware minimisation does."""

    def __init__(self, parameters: Any, lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:
        """Once."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["before"] = parameter.clone()
                parameter.add_(parameter.grad, alpha=0.05)
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.copy_(self.state[parameter]["before"])
                parameter.add_(parameter.grad, alpha=-group["lr"])
        return loss
