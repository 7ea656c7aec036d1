"""`memtui record`: the allocator's history of a running training's next steps, as torch's own snapshot file."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

from memtui.analysis.history_words import recorded_lines
from memtui.cli import CommandError
from memtui.sources.agent_probe import find_agent
from memtui.sources.history_client import History, HistoryRefused, ask_history
from memtui.sources.snapshot_file import SnapshotFile, free_name
from memtui.sources.sockets import find_socket

from .attach import check_agent, check_process
from .entry import enter, unload

#: As `memtui open` and PyTorch's viewer know it.
_ENDINGS = (".pickle", ".pickle.gz", ".pkl", ".pkl.gz")
_STATES = {
    "waiting": "waiting for a step to end; ctrl-c takes it back",
    "recording": "recording",
    "sending": "recorded; reading it, a little at a time",
}


def record(options: argparse.Namespace) -> int:
    """Records and writes; raises CommandError."""
    pid: int = options.pid
    if options.output is not None and not options.output.endswith(_ENDINGS):
        stem = os.path.splitext(options.output)[0]
        raise CommandError(f"a snapshot's name ends in .pickle or .pickle.gz: --output {stem}.pickle", 2)
    supervised = find_socket("run", pid) is not None
    if not supervised:
        check_process(pid)
    path = options.output or free_name("", f"memtui-{pid}")
    try:
        with SnapshotFile(path, overwrite=options.overwrite) as file:
            history = _history(options, supervised)
            size_bytes = file.write(history.snapshot)
    except FileExistsError:
        raise CommandError(f"{path} is there already: name another file, or say --overwrite") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from None
    for line in recorded_lines(history.figures, history.notices, path, size_bytes):
        print(line)
    sys.stdout.flush()
    return 0


def _history(options: argparse.Namespace, supervised: bool) -> History:
    """From the agent, which comes and goes where there is none."""
    pid: int = options.pid
    enters = not check_agent(pid, supervised)
    if enters and supervised:
        raise CommandError(f"no PyTorch in process {pid} and what it has started so far")
    if enters:
        enter(pid)
    try:
        return _asked(options, supervised)
    finally:
        if enters:
            unload(pid)


def _asked(options: argparse.Namespace, supervised: bool) -> History:
    pid: int = options.pid
    if supervised:
        from memtui.sources.relatives import choose_agent

        pid = choose_agent(pid) or pid
    agent = find_agent(pid)
    if agent is None:
        raise CommandError(f"process {pid} has no agent any more")
    cancel = threading.Event()
    before = {number: signal.signal(number, lambda *_: cancel.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return ask_history(agent, options.steps, stacks=options.stacks, told=_tell, cancel=cancel)
    except HistoryRefused as error:
        raise CommandError(str(error), 130 if cancel.is_set() else 1) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(state: str) -> None:
    if state in _STATES and os.isatty(2):
        print(f"memtui: {_STATES[state]}", file=sys.stderr, flush=True)
