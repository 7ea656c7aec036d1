"""A small transformer in plain PyTorch, with the ways to save memory that people reach for."""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LENGTH = 8000, 256, 256


class Transformer(nn.Module):
    """Six layers over tokens."""

    def __init__(self, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True, norm_first=True) for _ in range(6)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()

    model = Transformer(options.checkpoint).to("cuda")
    run = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=options.fp16)
    for _ in range(options.steps):
        for _ in range(options.accumulate):
            tokens = torch.randint(0, VOCABULARY, (options.batch_size, LENGTH)).to("cuda")
            with torch.autocast("cuda", torch.float16, enabled=options.fp16):
                logits = run(tokens)
                loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()) / options.accumulate
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    print("peak", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
