"""BERT-large in fine-tuning, 512 tokens a sequence, as a library's trainer does it: gradients are clipped each step.

Of elementary attention; the device's own figure is of the moment when training is over, nothing of it emptied.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from typing import Any

import torch
from figures import begin_pass, on_device, say, tracked
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, HEADS, LAYERS, SEQUENCE = 30522, 1024, 16, 24, 512


class OldSoftmax(torch.autograd.Function):
    """Softmax of the last dimension that keeps its input too for backward, as torch before 1.12 does."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
        """Of any shape to the same."""
        weights = functional.softmax(scores, dim=-1)
        ctx.save_for_backward(scores, weights)
        return weights

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Of the result's shape to the same."""
        scores, weights = ctx.saved_tensors
        return torch._softmax_backward_data(grad, weights, -1, scores.dtype)


class Attention(nn.Module):
    """Attention with an additive mask, and its residual."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout_weights, self.dropout = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Of (batch, tokens, width) to the same shape."""
        made = query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = (one.view(*one.shape[:2], HEADS, -1).permute(0, 2, 1, 3) for one in made)
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / math.sqrt(WIDTH // HEADS)
        scores = scores + mask
        weights = OldSoftmax.apply(scores)
        weights = self.dropout_weights(weights)
        found = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous()
        return self.norm(self.dropout(self.out(found.view(x.shape))) + x)


class Block(nn.Module):
    """Attention and a feed-forward layer; norms come after."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.wide, self.back = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm, self.dropout = nn.LayerNorm(WIDTH, eps=1e-12), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Of (batch, tokens, width) to the same shape."""
        attended = self.attention(x, mask)
        return self.norm(self.dropout(self.back(functional.gelu(self.wide(attended)))) + attended)


class Bert(nn.Module):
    """The encoder, a pooler and a head for two classes."""

    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(count, WIDTH) for count in (VOCABULARY, SEQUENCE, 2))
        self.norm, self.dropout = nn.LayerNorm(WIDTH, eps=1e-12), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.pooler, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.checkpointed = checkpointed

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of (batch, 2)."""
        mask = torch.zeros(tokens.shape[0], 1, 1, SEQUENCE, device=tokens.device)
        places = torch.arange(SEQUENCE, device=tokens.device)[None]
        x = self.words(tokens) + self.kinds(torch.zeros_like(tokens)) + self.places(places)
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=True) if self.checkpointed else block(x, mask)
        return self.head(self.dropout(torch.tanh(self.pooler(x[:, 0]))))


class Adam(torch.optim.Optimizer):
    """Parameter by parameter, of in-place operations; with `byte_state`, moments are of a byte an element."""

    def __init__(self, parameters: Any, byte_state: bool) -> None:
        super().__init__(parameters, {"lr": 5e-5})
        self.byte_state = byte_state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Once."""
        for parameter in self.param_groups[0]["params"]:
            grad, state = parameter.grad, self.state[parameter]
            in_bytes = self.byte_state and parameter.numel() >= 4096
            if not state:
                state["first"], state["second"] = (
                    torch.zeros_like(parameter, dtype=torch.uint8 if in_bytes else None) for _ in range(2)
                )
                if in_bytes:  # a scale for each 2,048 elements of each moment
                    blocks = -(-parameter.numel() // 2048)
                    state["scales"] = [torch.zeros(blocks, device=parameter.device) for _ in range(2)]
            if in_bytes:
                continue  # one kernel, which allocates nothing
            state["first"].mul_(0.9).add_(grad, alpha=0.1)
            state["second"].mul_(0.999).addcmul_(grad, grad, value=0.001)
            parameter.addcdiv_(state["first"], state["second"].sqrt().add_(1e-8), value=-5e-5)


class Adafactor(torch.optim.Optimizer):
    """Second moments of rows and columns alone."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 5e-5})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Once."""
        for parameter in self.param_groups[0]["params"]:
            grad, state = parameter.grad.float(), self.state[parameter]
            update = grad**2 + 1e-30
            if grad.dim() > 1:
                if not state:
                    state["rows"], state["columns"] = grad.new_zeros(grad.shape[0]), grad.new_zeros(grad.shape[1])
                state["rows"].mul_(0.9).add_(update.mean(dim=-1), alpha=0.1)
                state["columns"].mul_(0.9).add_(update.mean(dim=-2), alpha=0.1)
                rows = (state["rows"] / state["rows"].mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
                update = torch.mul(rows, state["columns"].unsqueeze(-2).rsqrt())
                update.mul_(grad)
            else:
                if not state:
                    state["second"] = torch.zeros_like(grad)
                state["second"].mul_(0.9).add_(update, alpha=0.1)
                update = state["second"].rsqrt().mul_(grad)
            update.div_((update.norm(2) / math.sqrt(update.numel())).clamp_(min=1.0))
            parameter.add_(-update)


def make(arguments: argparse.Namespace) -> Any:
    """The model, its optimizer, and what makes a step."""
    model = on_device(lambda: Bert(arguments.checkpointed))
    model.train()
    if arguments.optimizer == "adafactor":
        optimizer: Any = Adafactor(model.parameters())
    else:
        optimizer = Adam(model.parameters(), arguments.optimizer == "adam8bit")
    scaler = torch.cuda.amp.GradScaler(enabled=arguments.fp16)
    tokens, targets = torch.zeros(arguments.batch, SEQUENCE, dtype=torch.long), torch.zeros(arguments.batch).long()

    def step() -> None:
        for _ in range(arguments.accumulate):
            begin_pass()
            given, right = tokens.to("cuda"), targets.to("cuda")
            with torch.autocast("cuda", torch.float16) if arguments.fp16 else contextlib.nullcontext():
                scores = model(given)
                loss = functional.cross_entropy(scores, right)
            loss = loss / arguments.accumulate
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad(set_to_none=arguments.drop_gradients)

    return model, optimizer, step


def main() -> None:
    """Trains, or has the steps tracked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", choices=("adam", "adafactor", "adam8bit"), default="adam")
    for name, default in (("batch", 4), ("accumulate", 1), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("fp16", "checkpointed", "drop-gradients", "tracker"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    if arguments.tracker:
        tracked(lambda: make(arguments))
        return
    _, _, step = make(arguments)
    free, total = torch.cuda.mem_get_info()
    loaded = total - free
    for _ in range(arguments.steps):
        step()
    say(loaded=loaded)


if __name__ == "__main__":
    main()
