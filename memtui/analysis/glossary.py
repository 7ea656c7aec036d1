"""One line for every term on the screen."""

from __future__ import annotations

#: By key of a row, a band, or a word of the screen. Torch's own words where it has one.
TERMS: dict[str, tuple[str, str]] = {
    "device_used": ("device used", "what the driver counts as taken on the whole device, by every process on it"),
    "device_total": (
        "capacity",
        "all the memory of the device, as its driver counts it; a host's, or its cgroup's limit",
    ),
    "process": ("this process", "what the driver counts for this process: reserved plus non-torch"),
    "reserved": ("reserved", "the caching allocator's segments: what PyTorch took from the driver, used or not"),
    "allocated": ("allocated", "live tensors; torch.cuda.memory_allocated() says the same number"),
    "active": ("active", "allocated, plus blocks freed by the program that another stream may still use"),
    "requested": ("requested", "what the program asked for, before the allocator rounded it up"),
    "step_peak": ("peak this step", "the most allocated since the step began; ≥ where it was only sampled"),
    "predicted_peak": (
        "predicted peak",
        "what the device (of a host: this process) will need at most, if steps go on as they were",
    ),
    "headroom": ("headroom", "what the predicted peak leaves free: what a step may still grow by"),
    "non_torch": ("non-torch", "of this process, outside the allocator: CUDA context, NCCL, cuDNN and cuBLAS handles"),
    "other_process": ("other processes", "what other processes hold on this device, and of a host the system"),
    "other_processes": ("other processes", "what other processes hold on this device, and of a host the system"),
    "device_free": ("free", "what the driver could still give to anybody; of a host what this process can still get"),
    "device_unattributed": ("unknown owner", "used according to the driver, but listed for no process"),
    "driver_reserved": ("driver", "what the driver keeps for itself, for page tables and error correction"),
    "parameters": ("parameters", "tensors that a module of the program calls its parameters"),
    "buffers": ("buffers", "tensors that a module registered as buffers: running means, masks, caches"),
    "gradients": ("gradients", "the .grad of parameters; gone between steps where they are set to None"),
    "optimizer_state": ("optimizer state", "what the optimizer keeps for each parameter; appears in its first step"),
    "activations": ("activations", "kept from forward for backward; these grow with the batch"),
    "temporaries": ("temporaries", "born in backward, in the optimizer or between, and not yet freed"),
    "inputs": ("inputs", "born between steps, before forward: mostly batches; and what memtui.tag() names"),
    "workspaces": ("workspaces", "kept by cuBLAS and others for their calculations; stays, and is no leak"),
    "unattributed": ("unattributed", "allocated, but known to none of the above; negative where memory has gone since"),
    "live_tensor": ("live tensor", "one whose memory is in use; named by its module or optimizer, or by memtui.tag()"),
    "reusable_cache": (
        "cache",
        "free blocks that the next allocation can use; empty_cache() gives whole segments back",
    ),
    "inactive_split": ("pinned", "free blocks in a segment with a live neighbour: cannot go back to the driver"),
    "private_pools": (
        "held by graphs",
        "in the pool of a CUDA graph or a MemPool, born outside the phases seen, and no known tensor's",
    ),
    "private_pool_idle": (
        "graph pools",
        "free, but only for their CUDA graph or MemPool; a graph writes there when it is replayed",
    ),
    "active_pending_free": ("pending free", "freed by the program, waiting for another stream to be done with it"),
    "segment": ("segment", "one piece of memory that the allocator got from the driver"),
    "block": ("block", "a piece of a segment: one tensor's memory, or a hole"),
    "largest_free_block": ("largest free block", "a request for more than this needs a new segment from the driver"),
    "pins": (
        "pins",
        "a live block does so to free memory of its segment, which then cannot go back to the driver",
    ),
    "largest_request": (
        "largest request",
        "what could be allocated at once: from a free block, or with what the driver still gives",
    ),
    "cache_returned": (
        "cache returned",
        "PyTorch gives whole free segments back before it fails, and tries again; that waits for the device",
    ),
    "fragmentation": ("fragmentation", "memory that is free inside PyTorch, in pieces too small for what is asked"),
    "num_alloc_retries": ("retries", "allocations that worked only after the whole cache was given back; each is slow"),
    "num_ooms": ("ooms", "out-of-memory errors that the allocator raised, also those the program caught"),
    "peak": ("peak", "the highest value; of what, and since when, is always said"),
    "communication": (
        "communication",
        "buckets in which DDP reduces gradients, and parameters that FSDP has gathered",
    ),
    "recorded_step": (
        "recorded step",
        "each allocation and free of one step, by PyTorch's own history: its exact peak",
    ),
    "call_site": ("call site", "the line of the program that allocated a block; ← leads to its callers"),
    "step": (
        "step",
        "from one optimizer step's end to the next; the first is step 1 (warm-up); logs count completed ones",
    ),
    "phase": ("phase", "where the training is; on a GPU the time of dispatch, not of execution"),
    "evaluation": ("evaluation", "a root module's forward without gradients, in a program that trains"),
    "checkpoint": ("checkpoint", "torch.save, torch.load and the like; seen by a look ten times a second"),
    "compilation": ("compilation", "torch.compile, or Triton that tunes a kernel; seen by a look ten times a second"),
    "phase_peaks": ("peaks by phase", "the most ever allocated in each phase; ≥ where more may have gone unseen"),
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
            "private_pools",
            "unattributed",
            "live_tensor",
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
        (
            *("fragmentation", "segment", "block", "pins", "largest_free_block", "largest_request", "cache_returned"),
            *("num_alloc_retries", "num_ooms"),
        ),
    ),
    (
        "Time",
        (
            *("step", "phase", "evaluation", "checkpoint", "compilation", "peak", "phase_peaks"),
            *("recorded_step", "call_site"),
        ),
    ),
    ("How a figure was had", ("measured", "lower_bound", "predicted", "unknown", "GiB")),
)


def explain(key: str) -> str | None:
    """The line for a key of a row or a band, "reserved: the caching allocator's segments…"; None for an unknown key."""
    entry = TERMS.get(key) or TERMS.get(key.removesuffix("_bytes"))
    return None if entry is None else f"{entry[0]}: {entry[1]}"
