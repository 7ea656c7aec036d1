"""The allocator's figures on a virtual GPU: the real allocator, so the real figures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from memtui.virtual_gpu.stubs import plan
from memtui.virtual_gpu.torch_install import find_torch
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

MIB = 1 << 20

_MLP = """
import json, torch, torch.nn as nn
def used(): return round(torch.cuda.memory_allocated() / 2**20, 1)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
figures = [used()]
optimizer = torch.optim.Adam(model.parameters())
batch = torch.randn(2048, 1024, device='cuda')
loss = model(batch).pow(2).mean()
figures.append(used())
loss.backward(); figures.append(used())
optimizer.step(); figures.append(used())
figures.append(round(torch.cuda.max_memory_allocated() / 2**20, 1))
print(json.dumps(figures))
"""


# After the model, forward, backward, the step, and the peak, in MiB.  On 9.0 torch gives each of the two
# threads that multiply a cuBLAS workspace of 32 MiB in place of 8.125.
_PUBLISHED = [96.0, 184.2, 216.3, 408.4, 504.4]
_ON_HOPPER = [96.0, 208.0, 264.1, 456.1, 552.2]


@pytest.mark.parametrize(("compute_capability", "figures"), [("8.6", _PUBLISHED), ("9.0", _ON_HOPPER)])
def test_mlp_training_has_the_published_figures(
    run_child: RunChild, compute_capability: str, figures: list[float]
) -> None:
    assert run_child(_MLP, virtual_environment(memory="24GiB", cc=compute_capability)) == figures


def test_device_properties_are_the_profile(run_child: RunChild) -> None:
    source = """
import json, torch
p = torch.cuda.get_device_properties(0)
facts = [p.name, p.total_memory, [p.major, p.minor], p.multi_processor_count]
print(json.dumps([*facts, list(torch.cuda.mem_get_info())]))
"""
    environment = virtual_environment(
        memory="24GiB", name="NVIDIA L4", cc="8.9", multiprocessors=58, context="400MiB", driver_reserved="500MiB"
    )
    total = (24 << 30) - 500 * MIB
    assert run_child(source, environment) == ["NVIDIA L4", total, [8, 9], 58, [total - 400 * MIB, total]]


def test_out_of_memory_is_torchs_own_error(run_child: RunChild) -> None:
    source = """
import json, torch
seen = []
torch._C._cuda_attach_out_of_memory_observer(lambda device, asked, total, free: seen.append([device, asked, total]))
keep = [torch.empty(900 << 20, dtype=torch.uint8, device='cuda')]
try:
    keep.append(torch.empty(200 << 20, dtype=torch.uint8, device='cuda'))
except torch.cuda.OutOfMemoryError as error:
    message = str(error)
statistics = torch.cuda.memory_stats()
keep.clear(); torch.cuda.empty_cache()
keep.append(torch.empty(1000 << 20, dtype=torch.uint8, device='cuda'))
print(json.dumps([message, seen, statistics['num_ooms'], statistics['num_alloc_retries']]))
"""
    message, seen, ooms, retries = run_child(source, virtual_environment(memory="1GiB"))
    assert "Tried to allocate 200.00 MiB. GPU 0 has a total capacity of" in message
    assert "124.00 MiB is free" in message
    assert "900.00 MiB is allocated by PyTorch" in message
    assert seen == [[0, 200 * MIB, 1024 * MIB]]
    assert (ooms, retries) == (1, 1)


def test_two_devices_of_two_sizes(run_child: RunChild) -> None:
    source = """
import json, torch
a = torch.empty(1 << 30, dtype=torch.uint8, device='cuda:0')
b = torch.empty(512 << 20, dtype=torch.uint8, device='cuda:1')
c = torch.arange(5).to('cuda:0').to('cuda:1')
try:
    torch.empty(3 << 30, dtype=torch.uint8, device='cuda:1'); oom = False
except torch.cuda.OutOfMemoryError:
    oom = True
figures = [[torch.cuda.memory_reserved(i) >> 20, *(f >> 20 for f in torch.cuda.mem_get_info(i))] for i in range(2)]
print(json.dumps([torch.cuda.device_count(), figures, c.tolist(), oom]))
"""
    count, figures, copied, oom = run_child(source, virtual_environment(memory="24GiB,2GiB", count=2))
    assert count == 2
    assert figures == [[1026, 23 * 1024 - 2, 24 * 1024], [514, 1534, 2048]]
    assert copied == [0, 1, 2, 3, 4]
    assert oom


def test_no_device_at_all(run_child: RunChild) -> None:
    source = "import json, torch; print(json.dumps([torch.cuda.is_available(), torch.cuda.device_count()]))"
    assert run_child(source, virtual_environment(count=0)) == [False, 0]


def test_expandable_segments_map_and_unmap(run_child: RunChild) -> None:
    source = """
import json, torch
blocks = [torch.empty(30 << 20, dtype=torch.uint8, device='cuda') for _ in range(8)]
expandable = all(s['is_expandable'] for s in torch.cuda.memory_snapshot())
grown = torch.cuda.mem_get_info()[0]
reserved = torch.cuda.memory_reserved()
del blocks; torch.cuda.empty_cache()
print(json.dumps([expandable, reserved, grown, torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]]))
"""
    environment = {**virtual_environment(memory="1GiB"), "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    expandable, reserved, grown, reserved_after, free_after = run_child(source, environment)
    assert expandable
    assert reserved == 240 * MIB
    assert grown == 1024 * MIB - reserved
    assert reserved_after == 0
    assert free_after == 1024 * MIB


def test_pools_of_graphs_and_of_the_program(run_child: RunChild) -> None:
    source = """
import json, torch
of_program = []
if hasattr(torch.cuda, 'MemPool'):  # torch 2.5
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = torch.empty(4 << 20, dtype=torch.uint8, device='cuda')
    of_program = [pool.id]
x = torch.zeros(1024, 1024, device='cuda')
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    (x @ x).relu()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = (x @ x).relu()
graph.replay()
pools = sorted({tuple(s['segment_pool_id']) for s in torch.cuda.memory_snapshot()} - {(0, 0)})
print(json.dumps([pools, [*of_program, graph.pool()]]))
"""
    found, made = run_child(source, virtual_environment())
    assert found == sorted(made)


def test_bytes_that_were_copied_come_back_and_computed_ones_are_zero(run_child: RunChild) -> None:
    source = """
import json, torch
x = torch.arange(5).cuda()
copied = x.tolist()
computed = (x + 1).tolist()
pinned = torch.arange(3).pin_memory()
print(json.dumps([copied, computed, pinned.is_pinned(), pinned.tolist(), torch.zeros(3).cuda().tolist()]))
"""
    assert run_child(source, virtual_environment()) == [[0, 1, 2, 3, 4], [0] * 5, True, [0, 1, 2], [0.0] * 3]


def test_streams_and_events(run_child: RunChild) -> None:
    source = """
import json, torch
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    start.record(); x = torch.empty(1 << 20, device='cuda'); x.record_stream(torch.cuda.default_stream()); end.record()
torch.cuda.synchronize()
print(json.dumps([end.query(), 0 <= start.elapsed_time(end) < 10000]))
"""
    assert run_child(source, virtual_environment()) == [True, True]


def test_common_layers_train(run_child: RunChild) -> None:
    source = """
import json, torch, torch.nn as nn
images = torch.randn(8, 3, 32, 32, device='cuda')
network = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(16, 10)).cuda()
nn.functional.cross_entropy(network(images), torch.zeros(8, dtype=torch.long, device='cuda')).backward()
encoder = nn.TransformerEncoderLayer(64, 4, batch_first=True).cuda()
with torch.autocast('cuda', dtype=torch.bfloat16):
    encoder(torch.randn(4, 16, 64, device='cuda')).sum().backward()
for optimizer in (torch.optim.AdamW(network.parameters()), torch.optim.SGD(encoder.parameters(), 0.1, momentum=0.9)):
    optimizer.step()
print(json.dumps(torch.cuda.memory_allocated() > 0))
"""
    assert run_child(source, virtual_environment())


def test_recurrent_layers_train(run_child: RunChild) -> None:
    environment = virtual_environment()
    if not any("cudnnGetRNNWeightSpaceSize" in stub.symbols for stub in plan(find_torch().libraries())):
        pytest.skip("this torch asks cuDNN's older interface for recurrent layers, which is not simulated")
    source = """
import json, torch, torch.nn as nn
layers = [nn.LSTM(64, 128, 2, bidirectional=True), nn.LSTM(64, 128, proj_size=32), nn.GRU(64, 64),
          nn.RNN(64, 32, bias=False)]
buffers = []
for layer in layers:
    layer.cuda()(torch.randn(8, 4, 64, device='cuda'))[0].sum().backward()
    # cuDNN's weights are one buffer: torch makes every parameter a view of it
    buffers.append(len({p.untyped_storage().data_ptr() for p in layer.parameters()}))
print(json.dumps(buffers))
"""
    assert run_child(source, environment) == [1, 1, 1, 1]


def test_a_compiled_model_trains(run_child: RunChild, tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("torch.compile needs triton, which is not installed")
    source = """
import json, torch, torch.nn as nn
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    compiled(torch.randn(64, 256, device='cuda')).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
print(json.dumps([torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]))
"""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    allocated, peak = run_child(source, {**virtual_environment(), **caches})
    parameters = 4 * (256 * 1024 + 1024 + 1024 * 256 + 256)
    assert parameters < allocated < peak < 64 * MIB


def test_the_compiler_pads_a_product_whose_rows_are_not_on_16_bytes(run_child: RunChild, tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("torch.compile needs triton, which is not installed")
    source = """
import json, torch
given = torch.zeros(8192, 768, dtype=torch.bfloat16, device='cuda')
rows = []
for columns in (50257, 50264):
    weight = torch.zeros(columns, 768, dtype=torch.bfloat16, device='cuda')
    rows.append(torch.compile(lambda a, b: (a + 1) @ b.T)(given, weight).stride(0))
    torch._dynamo.reset()
print(json.dumps(rows))
"""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    assert run_child(source, {**virtual_environment(cc="8.0"), **caches}) == [50264, 50264]
