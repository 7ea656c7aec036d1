"""What the processes of a run leave behind: bytes, allocations that failed, and whose values were zeros."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memtui.virtual_gpu import VirtualGpuError
from memtui.virtual_gpu.report_file import HostRead, ProcessReport, read_report, read_reports
from tests.support.virtual_gpu import virtual_environment
from tests.virtual_gpu.conftest import RunChild

pytestmark = pytest.mark.virtual_gpu

MIB = 1 << 20

_ALLOCATES = """
import json, os, torch
kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
more = torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
reserved = torch.cuda.max_memory_reserved()
del more
torch.cuda.empty_cache()
failed = 0
for size in (1 << 30, 3 << 30, 2 << 30):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        failed += 1
print(json.dumps({"pid": os.getpid(), "reserved": reserved, "failed": failed, "retries": torch.cuda.memory_stats()}))
"""


def test_bytes_and_failed_allocations(tmp_path: Path, run_child: RunChild) -> None:
    prefix = tmp_path / "run"
    said = run_child(_ALLOCATES, virtual_environment(memory="1GiB", context="64MiB", count=2, report_file=prefix))
    (report,) = read_reports(prefix)
    (device,) = report.devices  # and none of the device that was not used
    assert report.pid == said["pid"]
    assert (device.index, device.usable_bytes, device.context_bytes) == (0, 1 << 30, 64 * MIB)
    assert device.peak_bytes == device.device_peak_bytes == 64 * MIB + said["reserved"]
    assert device.current_bytes == 164 * MIB
    # torch asks the driver again once it has freed what it held
    assert said["failed"] == 3
    assert 3 <= device.failed_allocations == said["failed"] + said["retries"]["num_alloc_retries"]
    assert (device.first_failed_bytes, device.largest_failed_bytes) == (1 << 30, 3 << 30)
    assert device.free_at_first_failure_bytes == (1 << 30) - 164 * MIB


_HOLDS = """
import sys, torch
held = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
held[:1].sum().item()
print("ready", flush=True)
sys.stdin.read()
"""


def test_two_processes_on_one_device_and_one_is_killed(tmp_path: Path) -> None:
    prefix = tmp_path / "run"
    environment = virtual_environment(memory="2GiB", report_file=prefix)
    pids = []
    for size, end in (("300", signal.SIGKILL), ("100", signal.SIGTERM), ("50", None)):
        with subprocess.Popen(
            [sys.executable, "-c", _HOLDS, size],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            before = read_report(f"{prefix}.{child.pid}")
            assert before.devices[0].current_bytes == (int(size) + 2) * MIB
            if end is not None:
                child.send_signal(end)
            else:
                assert child.stdin is not None
                child.stdin.close()
            child.wait(30)
            pids.append((child.pid, int(size)))
            assert read_report(f"{prefix}.{child.pid}") == before
    reports = {report.pid: report for report in read_reports(prefix)}
    for pid, size in pids:
        # A process that is gone holds nothing: it counts in no later one's peak.
        assert reports[pid].devices[0].device_peak_bytes == (size + 2) * MIB
        assert [(read.what, read.count) for read in reports[pid].host_reads] == [("item", 1)]


_TOGETHER = """
import os, subprocess, sys, torch
held = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def test_the_peak_of_a_device_is_of_all_its_processes(tmp_path: Path) -> None:
    script = tmp_path / "together.py"
    script.write_text(_TOGETHER)
    environment = virtual_environment(report_file=tmp_path / "run")
    subprocess.run([sys.executable, str(script)], env=environment, timeout=120, check=True)
    reports = read_reports(tmp_path / "run")
    assert [report.devices[0].peak_bytes for report in reports] == [100 * MIB, 100 * MIB]
    assert sorted(report.devices[0].device_peak_bytes for report in reports) == [100 * MIB, 200 * MIB]


_READS = """
import torch
x = torch.randn(20, 4, device="cuda")
def reads(m):
    m.nonzero()                                            # 5 nonzero
    x[m]                                                   # 6 nonzero
    x.masked_select(m)                                     # 7 nonzero
    torch.unique(x)                                        # 8 unique
    for _ in range(3): x.sum().item()                      # 9 item
    if m.any(): pass                                       # 10 item
    x.cpu()                                                # 11 copy
    str(x)                                                 # 12 print
    x.repeat_interleave(torch.ones_like(x[:, 0]).long(), 0)  # 13 repeat_interleave
    torch.empty(20, 4, pin_memory=True).copy_(x, non_blocking=True)  # 14 copy
    x[:, :2].tolist()                                      # 15 copy
    for read in (torch.Tensor.nonzero, torch.Tensor.sum): read(x).cpu()  # 16 nonzero, copy
    torch.nn.utils.get_total_norm([x]).item()              # 17 item
    torch.full((3,), 7.0, device="cuda").zero_()
    torch.tensor([1, 2], device="cuda").cpu()              # what the host has just written
reads(x > 0)
"""


def reads_of(report: ProcessReport, file: str) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for read in report.host_reads:
        assert read.file is not None
        assert read.line is not None
        assert Path(read.file).name == file
        found.setdefault(read.line, set()).add(read.what)
    return found


def test_host_reads_by_line_and_operator(tmp_path: Path) -> None:
    script = tmp_path / "reads.py"
    script.write_text(_READS)
    environment = virtual_environment(report_file=tmp_path / "run")
    subprocess.run([sys.executable, str(script)], env=environment, timeout=120, check=True)
    (report,) = read_reports(tmp_path / "run")
    expected = {
        int(line): set(names.split(", "))
        for line, names in (
            text.rpartition("# ")[2].split(" ", 1) for text in _READS.splitlines() if "# " in text and text[-1] != "n"
        )
    }
    assert reads_of(report, "reads.py") == expected
    by_what = {read.what: read.drives_a_shape for read in report.host_reads}
    assert {what for what, drives in by_what.items() if drives} == {"nonzero", "unique", "repeat_interleave"}
    assert {what for what, drives in by_what.items() if drives is False} == {"item", "copy", "print"}
    counts = {read.line: read.count for read in report.host_reads if read.what == "item"}
    assert counts[9] == 3


_THREADS = """
import sys, threading, torch
x = torch.randn(8, device="cuda", requires_grad=True)
stop = False
def spin():
    while not stop:
        pass
def read():
    for _ in range(200):
        x.sum().item()  # in four threads
spinner = threading.Thread(target=spin, daemon=True)
spinner.start()
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
stop = True
class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()
    @staticmethod
    def backward(ctx, gradient):
        gradient.sum().item()  # in autograd's thread
        return gradient
Reads.apply(x).sum().backward()
y = torch.randn(8, device="cuda", requires_grad=True)
begun = threading.Event()
def late():
    while True:
        y.sum().item()  # while the interpreter ends
        begun.set()
threading.Thread(target=late, daemon=True).start()
begun.wait()
class AtEnd:
    def __del__(self, torch=torch):
        torch.zeros(3, device="cuda").sum().item()
at_end = AtEnd()
"""


def test_reads_of_other_threads_and_at_the_end(tmp_path: Path) -> None:
    """GIVEN threads that contend for the interpreter, autograd's own and the end, THEN nothing waits for ever."""
    script = tmp_path / "threads.py"
    script.write_text(_THREADS)
    environment = virtual_environment(report_file=tmp_path / "run")
    child = subprocess.run(
        [sys.executable, str(script)], env=environment, timeout=120, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    (report,) = read_reports(tmp_path / "run")
    counts = dict.fromkeys(_THREADS.splitlines(), 0)
    for read in report.host_reads:
        assert read.what == "item"
        assert read.line is not None
        counts[_THREADS.splitlines()[read.line - 1]] += read.count
    marked = {line.rpartition("# ")[2]: count for line, count in counts.items() if "# " in line}
    assert marked["in four threads"] == 800
    assert marked["in autograd's thread"] == 1
    assert marked["while the interpreter ends"] > 0


_MANY = """
import torch
x = torch.zeros(1, device="cuda").sum()
lines = "".join(f"x.item()\\n" for _ in range(400))
exec(compile(lines, "/a/folder/" + "with a long name/" * 20 + "many.py", "exec"))
"""


def test_more_lines_than_the_table_holds(tmp_path: Path, run_child: RunChild) -> None:
    run_child(_MANY + "print(0)", virtual_environment(report_file=tmp_path / "run"))
    (report,) = read_reports(tmp_path / "run")
    reads = report.host_reads
    assert sum(read.count for read in reads) == 400
    assert len(reads) == 257
    assert reads[-1] == HostRead(None, None, "unknown", 144)
    assert reads[-1].drives_a_shape is None
    assert all(read.file is not None and read.file.endswith("many.py") for read in reads[:-1])


_FORKS = """
import json, os, sys, torch
pid = os.fork()
torch.zeros(1, device="cuda").sum().item()
if pid:
    os.waitpid(pid, 0)
    print(json.dumps([os.getpid(), pid]))
else:
    torch.ones(1, device="cuda").nonzero()
    os._exit(0)
"""


def test_a_forked_child_keeps_a_report_of_its_own(tmp_path: Path, run_child: RunChild) -> None:
    parent, child = run_child(_FORKS, virtual_environment(report_file=tmp_path / "run"))
    reports = {report.pid: [read.what for read in report.host_reads] for report in read_reports(tmp_path / "run")}
    assert reports == {parent: ["item"], child: ["item", "nonzero"]}


def test_a_process_without_a_device_leaves_nothing(tmp_path: Path, run_child: RunChild) -> None:
    run_child("import torch; torch.ones(3).nonzero(); print(0)", virtual_environment(report_file=tmp_path / "run"))
    assert read_reports(tmp_path / "run") == ()


def test_what_is_estimated_and_what_is_refused(tmp_path: Path, run_child: RunChild) -> None:
    source = """
import torch
torch.linalg.qr(torch.zeros(5, 5, device="cuda"))
try:
    rows, columns = torch.tensor([0, 1, 2], device="cuda"), torch.tensor([0, 1], device="cuda")
    torch.sparse_csr_tensor(rows, columns, torch.ones(2, device="cuda"), (2, 2)) @ torch.ones(2, 2, device="cuda")
except RuntimeError:
    pass
print(0)
"""
    run_child(source, virtual_environment(report_file=tmp_path / "run"))
    (report,) = read_reports(tmp_path / "run")
    notes = {(note.kind, note.name) for note in report.notes if note.kind != "host read"}
    assert ("estimated", "cuSOLVER workspace") in notes
    assert any(kind == "refused" and name.startswith("cusparse") for kind, name in notes)


def test_a_report_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    environment = virtual_environment(report_file=tmp_path / "absent" / "run")
    child = subprocess.run(
        [sys.executable, "-c", "import torch; torch.zeros(1, device='cuda').sum().item()"],
        env=environment,
        timeout=120,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0
    assert child.stderr.count("cannot write the report") == 1


def test_a_file_that_is_no_report(tmp_path: Path) -> None:
    other = tmp_path / "run.12"
    other.write_bytes(b"VGPURPT1 and then nothing")
    with pytest.raises(VirtualGpuError):
        read_reports(tmp_path / "run")
    os.unlink(other)
    (tmp_path / "run.txt").write_text("not ours")
    assert read_reports(tmp_path / "run") == ()


def test_a_report_that_is_just_being_made_is_left_out(tmp_path: Path) -> None:
    """A process that was killed meanwhile leaves it like that; anything else is still no report."""
    (tmp_path / "run.1").touch()
    (tmp_path / "run.2").write_bytes(bytes(4096))
    assert read_reports(tmp_path / "run") == ()
    (tmp_path / "run.3").write_bytes(b"anything")
    with pytest.raises(VirtualGpuError, match="is not a virtual GPU's report"):
        read_reports(tmp_path / "run")
