"""A vision transformer (torchvision's `vit_l_16` by its description) in training; its points are marked as it goes.

The loop keeps the last batch, scores and loss alive into the next step, and an evaluation follows the training.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

import torch
from figures import on_device, say, tracked
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, PATCH, PIXELS = 1024, 16, 24, 16, 224
PLACES = (PIXELS // PATCH) ** 2 + 1


class Block(nn.Module):
    """Attention and a feed-forward layer, each with its residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Of (batch, places, width) to the same shape."""
        x = self.norm_attention(given)
        x, _ = self.attention(x, x, x, need_weights=False)
        x = x + given
        return x + self.feed(self.norm_feed(x))


class Vit(nn.Module):
    """Patches, a class token, blocks, and a head on the class token."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(torch.zeros(1, PLACES, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of (batch, classes) for images of (batch, 3, 224, 224)."""
        count = images.shape[0]
        x = self.patches(images).reshape(count, WIDTH, PLACES - 1).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(count, -1, -1), x], dim=1)
        x = self.norm(self.blocks(x + self.places))
        return self.head(x[:, 0])


class AdamOfTwoTemporaries(torch.optim.Optimizer):
    """torch's Adam over all parameters at once, as it was until July 2023: two more copies of them live in a step.

    Until pull requests 104898 and following of torch, the denominators were not made in the roots' own place.
    """

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Once."""
        parameters = [one for one in self.param_groups[0]["params"] if one.grad is not None]
        for one in parameters:
            if not self.state[one]:
                self.state[one].update({name: torch.zeros_like(one) for name in ("first", "second")})
        grads = [one.grad for one in parameters]
        first, second = ([self.state[one][name] for one in parameters] for name in ("first", "second"))
        torch._foreach_mul_(first, 0.9)
        torch._foreach_add_(first, grads, alpha=0.1)
        torch._foreach_mul_(second, 0.999)
        torch._foreach_addcmul_(second, grads, grads, 0.001)
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, 0.03)
        denominators = torch._foreach_add(roots, 1e-8)
        torch._foreach_addcdiv_(parameters, first, denominators, value=-self.param_groups[0]["lr"])


def step_in_backward(model: nn.Module) -> None:
    """Each parameter has an Adam of its own, which steps as soon as its gradient is there and drops it."""
    each = {parameter: torch.optim.Adam([parameter], foreach=False) for parameter in model.parameters()}

    def run(parameter: torch.Tensor) -> None:
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(run)


def make(arguments: argparse.Namespace) -> Any:
    """The model, its optimizer, and what makes a step."""
    model = on_device(
        lambda: Vit(arguments.classes), torch.bfloat16 if arguments.precision == "bf16" else torch.float32
    )
    mixed = arguments.precision == "16-mixed"
    scaler = torch.cuda.amp.GradScaler(enabled=mixed)
    adam: Any = AdamOfTwoTemporaries if arguments.two_temporaries else torch.optim.Adam
    optimizer = adam(model.parameters(), lr=5e-5)
    images = torch.zeros(arguments.batch, 3, PIXELS, PIXELS)
    targets = torch.zeros(arguments.batch, dtype=torch.long)
    state: dict[str, Any] = {"place": 0}

    def forward() -> None:
        if arguments.drop_batch:  # the loop's variables are the host's new batch before that goes to the device
            state["images"] = state["targets"] = None
        state["images"] = images.to("cuda")
        state["targets"] = targets.to("cuda")
        precision = torch.autocast("cuda", torch.float16) if mixed else contextlib.nullcontext()
        with precision:
            given = state["images"].to(torch.bfloat16) if arguments.precision == "bf16" else state["images"]
            state["scores"] = model(given)
        if arguments.precision != "fp32":
            state["scores"] = state["scores"].float()

    def step() -> None:
        forward()
        state["loss"] = functional.cross_entropy(state["scores"], state["targets"]) / arguments.accumulate
        if arguments.accumulate == 1:
            optimizer.zero_grad()
        scaler.scale(state["loss"]).backward()
        if state["place"] % arguments.accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            if arguments.accumulate > 1:
                optimizer.zero_grad()
        state["place"] += 1

    def step_without_optimizer() -> None:
        forward()
        state["scores"].sum().backward()

    if arguments.in_backward:
        del optimizer
        step_in_backward(model)
        return model, None, step_without_optimizer, forward
    return model, optimizer, step, forward


def main() -> None:
    """Trains, or has the steps tracked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("fp32", "16-mixed", "bf16"), default="fp32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4)
    for name in ("in-backward", "two-temporaries", "drop-batch", "tracker"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    if arguments.tracker:
        tracked(lambda: make(arguments)[:3])
        return
    model, optimizer, step, forward = make(arguments)
    parameters = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    for _ in range(arguments.steps):
        step()
    state = 0
    if optimizer is not None:
        tensors = [value for one in optimizer.state.values() for value in one.values() if torch.is_tensor(value)]
        state = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.is_cuda)
    model.eval()
    with torch.no_grad():
        forward()
    say(parameters=parameters, optimizer_state=state)


if __name__ == "__main__":
    main()
