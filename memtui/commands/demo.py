"""`memtui demo`: a small GPT on whatever this machine has."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import signal
import sys
import tempfile
from typing import BinaryIO

import memtui.examples
from memtui.analysis.analyst import Analyst
from memtui.cli import CommandError
from memtui.sources.monitor import Monitor
from memtui.sources.program import LaunchFailed
from memtui.sources.program_end import end_program

from .attach import watch_lines
from .lastwords import exception_line, last_line
from .program import current_folder, with_agent
from .run import launch_failed, open_log, run_in_app
from .screen import wants_app

_LABEL = "gpt.py (demo)"
_LAST_WORDS_BYTES = 65_536
_LEAST_BYTES = 1 << 29


def demo(options: argparse.Namespace) -> int:
    """Trains and shows it; the training ends with the demo, unless it is left running from the app."""
    if importlib.util.find_spec("torch") is None:
        raise CommandError("the demo trains a model and needs PyTorch beside memtui: pip install 'memtui[demo]'")
    env = with_agent(exact_peaks=options.exact_peaks)
    if options.virtual_gpu is not None:
        env = _on_virtual_gpu(env, options.virtual_gpu)
    argv = [sys.executable, str(pathlib.Path(memtui.examples.__file__).with_name("gpt.py"))]
    if options.virtual_gpu is not None:
        argv += ["--pace", "0.6"]
    if wants_app(options):
        return run_in_app(argv, env, _LABEL, options)
    return _lines(argv, env, options)


def _on_virtual_gpu(env: dict[str, str], size: str) -> dict[str, str]:
    from memtui.sources.virtual_driver import use_driver_of
    from memtui.virtual_gpu import VirtualGpuError, environment, profile_of
    from memtui.virtual_gpu.profile import parse_size

    try:
        if parse_size(size) < _LEAST_BYTES:
            raise CommandError(f"{size} of memory has no room for a model: memtui demo --virtual-gpu 24GiB", 2)
        env = environment(profile_of(memory=size, context="300MiB"), base=env)
    except VirtualGpuError as error:
        raise CommandError(str(error)) from None
    use_driver_of(env)
    return env


def _lines(argv: list[str], env: dict[str, str], options: argparse.Namespace) -> int:
    """Lines on standard output; what the training itself prints is left out, but for why it failed."""
    from memtui.sources.program_launch import launch

    log = open_log(options)
    # Not this process's own standard error: whoever reads that waits until everybody has closed it.
    with open(os.devnull, "r+b") as null, tempfile.TemporaryFile() as errors:
        try:
            start = launch(
                argv, env, current_folder(), pty=False, stdio=(null.fileno(), null.fileno(), errors.fileno())
            )
        except LaunchFailed as error:
            raise launch_failed(error) from None
        monitor = Monitor(
            start.pid, supervised=True, collect=False, log=log, label=_LABEL, analyst=Analyst(asked=options.max_shape)
        )
        # Under nohup it goes on when the terminal goes; else the training must not be left behind.
        hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
        try:
            watch_lines(monitor, options, hangup)
        finally:
            status = end_program(start)  # it is a demo: nothing is lost with it
        if status is None or status.shell_code == 0:
            return 0
        why = _last_error(errors)
    raise CommandError(f"the training failed: {status}" + (f": {why}" if why else ""), status.shell_code)


def _last_error(errors: BinaryIO) -> str:
    """The line of a traceback that names the exception."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - _LAST_WORDS_BYTES))
    said = errors.read().decode(errors="replace")
    return exception_line(said) or last_line(said)
