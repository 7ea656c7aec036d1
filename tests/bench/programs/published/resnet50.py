"""ResNet-50 (torchvision's by its description): a forward and a backward pass in training mode."""

from __future__ import annotations

import sys

import torch
from figures import on_device, say
from torch import nn
from torch.nn import functional


def convolution(given: int, out: int, size: int = 1, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, and its batch norm."""
    return nn.Sequential(nn.Conv2d(given, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out))


class Bottleneck(nn.Module):
    """Three convolutions and a residual."""

    def __init__(self, given: int, narrow: int, stride: int) -> None:
        super().__init__()
        out = 4 * narrow
        self.first = convolution(given, narrow)
        self.second = convolution(narrow, narrow, 3, stride)
        self.third = convolution(narrow, out)
        self.relu = nn.ReLU(inplace=True)
        self.beside = convolution(given, out, 1, stride) if stride != 1 or given != out else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, channels, height, width)."""
        out = self.relu(self.first(x))
        out = self.relu(self.second(out))
        out = self.third(out)
        out += x if self.beside is None else self.beside(x)
        return self.relu(out)


def resnet50() -> nn.Module:
    """The network."""
    blocks: list[nn.Module] = []
    given = 64
    for narrow, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for place in range(count):
            blocks.append(Bottleneck(given, narrow, 1 if place else stride))
            given = 4 * narrow
    start = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def main() -> None:
    """Two passes."""
    batch = int(sys.argv[1])
    model = on_device(resnet50)
    images = torch.zeros(batch, 3, 224, 224, device="cuda")
    targets = torch.zeros(batch, dtype=torch.long, device="cuda")
    for _ in range(2):
        model.zero_grad()
        functional.cross_entropy(model(images), targets).backward()
    say()


if __name__ == "__main__":
    main()
