"""A training step with CUDA graphs: `cuda_graphs.py callables` graphs the model, `step` the whole step."""

import sys

import torch
from torch import nn
from torch.nn import functional


def main():
    whole = sys.argv[1:] == ["step"]
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 100))
    model.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=whole)
    inputs = torch.randn(256, 1024, device="cuda")
    labels = torch.randint(0, 100, (256,), device="cuda")
    if whole:
        train_replayed(model, optimizer, inputs, labels)
    else:
        train_graphed(model, optimizer, inputs, labels)
    print("peak", torch.cuda.max_memory_allocated())


def train_graphed(model, optimizer, inputs, labels):
    """Forward and backward of the model are graphs."""
    graphed = torch.cuda.make_graphed_callables(model, (inputs,))
    for _ in range(20):
        inputs.copy_(torch.randn(256, 1024, device="cuda"))
        optimizer.zero_grad()
        functional.cross_entropy(graphed(inputs), labels).backward()
        optimizer.step()


def train_replayed(model, optimizer, inputs, labels):
    """All of a step is one graph, captured after a few ordinary steps on a stream of its own."""

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(20):
        inputs.copy_(torch.randn(256, 1024, device="cuda"))
        graph.replay()


if __name__ == "__main__":
    main()
