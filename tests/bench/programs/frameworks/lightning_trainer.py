"""A small classifier trained by Lightning, with a validation loop, on made-up pictures."""

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """Three convolutions and a linear layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, 10),
        )

    def training_step(self, batch, index):
        pictures, labels = batch
        loss = functional.cross_entropy(self.layers(pictures), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        pictures, labels = batch
        self.log("validation_loss", functional.cross_entropy(self.layers(pictures), labels))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def pictures(count):
    return TensorDataset(torch.randn(count, 3, 64, 64), torch.randint(0, 10, (count,)))


def main():
    trainer = lightning.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False)
    trainer.fit(
        Classifier(),
        DataLoader(pictures(640), batch_size=64, shuffle=True),
        DataLoader(pictures(128), batch_size=64),
    )
    print("peak", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
