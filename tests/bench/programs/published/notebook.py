"""A notebook's networks, trained one after the other in one process: a small CNN, VGG-16 with batch norm, ResNet-50.

Nothing is deleted in between, so each one's peak is above the weights and gradients that those before it left; the
cache is emptied and peaks begin anew. Each has been summarised before it trains, by a pass without gradients, which
leaves it on the device. torchvision's networks are by their description, with ten classes.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from figures import on_device, say, tracked
from torch import nn
from torch.nn import functional

BATCH, PIXELS, CLASSES, STEPS = 128, 224, 10, 3
NARROW_TO_WIDE = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)


def cnn() -> nn.Module:
    """One convolution, one pooling, one linear layer."""
    side = (PIXELS - 2) // 2
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AvgPool2d(2, 2), nn.Flatten(), nn.Linear(8 * side * side, CLASSES))


def vgg16() -> nn.Module:
    """The network; a width of 0 is a pooling."""
    layers: list[nn.Module] = []
    given = 3
    for width in NARROW_TO_WIDE:
        if width:
            layers += [nn.Conv2d(given, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            given = width
        else:
            layers.append(nn.MaxPool2d(2, 2))
    end: list[nn.Module] = [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for size in (512 * 7 * 7, 4096):
        end += [nn.Linear(size, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, *end, nn.Linear(4096, CLASSES))


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
    return nn.Sequential(*start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, CLASSES))


def summarise(model: nn.Module) -> None:
    """What a summary runs."""
    model.eval()
    with torch.no_grad():
        model(torch.rand(BATCH, 3, PIXELS, PIXELS, device="cuda"))
    model.train()


def trained(model: nn.Module) -> Any:
    """The model, its optimizer, and a step; what a step made lives until the next one makes it anew."""
    given, wanted = torch.zeros(BATCH, 3, PIXELS, PIXELS), torch.zeros(BATCH, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state: dict[str, torch.Tensor] = {}

    def step() -> None:
        state["images"], state["targets"] = given, wanted  # the ones before are gone when these come to the device
        state["images"] = given.to("cuda")
        state["targets"] = wanted.to("cuda")
        optimizer.zero_grad()
        state["scores"] = model(state["images"])
        state["loss"] = functional.cross_entropy(state["scores"], state["targets"])
        state["loss"].backward()
        optimizer.step()

    return model, optimizer, step


def train(model: nn.Module) -> int:
    """The peak of allocated bytes."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    _, _, step = trained(model)
    for _ in range(STEPS):
        step()
    return torch.cuda.max_memory_allocated()


def after_others() -> Any:
    """ResNet-50 and the networks before it, which have been trained; its optimizer, and a step."""
    before = [on_device(network) for network in (cnn, vgg16)]
    for model in before:
        trained(model)[2]()
    last, optimizer, step = trained(on_device(resnet50))
    return [last, *before], optimizer, step


def main() -> None:
    """Each one's peak; or has ResNet-50 tracked, with what those before it left."""
    if "--tracker" in sys.argv:
        tracked(after_others)
        return
    kept: list[Any] = []
    peaks = {}
    for network in (cnn, vgg16, resnet50):
        model = on_device(network)
        kept.append(model)
        if network is not cnn:  # which trains before it is summarised
            summarise(model)
        peaks[network.__name__] = train(model)
        if network is cnn:
            summarise(model)
    say(**peaks)


if __name__ == "__main__":
    main()
