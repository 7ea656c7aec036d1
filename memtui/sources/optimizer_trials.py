"""What optimizers will make at their first step: tried out in a process apart, which only takes idle processor time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Optional

import psutil

from memtui import optimizing
from memtui.agent import REHEARSAL
from memtui.session.readings import OptimizerTrial
from memtui.session.session import Session
from memtui.wire.frames import Optimizer, ParameterGroup, Recipe

from .environ import environment_of

_PROGRAM = pathlib.Path(optimizing.__file__).with_name("inside.py")
_SECONDS = 120.0
#: Importing torch takes some of the host's memory, which the training may need.
_LEAST_AVAILABLE_BYTES = 2 << 30
#: Parameters of fewer bytes are not worth a process: what torch's own classes make of them is known well enough.
_LEAST_BYTES = 64 << 20
_BLOCK_BYTES = 512
#: What the training's own environment must not do to this process: watch it, give it a device, or its report file.
_DROPPED = ("MEMTUI_", "VGPU_REPORT")
_HIDDEN = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class OptimizerTrials:
    """Tries each optimizer of a process once, before its first step; `hear` gets what came of it.

    Only for a process of this very user on this machine, with the interpreter that it really runs: the class is
    imported from where the process says it has it.
    """

    def __init__(self, hear: Callable[[OptimizerTrial], None]) -> None:
        self._hear = hear
        self._begun: set[tuple[str, str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(self, session: Session) -> None:
        """Begins what the newest description of the model asks for; in an event loop."""
        if session.model is None or session.hello is None or session.pid is None:
            return
        for optimizer in session.model.optimizers:
            recipe = optimizer.recipe
            for device, size in optimizer.trainable_bytes.items():
                if recipe is None or (size < _LEAST_BYTES and recipe.where.startswith("torch.optim.")):
                    continue
                key = (recipe.where, device, size)
                if key not in self._begun:
                    self._begun.add(key)
                    self.begin(session.pid, session.hello.executable, optimizer, device)

    def begin(self, pid: int, executable: str, optimizer: Optimizer, device: str) -> None:
        """Begins one trial."""
        task = asyncio.create_task(self._try(pid, executable, optimizer, device))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tell(self, trial: OptimizerTrial) -> None:
        """Tells what came of a trial."""
        self._hear(trial)

    async def stop(self) -> None:
        """Ends what is under way."""
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _try(self, pid: int, executable: str, optimizer: Optimizer, device: str) -> None:
        assert optimizer.recipe is not None
        trial = OptimizerTrial(
            time.monotonic_ns(), optimizer.recipe.where, device, optimizer.trainable_bytes.get(device, 0)
        )
        refused = _refusal(pid, executable, optimizer.recipe)
        figures: dict[str, Any] = {"reason": refused}
        if not refused:
            try:
                figures = figures_of(await _ask(pid, executable, request_of(optimizer.recipe, device)))
            except (OSError, LookupError, TypeError, ValueError, asyncio.TimeoutError) as error:
                figures = {"reason": f"its trial failed: {type(error).__name__}: {error}"[:300]}
        self.tell(dataclasses.replace(trial, time_ns=time.monotonic_ns(), **figures))


def request_of(recipe: Recipe, device: str) -> dict[str, Any]:
    """What the program is asked: the recipe, with the parameters of one device."""
    groups = [_group(group, device) for group in recipe.groups]
    return {
        "where": recipe.where,
        "folder": recipe.folder,
        "attributes": recipe.attributes,
        "groups": [group for group in groups if group["parameters"]],
    }


def _group(group: ParameterGroup, device: str) -> dict[str, Any]:
    runs = [
        {"shape": list(run.shape), "dtype": run.dtype, "count": run.count}
        for run in group.parameters
        if run.device == device
    ]
    return {"options": group.options, "device": device, "parameters": runs}


def figures_of(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer's figures, by the names of OptimizerTrial."""
    refused = answer.get("refused")
    if refused:
        return {"reason": str(refused)}
    sizes = [_block(size) for size in answer["sizes"]]
    made, events = sizes, answer["first"]
    if not events:  # a fused step makes nothing but its state
        made = [_block(size) for size in answer["state"]]
        events = list(range(len(made)))
    return {
        "state_bytes": sum(map(_block, answer["state"])),
        "sizes": tuple(made),
        "events": tuple(events),
        "first_bytes": _highest(answer["first"], sizes),
        "later_bytes": _highest(answer["later"], sizes),
        "decided": bool(answer["decided"]),
    }


def _block(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _highest(events: Optional[Iterable[int]], sizes: list[int]) -> Optional[int]:
    if events is None:
        return None
    held = highest = 0
    for event in events:
        held += sizes[event] if event >= 0 else -sizes[-event - 1]
        highest = max(highest, held)
    return highest


def _refusal(pid: int, executable: str, recipe: Recipe) -> str:
    """Why the class is not tried; empty where it is."""
    reasons: tuple[tuple[bool, str], ...] = (
        (
            recipe.where.startswith("__main__:"),
            "its class is in the script itself: that cannot be imported without running it",
        ),
        ("<locals>" in recipe.where, "its class is made inside a function: it cannot be imported"),
        (not _is_own(pid), "the process is another user's: nothing of it is run"),
        (not _is_interpreter(executable, pid), "its interpreter cannot be run from here"),
        # What is imported outside of the layer that is thrown away could write anywhere.
        (REHEARSAL in environment_of(pid), "the program is only tried out: its class is not imported elsewhere"),
        (
            psutil.virtual_memory().available < _LEAST_AVAILABLE_BYTES,
            "too little of the host's memory is available to try it",
        ),
    )
    return next((text for applies, text in reasons if applies), "")


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _is_interpreter(executable: str, pid: int) -> bool:
    """Whether that is what the process runs, whatever it says."""
    try:
        return bool(executable) and os.path.samefile(executable, f"/proc/{pid}/exe")
    except OSError:
        return False


async def _ask(pid: int, executable: str, request: dict[str, Any]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        executable,
        str(_PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(pid),
        cwd=f"/proc/{pid}/cwd",
        start_new_session=True,
    )
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))  # only time that nobody else wants
    try:
        out, _ = await asyncio.wait_for(process.communicate(json.dumps(request).encode()), _SECONDS)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    answer = json.loads(out or b"{}")
    if not isinstance(answer, dict) or not (answer.get("refused") or isinstance(answer.get("state"), list)):
        return {"refused": f"its trial ended with status {process.returncode}"}
    return answer


def _environment(pid: int) -> dict[str, str]:
    """The training's own, without what would watch this process or give it a device."""
    found = {name: value for name, value in environment_of(pid).items() if not name.startswith(_DROPPED)}
    if "PYTHONPATH" in found:
        paths = found["PYTHONPATH"].split(os.pathsep)
        found["PYTHONPATH"] = os.pathsep.join(path for path in paths if not path.endswith("/agent/bootstrap"))
    return {**found, **_HIDDEN}
