"""A program that lives by torch's peak counters: reads all of them, and resets them in mid-step and between steps.

    peaks.py [KIND]

Two runs print the same bytes. `stop` and `late` do to an agent what a program may, where there is one; else it knows
nothing of memtui.
"""

import os
import random
import signal
import sys
import threading
import time

import torch
from torch import nn

KIND = sys.argv[1] if len(sys.argv) > 1 else "plain"
MIB = 1 << 20


def readings(name, device=None):
    """Everything that torch tells about peaks, by every way it has."""
    cuda, found = torch.cuda, {}
    found["max"] = [cuda.max_memory_allocated(device), cuda.max_memory_reserved(device)]
    found["now"] = [cuda.memory_allocated(device), cuda.memory_reserved(device)]
    found["stats"] = cuda.memory_stats(device)
    found["nested"] = cuda.memory_stats_as_nested_dict(device)
    found["summary"] = cuda.memory_summary(device)
    accelerator = getattr(torch, "accelerator", None)
    if hasattr(accelerator, "memory_stats"):
        index = cuda.current_device() if device is None else device
        found["accelerator"] = accelerator.memory_stats(index)
        found["accelerator max"] = [accelerator.max_memory_allocated(index), accelerator.max_memory_reserved(index)]
    print(name, found)


def resets():
    """Every way to reset that torch has."""
    yield torch.cuda.reset_peak_memory_stats
    yield torch.cuda.reset_max_memory_allocated
    yield torch.cuda.reset_max_memory_cached
    yield torch.cuda.reset_accumulated_memory_stats
    accelerator = getattr(torch, "accelerator", None)
    if hasattr(accelerator, "reset_peak_memory_stats"):
        yield accelerator.reset_peak_memory_stats
        yield accelerator.reset_accumulated_memory_stats


def spike(mebibytes, device="cuda"):
    torch.empty(mebibytes * MIB, dtype=torch.uint8, device=device)


def in_the_middle(way):
    spike(90)
    readings("middle")
    way()
    readings("reset in the middle")


def training(device="cuda"):
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(device)
    return model, torch.optim.Adam(model.parameters())


def step(model, optimizer, rows, device="cuda", middle=None, after=None):
    loss = model(torch.randn(rows, 256, device=device)).pow(2).mean()
    if middle is not None:
        middle()
    loss.backward()
    optimizer.step()
    if after is not None:
        after()
    optimizer.zero_grad()


def plain():
    """Readings and resets at many points, and steps of many heights in between; quick ones, so that most go unread."""
    try:
        torch.cuda.reset_peak_memory_stats()
    except RuntimeError as error:
        print(error)
    print(torch.cuda.max_memory_allocated(), torch.cuda.memory_stats())
    spike(300)
    readings("before")
    model, optimizer = training()
    choice = random.Random(3)
    ways = list(resets())
    for number in range(400):
        step(model, optimizer, choice.randrange(1, 4096))
        if number % 50 == 20:
            readings(f"between {number}")
            ways[number // 50 % len(ways)]()
            readings(f"reset between {number}")
        if number % 50 == 40:
            way = ways[number // 50 % len(ways)]
            step(model, optimizer, 512, middle=lambda way=way: in_the_middle(way))
        if number % 100 == 70:
            spike(choice.randrange(1, 200))
            torch.cuda.empty_cache()
            readings(f"emptied {number}")
    pool()
    for device in (-1, 1, 77):
        for function in (torch.cuda.max_memory_allocated, torch.cuda.reset_peak_memory_stats):
            try:
                print(device, function(device))
            except (RuntimeError, ValueError, AssertionError) as error:
                print(device, type(error).__name__, error)
    with_signals(model, optimizer)
    readings("end")


def pool():
    """A pool of the program's own has peaks of its own."""
    if not hasattr(torch.cuda, "MemPool"):
        return
    own = torch.cuda.MemPool()
    model, optimizer = training()
    for number in range(4):
        with torch.cuda.use_mem_pool(own):
            spike(40 - number)
        step(model, optimizer, 64)
        readings(f"pool {number}")
    torch.cuda.reset_peak_memory_stats()
    readings("pool reset")


def with_signals(model, optimizer):
    """Resets in a signal handler, which may run anywhere: what is read at the end is of after the last."""
    signal.signal(signal.SIGALRM, lambda *_: torch.cuda.reset_peak_memory_stats())
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
    for _ in range(100):
        step(model, optimizer, 256)
    signal.setitimer(signal.ITIMER_REAL, 0)
    torch.cuda.reset_peak_memory_stats()
    step(model, optimizer, 300)


def two_devices():
    trainings = [(device, *training(device)) for device in ("cuda:0", "cuda:1")]
    for number in range(60):
        for place, (device, model, optimizer) in enumerate(trainings):
            step(model, optimizer, 64 * (1 + (number * 7 + place) % 13), device)
        if number % 9 == 4:
            readings(f"0 at {number}", 0)
            readings(f"1 at {number}", 1)
            torch.cuda.reset_peak_memory_stats(number % 2)
            torch.accelerator.reset_peak_memory_stats((number + 1) % 2) if number % 3 else None
            torch.cuda.set_device(number % 2)
            readings("current")


def out_of_memory():
    """The program goes on after it."""
    model, optimizer = training()
    for number in range(30):
        if number % 7 == 3:
            kept = [torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")]
            try:
                step(model, optimizer, 64, middle=lambda: torch.empty(1 << 40, dtype=torch.uint8, device="cuda"))
            except torch.cuda.OutOfMemoryError as error:
                print(error)
                readings(f"out of memory {number}")
            del kept
            optimizer.zero_grad()
        step(model, optimizer, 100 + number)
    readings("end")


def fork():
    """The child has what the parent has reached; what it may still ask torch for is the same."""
    model, optimizer = training()
    for number in range(20):
        step(model, optimizer, 100 + 50 * (number % 5))
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        functions = torch._C
        print("child", torch.cuda.memory_stats(), functions._cuda_memoryStats(0))
        functions._cuda_resetPeakMemoryStats(0)
        print("child", functions._cuda_memoryStats(0))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    readings("parent")
    step(model, optimizer, 99)
    readings("parent")


def threads():
    """Another thread reads and resets all the time; when it has ended all is as it was."""
    model, optimizer = training()
    done = threading.Event()

    def busy():
        while not done.is_set():
            torch.cuda.max_memory_allocated()
            torch.cuda.reset_peak_memory_stats()

    thread = threading.Thread(target=busy)
    thread.start()
    for number in range(60):
        step(model, optimizer, 100 + number)
    done.set()
    thread.join()
    torch.cuda.reset_peak_memory_stats()
    step(model, optimizer, 50)
    spike(77)
    step(model, optimizer, 40)
    readings("end")


def unusual():
    """Optimizers that alternate, that step in backward, none at all, no backward at all."""
    model, optimizer = training()
    other, second = training()
    for number in range(40):
        step(model, optimizer, 64 + number)
        step(other, second, 90 - number)
    readings("two")
    model = training()[0]
    parameters = list(model.parameters())
    inside = {parameter: torch.optim.SGD([parameter], lr=0.1, momentum=0.9) for parameter in parameters}

    def stepping(parameter):
        inside[parameter].step()
        inside[parameter].zero_grad()

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(stepping)
    for number in range(40):
        model(torch.randn(64 + number, 256, device="cuda")).sum().backward()
    readings("inside")
    with torch.no_grad():
        for number in range(20):
            model(torch.randn(64 + number, 256, device="cuda"))
    readings("inference")


def compiled():
    """Peaks are read inside of a compiled function, too."""

    @torch.compile(backend="eager")
    def run(model, optimizer, x):
        loss = model(x).pow(2).mean()
        seen = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        optimizer.step()
        return loss, seen, torch.cuda.max_memory_allocated()

    model, optimizer = training()
    for number in range(6):
        print(run(model, optimizer, torch.randn(64 + number, 256, device="cuda"))[1:])
    readings("end")


def stop():
    """The monitor goes in the middle of it all."""
    names = ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_accelerator_getDeviceStats")
    kind = type(torch._C._cuda_emptyCache)
    model, optimizer = training()
    spike(200)
    for number in range(30):
        step(model, optimizer, 100 + 50 * (number % 5))
    agent = sys.modules.get("_memtui_agent_of_this_process")
    if agent is not None:
        assert not any(isinstance(getattr(torch._C, name), kind) for name in names)
        agent.stop()
    readings("stopped")
    for number in range(10):
        step(model, optimizer, 100 + 50 * (number % 5))
    readings("later")
    torch.cuda.reset_peak_memory_stats()
    step(model, optimizer, 64)
    readings("reset")
    print([isinstance(getattr(torch._C, name), kind) for name in names])


def late():
    """Exact peaks are asked for in the middle of it all."""
    model, optimizer = training()
    spike(200)
    for number in range(60):
        step(model, optimizer, 100 + 50 * (number % 5))
        sentry = sys.modules.get("_memtui_agent_of_this_process")
        if number == 30 and sentry is not None:
            sentry.take_exactly()
            assert not isinstance(torch._C._cuda_memoryStats, type(torch._C._cuda_emptyCache))
        if number % 10 == 9:
            readings(f"late {number}")
        if number == 45:
            torch.cuda.reset_peak_memory_stats()


def steps():
    """Steps of many heights on two devices, short ones and longer ones; with "self" it says the peak of each itself.

    Its own resets in mid-step are in both.
    """
    own = sys.argv[2:] == ["self"]
    reached = [0, 0]

    def reset(device):
        reached[device] = max(reached[device], torch.cuda.max_memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)

    def tell():
        reset(0)
        reset(1)
        print(*reached)
        reached[:] = 0, 0

    spike(50)
    spike(3, "cuda:1")
    model, optimizer = training()
    choice = random.Random(5)
    for number in range(460):
        heights = [choice.randrange(1, 60) for _ in range(3)]

        def middle(number=number, heights=heights):
            spike(heights[0])
            if number % 10 == 3:
                reset(number // 10 % 2)
            spike(heights[1], "cuda:1")

        step(model, optimizer, 1 + number % 7, middle=middle, after=tell if own else None)
        if number >= 440:
            time.sleep(0.25)
    if not own:
        sys.stdin.readline()


globals()[KIND]()
