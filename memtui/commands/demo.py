"""`memtui demo`: a small GPT on whatever this machine has."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import signal
import sys

import memtui.examples
from memtui.cli import CommandError
from memtui.sources.monitor import Monitor
from memtui.sources.program import LaunchFailed

from .attach import watch_lines
from .program import with_agent
from .run import launch_failed, open_log, run_in_app
from .screen import wants_app

_LABEL = "gpt.py (demo)"


def demo(options: argparse.Namespace) -> int:
    """Trains and shows it; the training ends with the demo, unless it is left running from the app."""
    if importlib.util.find_spec("torch") is None:
        raise CommandError("the demo trains a model and needs PyTorch beside memtui: pip install 'memtui[demo]'")
    env = with_agent()
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

    try:
        env = environment(profile_of(memory=size, context="300MiB"), base=env)
    except VirtualGpuError as error:
        raise CommandError(str(error)) from None
    use_driver_of(env)
    return env


def _lines(argv: list[str], env: dict[str, str], options: argparse.Namespace) -> int:
    """Lines on standard output; what the training itself prints is left out."""
    from memtui.sources.program_launch import launch

    log = open_log(options)
    devnull = os.open(os.devnull, os.O_RDWR)
    try:
        start = launch(argv, env, os.getcwd(), pty=False, stdio=(devnull, devnull, 2))
    except LaunchFailed as error:
        raise launch_failed(error) from None
    finally:
        os.close(devnull)
    monitor = Monitor(start.pid, supervised=True, log=log, label=_LABEL)
    try:
        watch_lines(monitor, options)
    finally:
        if monitor.program is not None and monitor.program.running:
            _end(start.pid)
    return 0


def _end(pid: int) -> None:
    # It is a demo: nothing is lost with it.
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:
        os.kill(pid, signal.SIGKILL)
