"""One training of a published network; prints the device's bytes in use and the allocator's peak as JSON.

Arguments: the network, its classes, images a batch, their side, the optimizer. As the measured script: two images
through the network first, three steps, two batches of validation.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import nn


def _network(name: str, classes: int) -> Any:
    if name == "xception":
        import timm

        return timm.create_model("legacy_xception", num_classes=classes)
    import torchvision.models

    options = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    return getattr(torchvision.models, name)(weights=None, num_classes=classes, **options)


def _batch(count: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(count, 3, side, side, device="cuda"), torch.zeros(count, dtype=torch.long, device="cuda")


def main(name: str, classes: int, count: int, side: int, optimizer_name: str) -> None:
    """Train, and print."""
    with torch.device("cuda"):
        network = _network(name, classes)
    with torch.no_grad():
        network(torch.empty(2, 3, side, side, device="cuda"))
    optimizer = getattr(torch.optim, optimizer_name)(network.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    network.train()
    for _ in range(3):
        images = labels = None  # a loader's next batch is on the host before it is on the device
        images, labels = _batch(count, side)
        optimizer.zero_grad()
        outputs = network(images)
        loss = loss_of(outputs, labels)
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        for _ in range(2):
            images = labels = None
            images, labels = _batch(count, side)
            outputs = network(images)
            loss = loss_of(outputs, labels)
    free, total = torch.cuda.mem_get_info()
    print(json.dumps([total - free, torch.cuda.max_memory_allocated()]))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5])
