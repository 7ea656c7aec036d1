"""What would crash a training, or hold its memory, if the agent ever did it."""

from __future__ import annotations

import pathlib

import pytest

from memtui.agent import environment as with_agent
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

_TRAINING = """
import json, sys, threading, time
import torch

def agent():
    return sys.modules["_memtui_agent_of_this_process"].agent

def train(steps, device="cuda"):
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40))).to(device)
    # On the host Adam would initialise CUDA by itself.
    optimizer = (torch.optim.Adam if device == "cuda" else torch.optim.SGD)(model.parameters())
    for _ in range(steps):
        model(torch.randn(8, 64, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

def look_always():
    # As often as it can: at every boundary.
    observer = agent().observer
    observer.looks._budget.wait_ns = observer.readings._budget.wait_ns = lambda cost, now: 0
    observer.readings.due = lambda now: True
    observer._quiet = 0
    return observer

def ask_always(observer):
    # A viewer asks for recorded steps all the time; each that might begin is counted.
    begun, start = [], observer.recorder.start
    def ask():
        while True:
            observer.record()
            time.sleep(0.005)
    observer.recorder.start = lambda phases: begun.append(1) or start(phases)
    threading.Thread(target=ask, daemon=True).start()
    return begun
"""

_GRADIENTS = """
train(3)
readers, inside = set(), set()
observer, classes = agent().observer, sys.modules[type(agent().observer.looks).__module__]
walked = classes.Walk.addresses

def addresses(walk):
    readers.add(threading.get_ident())
    inside.add(torch._C._current_graph_task_id())  # -1 outside backward
    return walked(walk)

classes.Walk.addresses = addresses
look_always()  # and from its own thread between boundaries
end = time.monotonic() + 4
ticks = 0
tick = agent()._tick
def hurried(server, now, late):
    global ticks
    ticks += 1
    tick(server, now, late)
    agent().observer.looks.between(observer.phases, time.monotonic_ns())
agent()._tick = hurried
sys.modules[type(agent()).__module__].PERIOD_NS = 1_000_000
while time.monotonic() < end:
    train(5)
print(json.dumps({"alone": readers == {threading.main_thread().ident}, "inside": sorted(inside), "ticks": ticks,
                  "error": observer.error}))
"""

_HISTORY = """
import memtui
memtui.start()
time.sleep(1.0)
sys.modules["_memtui_agent_of_this_process"].step()
time.sleep(0.3)
observer = look_always()
ask_always(observer)
for _ in range(20):
    train(2, "cpu")
    sys.modules["_memtui_agent_of_this_process"].step()
observer.looks.between(observer.phases, time.monotonic_ns())
print(json.dumps({"initialized": torch.cuda.is_initialized(), "frames": agent()._sequence,
                  "trains": observer.phases.trains, "error": observer.error}))
"""

_LOCALS = """
train(3)
stack = sys.modules[type(agent().observer).__module__.rpartition(".")[0] + ".stack"].Stack
looked, doing = [], stack.doing

def counted(self, thread, **how):
    found = doing(self, thread, **how)
    looked.append(thread)
    return found

stack.doing = counted
sys.modules[type(agent()).__module__].PERIOD_NS = 2_000_000

def seen(times):
    wanted = len(looked) + times
    while len(looked) < wanted:
        time.sleep(0.001)

def hold(phase):
    held = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    seen(20)
    there = torch.cuda.memory_allocated()
    del held
    freed[phase] = there - torch.cuda.memory_allocated()
    kept = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    seen(20)

class Slow(torch.nn.Linear):
    def forward(self, x):
        hold("forward")
        return super().forward(x)

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        hold("backward")
        return gradient

freed, main = {}, threading.main_thread().ident
before = torch.cuda.memory_allocated()
hold("between")
freed["returned"] = torch.cuda.memory_allocated() == before
model = Slow(8, 8).cuda()
Backward.apply(model(torch.randn(8, 8, device="cuda"))).sum().backward()
print(json.dumps({"freed": freed, "looked": looked.count(main), "error": agent().observer.error}))
"""

_RECORDS = """
torch.cuda.memory._record_memory_history(max_entries=200_000)
train(3)

def allocations():
    return torch.cuda.memory_stats()["allocation.all.allocated"]

asked = allocations()
observer = look_always()
begun = ask_always(observer)
train(60)
allocated = allocations()
snapshot = torch.cuda.memory._snapshot()
entries = snapshot["device_traces"][0]
actions = [entry["action"] for entry in entries]
print(json.dumps({"kept": actions.count("alloc"), "made": allocated, "snapshots": actions.count("snapshot"),
                  "still": torch._C._cuda_isHistoryEnabled(), "error": observer.error, "asked": asked,
                  "begun": len(begun),
                  "frames": sum(1 for entry in entries if entry.get("frames"))}))
"""


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """A virtual GPU, the agent, and sockets of the test's own."""
    return {**with_agent(virtual_environment(memory="2GiB")), "MEMTUI_RUNTIME_DIR": str(tmp_path)}


def test_gradients_are_read_by_the_thread_that_trains(environment: dict[str, str], run_child: RunChild) -> None:
    """Reading a gradient from another thread during backward ends the process with a signal."""
    found = run_child(_TRAINING + _GRADIENTS, environment)
    assert found["alone"], "tensors were looked at from another thread"
    assert found["inside"] == [-1], "tensors were looked at inside backward"
    assert found["ticks"] > 200
    assert found["error"] is None


def test_a_history_is_not_asked_for_without_a_device(environment: dict[str, str], run_child: RunChild) -> None:
    """Asking whether torch records a history crashes the process while CUDA is not initialised."""
    found = run_child(_TRAINING + _HISTORY, environment)
    assert not found["initialized"]
    assert found["frames"] > 5
    assert found["trains"]
    assert found["error"] is None


def test_locals_of_running_functions_are_not_kept(environment: dict[str, str], run_child: RunChild) -> None:
    """Asking a running frame for its locals keeps what the function deletes, up to Python 3.12."""
    found = run_child(_TRAINING + _LOCALS, environment)
    assert found["looked"] >= 100
    assert found["freed"] == {"between": 256 << 20, "forward": 256 << 20, "backward": 256 << 20, "returned": True}
    assert found["error"] is None


def test_a_history_of_the_programs_own_is_complete(environment: dict[str, str], run_child: RunChild) -> None:
    """Switching the history on or off erases what it holds, and each snapshot leaves an entry in it."""
    found = run_child(_TRAINING + _RECORDS, environment)
    assert found["begun"]
    assert found["still"]
    assert found["kept"] == found["made"] > found["asked"] > 0
    assert found["frames"] > 0
    assert found["snapshots"] <= 1  # the program's own
    assert found["error"] is None
