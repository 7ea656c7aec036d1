"""What a run's memory was, and what every program here builds on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import nn

_faked = False
_begin_pass: Optional[Callable[[], None]] = None


def on_device(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> Any:
    """A model on the GPU that was never in the host's memory, with the blocks that `.to("cuda")` would have left."""
    torch.set_default_dtype(dtype)
    with torch.device("cuda" if _faked else "meta"):  # a fake tensor cannot take a meta tensor's place
        model = make()
    torch.set_default_dtype(torch.float32)
    return model if _faked else model.to_empty(device="cuda")


def begin_pass() -> None:
    """Said before each of several passes of a step: MemTracker follows one at a time, and asks to be told."""
    if _begin_pass is not None:
        _begin_pass()


def say(**others: Any) -> None:
    """Prints the allocator's figures and the device's, in bytes, and `others`."""
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    figures = {
        "allocated": stats["allocated_bytes.all.current"],
        "allocated_peak": stats["allocated_bytes.all.peak"],
        "active_peak": stats["active_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.current"],
        "reserved_peak": stats["reserved_bytes.all.peak"],
        "device": total - free,
        "retries": stats["num_alloc_retries"],
    }
    print(json.dumps({"torch": torch.__version__, **figures, **others}))


def tracked(make: Callable[[], tuple[Any, Any, Callable[[], Any]]], steps: int = 2) -> None:
    """Prints the peak that torch's own MemTracker predicts, from fake tensors, for `steps` steps.

    `make` gives the module, or all that there are; the optimizer or None; and a step.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    global _faked, _begin_pass
    _faked = True
    with FakeTensorMode():
        model, optimizer, step = make()
        tracker = MemTracker()
        models = model if isinstance(model, list) else [model]
        tracker.track_external(*models, *([] if optimizer is None else [optimizer]))
        _begin_pass = tracker.reset_mod_stats
        with tracker:
            for place in range(steps):
                step()
                if not place:
                    tracker.reset_mod_stats()
        snapshot = tracker.get_tracker_snapshot("peak")
    peak = max(kinds["Total"] for device, kinds in snapshot.items() if device.type == "cuda")
    print(json.dumps({"torch": torch.__version__, "tracker_peak": peak}))
