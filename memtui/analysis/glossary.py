"""One line for every term on the screen."""

from __future__ import annotations

#: By key of a row, a band, or a word of the screen. Torch's own words where it has one.
TERMS: dict[str, tuple[str, str]] = {
    "device_used": ("device used", "what the driver counts as taken on the whole device, by every process on it"),
    "device_total": ("capacity", "all the memory of the device, as its driver counts it"),
    "process": ("this process", "what the driver counts for this process: reserved plus non-torch"),
    "reserved": ("reserved", "the caching allocator's segments: what PyTorch took from the driver, used or not"),
    "allocated": ("allocated", "live tensors; torch.cuda.memory_allocated() says the same number"),
    "active": ("active", "allocated, plus blocks freed by the program that another stream may still use"),
    "requested": ("requested", "what the program asked for, before the allocator rounded it up"),
    "step_peak": ("peak this step", "the most allocated since the step began; ≥ where it was only sampled"),
    "predicted_peak": ("predicted peak", "what the device will need at its fullest, if steps go on as they were"),
    "headroom": ("headroom", "capacity less the predicted peak: what a step may still grow by"),
    "non_torch": ("non-torch", "of this process, outside the allocator: CUDA context, NCCL, cuDNN and cuBLAS handles"),
    "other_process": ("other processes", "what other processes hold on this device"),
    "other_processes": ("other processes", "what other processes hold on this device"),
    "device_free": ("free", "what the driver could still give to anybody"),
    "device_unattributed": ("unknown owner", "used according to the driver, but listed for no process"),
    "driver_reserved": ("driver", "what the driver keeps for itself, for page tables and error correction"),
    "parameters": ("parameters", "tensors that a module of the program calls its parameters"),
    "buffers": ("buffers", "tensors that a module registered as buffers: running means, masks, caches"),
    "gradients": ("gradients", "the .grad of parameters; gone between steps where they are set to None"),
    "optimizer_state": ("optimizer state", "what the optimizer keeps for each parameter; appears in its first step"),
    "activations": ("activations", "kept from forward for backward; these grow with the batch"),
    "temporaries": ("temporaries", "born in backward, in the optimizer or between, and not yet freed"),
    "inputs": ("inputs", "born between steps, before forward: mostly batches"),
    "workspaces": ("workspaces", "kept by cuBLAS and others for their calculations; stays, and is no leak"),
    "communication": ("communication", "buckets in which DDP and FSDP collect gradients"),
    "unattributed": ("unattributed", "allocated, but known to none of the above; negative where memory has gone since"),
    "reusable_cache": (
        "cache",
        "free blocks that the next allocation can use; empty_cache() gives whole segments back",
    ),
    "inactive_split": ("pinned", "free blocks in a segment with a live neighbour: cannot go back to the driver"),
    "private_pool_idle": ("graph pools", "free blocks that only their CUDA graph or MemPool may use"),
    "active_pending_free": ("pending free", "freed by the program, waiting for another stream to be done with it"),
    "segment": ("segment", "one piece of memory that the allocator got from the driver"),
    "block": ("block", "a piece of a segment: one tensor's memory, or a hole"),
    "largest_free_block": ("largest free block", "a request for more than this needs a new segment from the driver"),
    "fragmentation": ("fragmentation", "memory that is free inside PyTorch, in pieces too small for what is asked"),
    "num_alloc_retries": ("retries", "allocations that worked only after the whole cache was given back; each is slow"),
    "num_ooms": ("ooms", "out-of-memory errors that the allocator raised, also those the program caught"),
    "peak": ("peak", "the highest value; of what, and since when, is always said"),
    "step": ("step", "from one optimizer step's end to the next"),
    "phase": ("phase", "forward, loss, backward, optimizer, between; on a GPU the time of dispatch, not of execution"),
    "measured": ("plain figure", "measured; allocator figures are of one instant, older ones say how old they are"),
    "lower_bound": ("≥", "at least this much: sampled, and the moment in between may have been higher"),
    "predicted": ("italic, dashed", "predicted from what was measured"),
    "unknown": ("–", "cannot be had here; never means 0"),
    "GiB": ("KiB, MiB, GiB", "1024, 1024² and 1024³ bytes, as PyTorch and nvidia-smi count"),
}

#: In the order of the screen that lists them: the ladder from outside in, then fragmentation, then how figures are had.
ORDER = (
    (
        "Memory of the device, from outside in",
        ("device_total", "device_used", "process", "other_processes", "non_torch"),
    ),
    ("Inside PyTorch", ("reserved", "active", "allocated", "requested", "step_peak", "predicted_peak", "headroom")),
    (
        "Who owns the tensors",
        (
            "parameters",
            "buffers",
            "gradients",
            "optimizer_state",
            "activations",
            "temporaries",
            "inputs",
            "workspaces",
            "communication",
            "unattributed",
        ),
    ),
    (
        "Free, but not for everybody",
        (
            "reusable_cache",
            "inactive_split",
            "private_pool_idle",
            "active_pending_free",
            "device_free",
            "device_unattributed",
            "driver_reserved",
        ),
    ),
    (
        "Fragmentation",
        ("fragmentation", "segment", "block", "largest_free_block", "num_alloc_retries", "num_ooms"),
    ),
    ("Time", ("step", "phase", "peak")),
    ("How a figure was had", ("measured", "lower_bound", "predicted", "unknown", "GiB")),
)


def explain(key: str) -> str | None:
    """The line for a key of a row or a band, "reserved: the caching allocator's segments…"; None for an unknown key."""
    entry = TERMS.get(key) or TERMS.get(key.removesuffix("_bytes"))
    return None if entry is None else f"{entry[0]}: {entry[1]}"
