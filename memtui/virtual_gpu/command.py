"""`python -m memtui.virtual_gpu`: run a command on virtual GPUs."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from memtui.virtual_gpu.build import build, find_compiler
from memtui.virtual_gpu.card_list import list_lines
from memtui.virtual_gpu.cards import cards, profile_for
from memtui.virtual_gpu.errors import VirtualGpuError
from memtui.virtual_gpu.launch import environment
from memtui.virtual_gpu.profile import Profile, parse_compute_capability, parse_size, parse_sizes
from memtui.virtual_gpu.torch_install import find_torch, torch_location_of

_CHECK_PROGRAM = "import torch; torch.zeros(1, device='cuda'); print(torch.cuda.get_device_name())"
_CHECK_SECONDS = 120

_CANNOT_RUN = 126
_NOT_FOUND = 127


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse a command line and do it; returns the exit status, or does not return where a command replaces it."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        if options.list:
            return _list()
        if options.build:
            print(build(find_torch(options.torch)).path)
            return 0
        if options.check:
            return _check(options)
        if not options.command:
            parser.error("name a command: python -m memtui.virtual_gpu -- python train.py")
        return _run(options)
    except VirtualGpuError as error:
        print(f"memtui: {error.problem}\n        {error.fix}", file=sys.stderr)
        return 1


def _list() -> int:
    try:
        print("\n".join(list_lines(cards(), shutil.get_terminal_size().columns)), flush=True)
    except BrokenPipeError:
        # The reader has seen enough; the interpreter would say that of standard output at its end as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m memtui.virtual_gpu",
        description="Run a command on virtual GPUs: torch's real CUDA allocator, without a GPU or a driver.",
    )
    parser.add_argument("--gpu", help="what the devices are like: a name of --list such as a100-80g, or a size")
    parser.add_argument("--memory", help="of each device, otherwise as --gpu says: 24GiB, or 24GiB,80GiB")
    parser.add_argument("--count", type=int, default=1, help="number of devices (default: %(default)s)")
    parser.add_argument("--name", help="the device's name, otherwise as --gpu says")
    parser.add_argument("--cc", help="compute capability, otherwise as --gpu says")
    parser.add_argument("--context", help="bytes of a CUDA context, per process and device: 400MiB")
    parser.add_argument("--report", action="store_true", help="each process says its peaks when it ends")
    parser.add_argument("--trace", action="store_true", help="say every notable call on standard error")
    parser.add_argument("--torch", type=Path, help="site-packages folder of the torch to build for")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--list", action="store_true", help="the GPUs that --gpu knows, and what is known of them")
    doing.add_argument("--build", action="store_true", help="only build the stand-ins, and print where they are")
    doing.add_argument("--check", action="store_true", help="say whether virtual GPUs work here, and why not")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command to run")
    return parser


def _profile(options: argparse.Namespace) -> Profile:
    """What --gpu names, or the default GPU, with what the other options say of it."""
    profile = dataclasses.replace(
        Profile() if options.gpu is None else profile_for(options.gpu),
        count=options.count,
        report=options.report,
        trace=options.trace,
    )
    if options.memory is not None:
        # The driver's share belongs to the memory of the card that was named.
        memory_bytes = parse_sizes(options.memory)
        profile = dataclasses.replace(profile, memory_bytes=memory_bytes, driver_reserved_bytes=0)
    if options.name is not None:
        profile = dataclasses.replace(profile, name=options.name)
    if options.cc is not None:
        profile = dataclasses.replace(profile, compute_capability=parse_compute_capability(options.cc))
    if options.context is not None:
        profile = dataclasses.replace(profile, context_bytes=parse_size(options.context))
    return profile


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[0] == "--" else options.command
    program = shutil.which(command[0]) if command else None
    if program is None:
        print(f"memtui: there is no command {command[0] if command else ''}", file=sys.stderr)
        return _NOT_FOUND
    location = options.torch or torch_of_program(program)
    variables = environment(_profile(options), location)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, command, variables)
    except OSError as error:
        print(f"memtui: cannot run {program}: {error.strerror}", file=sys.stderr)
        return _CANNOT_RUN


def torch_of_program(program: str) -> Path | None:
    """The torch that a Python program will import; `None` where this interpreter's is the best guess."""
    interpreter = _interpreter_of(program)
    if interpreter is None or os.path.abspath(interpreter) == os.path.abspath(sys.executable):
        return None
    location = torch_location_of(interpreter)
    if location is None:
        raise VirtualGpuError(f"{interpreter} has no torch", "name another interpreter, such as " + sys.executable)
    return location


def _interpreter_of(program: str) -> str | None:
    if os.path.basename(program).startswith("python"):
        return program
    try:
        with open(program, "rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    # torchrun, accelerate and their like are scripts that name their interpreter in the first line.
    words = first[2:].split() if first.startswith(b"#!") else []
    name = os.fsdecode(words[0]) if words else ""
    return name if os.path.basename(name).startswith("python") else None


def _check(options: argparse.Namespace) -> int:
    torch = find_torch(options.torch)
    folder = build(torch)
    print(f"torch {torch.version} at {torch.folder}")
    print(f"compiler {find_compiler()}")
    print(f"stand-ins {folder.path}")
    if options.torch is not None:
        return 0  # whose interpreter is not known
    answer = subprocess.run(
        [sys.executable, "-c", _CHECK_PROGRAM],
        env=environment(_profile(options)),
        capture_output=True,
        text=True,
        timeout=_CHECK_SECONDS,
        check=False,
    )
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or [f"exit status {answer.returncode}"]
        raise VirtualGpuError(f"torch does not see a virtual GPU: {last[0]}", "run with --trace to see why")
    print(f"works: {answer.stdout.strip()}")
    return 0
