"""Trains a transformer with banks of features as buffers; they are compacted, and the holes serve no large request.

Of a device of 16 GiB. The error is caught, and the program goes on for a while. Knows nothing of memtui.
"""

import argparse
import time

import torch
from torch import nn

MIB = 1 << 20
LETTERS, CONTEXT, WIDTH, BANKS = 64, 512, 1024, 8


class Banked(nn.Module):
    """A transformer with banks of features beside it, one a class."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(LETTERS, WIDTH)
        layers = (nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True) for _ in range(12))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, tokens):
        return self.head(self.layers(self.tokens(tokens)))

    def make_banks(self, mib):
        for place in range(BANKS):
            self.register_buffer(f"bank{place}", None)
        banks = [features(mib) for _ in range(BANKS)]
        for place, bank in enumerate(banks):
            self.register_buffer(f"bank{place}", bank)


def features(mib):
    return torch.empty(mib * MIB // 2, dtype=torch.half, device="cuda")


def train(model, optimizer, steps, pace):
    for _ in range(steps):
        tokens = torch.randint(LETTERS, (6, CONTEXT), device="cuda")
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        time.sleep(pace / 2)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        time.sleep(pace / 2)


def evaluate(model):
    with torch.no_grad():
        model(torch.randint(LETTERS, (1, CONTEXT), device="cuda"))
        return features(4096)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pace", type=float, default=0.8)
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    model = Banked().cuda()
    model.make_banks(1300)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 6, arguments.pace)
    model.make_banks(850)
    train(model, optimizer, 24, arguments.pace)
    try:
        evaluate(model)
    except torch.OutOfMemoryError as error:
        print(error, flush=True)
    time.sleep(arguments.seconds)


main()
