"""Two training steps of one of torchvision's classification models: `vision.py MODEL [BATCH]`."""

import sys

import torch
from torch.nn import functional
from torchvision.models import get_model


def main():
    name, batch = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
    side = 299 if name == "inception_v3" else 224
    model = get_model(name, weights=None, num_classes=100).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        pictures = torch.randn(batch, 3, side, side).to("cuda")
        labels = torch.randint(0, 100, (batch,)).to("cuda")
        outputs = model(pictures)
        # GoogLeNet and Inception have classifiers on the way, which train with the last one.
        logits = outputs if isinstance(outputs, torch.Tensor) else outputs.logits
        loss = functional.cross_entropy(logits, labels)
        for auxiliary in () if logits is outputs else outputs[1:]:
            loss = loss + 0.3 * functional.cross_entropy(auxiliary, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("peak", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
