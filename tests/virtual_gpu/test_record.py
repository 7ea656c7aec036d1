"""A training's allocator history as torch's own snapshot file: against the process's counters, and read by torch."""

from __future__ import annotations

import asyncio
import json
import pathlib
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memtui.cli import main
from memtui.snapshots.model import LIVE, open_snapshot
from memtui.snapshots.queries import Opened
from memtui.sources.history_client import History, HistoryRefused, ask_history
from memtui.sources.monitor import Monitor
from memtui.sources.snapshot_file import SnapshotFile
from memtui.wire import paths
from memtui.wire.frames import Frame
from memtui.wire.histories import HistoryNews
from tests.support import programs, virtual_gpu
from tests.support.supervised import runtime_folder
from tests.support.targets import attached, target, unload

pytestmark = pytest.mark.virtual_gpu

PROGRAM = programs.PROGRAMS / "recorded.py"
ROOT = PROGRAM.parents[2]
STEPS = 60

#: Torch's own reader of the file, and what it holds in sum.
TORCH = """
import json, pickle, sys
from torch.cuda import _memory_viz
with open(sys.argv[1], "rb") as file:
    data = pickle.load(file)
segments = [segment for segment in data["segments"] if segment["device"] == 0]
print(json.dumps({
    "trace": len(_memory_viz.trace_plot(data)) > 10_000,
    "segment": len(_memory_viz.segment_plot(data)) > 1_000,
    "sums": _memory_viz.segsum(data),
    "text": len(_memory_viz.trace(data)),
    "allocated": sum(segment["allocated_size"] for segment in segments),
    "blocks": sum(b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"),
    "reserved": sum(segment["total_size"] for segment in segments),
}))
"""


class Recorded:
    """What a program said of its steps, and the history that a viewer asked for in the midst of them."""

    def __init__(self, runtime: pathlib.Path, kind: str, *, steps: int = 1, devices: int = 1, settings: str = ""):
        environment = programs.virtual_environment_with_agent(runtime, memory="24GiB", count=devices)
        environment["PYTHONPATH"] += f":{ROOT}"
        environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
        self.history, self.refused = None, ""
        with programs.started(
            *(str(PROGRAM), kind, str(STEPS)), environment=environment, direct=False, stdout=-1, stderr=-1
        ) as process:
            assert process.stdout is not None
            first = [process.stdout.readline() for _ in range(4)]
            asked = threading.Thread(target=self._ask, args=(runtime / paths.agent_socket_name(process.pid), steps))
            asked.start()
            rest, errors = process.communicate(timeout=120)
            asked.join()
            assert process.returncode == 0, errors
        self.steps: list[dict[str, Any]] = [json.loads(line) for line in [*first, *rest.splitlines()]]
        self.last = self.steps.pop()

    def _ask(self, path: pathlib.Path, steps: int) -> None:
        try:
            self.history = ask_history(path, steps, stacks=True)
        except HistoryRefused as error:
            self.refused = str(error)

    @property
    def found(self) -> History:
        """The history; fails where it was refused."""
        assert self.history is not None, self.refused
        return self.history


def unwatched(kind: str) -> list[dict[str, Any]]:
    """What the program prints without an agent."""
    environment = programs.plain_environment() | programs.virtual_gpu.virtual_environment(memory="24GiB")
    environment["PYTHONPATH"] = str(ROOT)
    arguments = programs.command(str(PROGRAM), kind, str(STEPS), direct=False)
    printed = subprocess.run(arguments, env=environment, capture_output=True, timeout=120, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def read_by_torch(path: pathlib.Path) -> dict[str, Any]:
    """What torch's own viewer makes of a file."""
    printed = subprocess.run([sys.executable, "-c", TORCH, str(path)], capture_output=True, timeout=120, check=False)
    assert printed.returncode == 0, printed.stderr
    told: dict[str, Any] = json.loads(printed.stdout)
    return told


def plain(value: Any) -> bool:
    """Whether it is made of Python's own containers, words and numbers alone."""
    if type(value) in (list, tuple):
        return all(map(plain, value))
    if type(value) is dict:
        return all(type(key) is str and plain(item) for key, item in value.items())
    return value is None or type(value) in (str, int, bool, float)


@pytest.mark.parametrize(
    ("kind", "steps", "settings"), [("gpt", 1, ""), ("gpt", 3, "expandable_segments:True"), ("accumulated", 2, "")]
)
def test_the_file_is_torchs_own(tmp_path: pathlib.Path, kind: str, steps: int, settings: str) -> None:
    """Its totals are the process's counters at the end of the last step, and both viewers read it."""
    recorded = Recorded(tmp_path, kind, steps=steps, settings=settings)
    history = recorded.found
    assert plain(history.snapshot)
    figures = history.figures
    assert figures["steps"] == steps
    said = recorded.steps[figures["step"] + steps - 1]

    path = tmp_path / "made.pickle"
    with SnapshotFile(str(path)) as file:
        file.write(history.snapshot)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = read_by_torch(path)
    assert told["allocated"] == told["blocks"] == figures["allocated_bytes"] == said["said"][-1][1]
    assert told["reserved"] == figures["reserved_bytes"]
    assert (told["trace"], told["segment"]) == (True, True)
    assert told["text"] > 1000
    assert "Reserved" in told["sums"] or "total" in told["sums"].lower()

    snapshot = open_snapshot(str(path))
    opened = Opened(snapshot, snapshot.device("cuda:0"))
    assert not snapshot.notices
    assert opened.device.allocated_bytes == said["said"][-1][1]
    assert opened.device.reserved_bytes == figures["reserved_bytes"]
    assert len(opened.device.trace) == figures["events"]
    allocations = [event for event in opened.device.trace if event["action"] == "alloc"]
    assert len(allocations) == figures["allocations"]
    # The batches of this program grow, and so does the peak in each step. Events tell what was asked for; a block that
    # is not worth splitting is up to 1 MiB larger.
    if kind == "gpt":
        assert abs(opened.course.peak_bytes - said["peak"]) < 2 << 20
    lines = {frame["filename"].rpartition("/")[2] for event in allocations for frame in event["frames"]}
    assert {"recorded.py", "gpt.py" if kind == "gpt" else "module.py"} <= lines


def test_every_device(tmp_path: pathlib.Path) -> None:
    recorded = Recorded(tmp_path, "split", devices=2)
    snapshot = recorded.found.snapshot
    said = recorded.steps[recorded.found.figures["step"]]
    assert len(snapshot["device_traces"]) == 2
    for index, allocated in enumerate(said["end"]):
        blocks = [block for s in snapshot["segments"] if s["device"] == index for block in s["blocks"]]
        assert sum(block["size"] for block in blocks if block["state"] == LIVE) == allocated
        assert any(event["action"] == "alloc" for event in snapshot["device_traces"][index])


@pytest.mark.parametrize("kind", ["mlp", "compiled"])
def test_the_training_is_untouched(tmp_path: pathlib.Path, kind: str) -> None:
    """Losses, random states, statistics and modules are as without; no history is left on."""
    alone = unwatched(kind)
    recorded = Recorded(tmp_path, kind, steps=2)
    assert recorded.found.figures["steps"] == 2
    assert [*recorded.steps, recorded.last] == alone
    assert not recorded.last["recording"]


def test_a_program_that_records_for_itself_is_left_alone(tmp_path: pathlib.Path) -> None:
    """It is refused, with the reason, and the program's history is as without an agent."""
    recorded = Recorded(tmp_path, "always+mlp")
    assert recorded.refused == "the program records a memory history of its own, which is left alone"
    assert recorded.last == unwatched("always+mlp")[-1]
    assert recorded.last["recording"]


def test_a_program_that_begins_to_record_meanwhile_has_its_way(tmp_path: pathlib.Path) -> None:
    """Ours goes at once, without a trace in the program's, and the program's stays."""
    recorded = Recorded(tmp_path, "meanwhile+mlp", steps=STEPS)
    assert recorded.refused == "the program began to record a memory history of its own"
    assert recorded.last["older"] == 0
    assert recorded.last["entries"] > 100
    assert recorded.last["recording"]


#: Trains until its standard input ends.
TRAINING = """
import select, sys, time, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.randn(64, 1024, device="cuda")
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    loss = model(rows).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
print(torch._C._cuda_isHistoryEnabled(), flush=True)
"""


@pytest.fixture
def training(tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    environment = virtual_gpu.virtual_environment(memory="4GiB")
    with runtime_folder(tmp_path), target(TRAINING, tmp_path, environment=environment) as process:
        yield process


def still_trains(process: subprocess.Popen[str]) -> bool:
    """It has no history on, and comes to its own end."""
    said, _ = process.communicate("\n", timeout=60)
    return said == "False\n" and process.returncode == 0


def test_a_process_without_an_agent(
    training: subprocess.Popen[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user types it: the agent comes and goes, a file that is there stays, and what was written opens."""
    path = tmp_path / "out.pickle.gz"
    words = ["record", "--pid", str(training.pid), "--steps", "3", "--stacks", "--output", str(path)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{path} is written (")
    assert "3 steps of" in said
    programs.wait_for(lambda: not list(tmp_path.glob("agent-*")), what="the agent's leaving")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    written = path.read_bytes()
    assert main(words) == 1
    assert capsys.readouterr().err == f"memtui: {path} is there already: name another file, or say --overwrite\n"
    assert path.read_bytes() == written
    assert main([*words, "--overwrite"]) == 0
    assert path.read_bytes() != written
    capsys.readouterr()
    assert main(["open", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith((".", "out"))) == ["out.pickle.gz"]
    assert still_trains(training)


def test_a_viewer_that_goes_takes_its_wish_with_it(training: subprocess.Popen[str], tmp_path: pathlib.Path) -> None:
    """Also while steps are recorded; the next viewer is served, and one at a time."""
    path = attached(training.pid).socket
    assert path is not None
    recording, cancel = threading.Event(), threading.Event()
    refusals: list[str] = []

    def first() -> None:
        with pytest.raises(HistoryRefused) as caught:
            ask_history(path, 1000, told=lambda state: recording.set() if state == "recording" else None, cancel=cancel)
        refusals.append(str(caught.value))

    thread = threading.Thread(target=first)
    thread.start()
    assert recording.wait(60)
    with pytest.raises(HistoryRefused, match="a viewer is getting a history already"):
        ask_history(path, 1)
    cancel.set()
    thread.join()
    assert refusals == ["taken back: nothing is recorded"]

    def later() -> Any:
        try:
            return ask_history(path, 2)
        except HistoryRefused as error:
            if "already" not in str(error):  # that the first one has gone has not been noticed yet
                raise
            return None

    assert programs.wait_for(later).figures["steps"] == 2
    with programs.AgentConnection(tmp_path, training.pid) as viewer:
        assert viewer.until(lambda message: isinstance(message, Frame)).devices
    unload(path)
    assert still_trains(training)


def test_the_monitor_saves_one_beside_the_screen(
    training: subprocess.Popen[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file each time, in the folder it was started in; its states are told in the app's loop."""
    agent = attached(training.pid).socket
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    told: list[list[str]] = [[], []]

    async def save(monitor: Monitor, into: list[str]) -> HistoryNews:
        end = asyncio.get_running_loop().create_future()

        def hear(news: HistoryNews) -> None:
            into.append(news.state)
            if news.state in ("written", "refused"):
                end.set_result(news)

        assert monitor.save_history(hear) is None
        assert monitor.save_history(hear) == "a step's history is being recorded already"
        return await asyncio.wait_for(end, 60)

    async def watch() -> list[HistoryNews]:
        monitor = Monitor(training.pid)
        await monitor.start()
        news = [await save(monitor, states) for states in told]
        await monitor.stop()
        return news

    written = asyncio.run(watch())
    assert told == [["waiting", "recording", "sending", "written"]] * 2
    names = [f"memtui-{training.pid}.pickle", f"memtui-{training.pid}-2.pickle"]
    assert [news.text for news in written] == names
    for news in written:
        assert open_snapshot(news.text).device("cuda:0").allocated_bytes == news.figures["allocated_bytes"]
    assert agent is not None
    unload(agent)
    assert still_trains(training)


def test_stacks_are_left_out_where_they_cost_too_much(tmp_path: pathlib.Path) -> None:
    """These steps hold nothing but allocations, on a device that computes nothing; it is said."""
    environment = virtual_gpu.virtual_environment(memory="4GiB")
    code = TRAINING.replace("    time.sleep(0.02)\n", "    for _ in range(2000): torch.empty(1024, device='cuda')\n")
    with runtime_folder(tmp_path), target(code, tmp_path, environment=environment) as process:
        path = attached(process.pid).socket
        assert path is not None
        bare, forced = ask_history(path, 1), ask_history(path, 1, stacks=True)
        for history, is_bare in ((bare, True), (forced, False)):
            allocations = [event for event in history.snapshot["device_traces"][0] if event["action"] == "alloc"]
            assert len(allocations) > 2000
            assert all(not event["frames"] for event in allocations) == is_bare
            assert ("call stacks were left out" in " ".join(history.notices)) == is_bare
        # So many steps as fit what is kept, and none of it is lost.
        many = ask_history(path, 100)
        assert 2 < many.figures["steps"] < 100
        assert many.figures["events"] < 100_000
        assert f"{many.figures['steps']} of the 100 steps" in " ".join(many.notices)
        unload(path)
        assert still_trains(process)
