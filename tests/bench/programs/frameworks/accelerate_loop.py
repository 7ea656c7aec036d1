"""A loop of one's own with accelerate: mixed precision and gradients accumulated over four batches."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    model = nn.Sequential(nn.Linear(512, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = DataLoader(TensorDataset(torch.randn(4000, 512), torch.randint(0, 10, (4000,))), batch_size=64, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)

    for inputs, labels in data:
        with accelerator.accumulate(model):
            loss = functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print("peak", torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    main()
