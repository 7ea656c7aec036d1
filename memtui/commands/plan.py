"""`memtui plan`: whether a program fits a GPU, found by running it on a virtual one."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, TypeVar

from memtui.analysis import units
from memtui.cli import CommandError
from memtui.planning.answer import Answer, rising
from memtui.planning.answer_text import answer_lines, search_lines, shown
from memtui.planning.capability import Capability, probe
from memtui.planning.choices import applied, combinations, parse_choices
from memtui.planning.comparison import Compared, comparison_lines
from memtui.planning.errors import PlanningError
from memtui.planning.host_memory import HostMemory
from memtui.planning.rehearsal import Rehearsal
from memtui.planning.search import Search, Tried, largest
from memtui.planning.setting import Setting, parse_setting, with_value
from memtui.planning.throwaway import throwaway
from memtui.planning.trial import Trial
from memtui.session.session import Session
from memtui.sources.program import LaunchFailed
from memtui.sources.virtual_driver import use_driver_of
from memtui.virtual_gpu import VirtualGpuError, environment
from memtui.virtual_gpu.card import Card
from memtui.virtual_gpu.card_list import list_lines
from memtui.virtual_gpu.cards import card_for, cards, profile_for
from memtui.virtual_gpu.command import torch_of_program
from memtui.virtual_gpu.profile import Profile
from memtui.wire import paths

from .ownline import writable
from .planline import PlanLine
from .program import current_folder, resolve, with_agent

#: What the program gets where the shortfall is to be measured: more than any card has.
_ENDLESS = "1TiB"
_ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_DOES_NOT_FIT, _UNKNOWN, _NOT_FOUND = 3, 4, 127


def plan(options: argparse.Namespace) -> int:
    """Prints the answer; 0 where it fits, 3 where it does not, 4 where that is not known. Raises CommandError."""
    if options.list:
        _print(list_lines(cards(), shutil.get_terminal_size().columns))
        return 0
    if not options.gpu:
        among = any(word.partition("=")[0] == "--gpu" for word in options.program or [])
        where = "; --gpu is among the program's own words here" if among else ""
        example = "memtui plan --gpu a100-80g train.py (memtui plan --list shows them)"
        raise CommandError(f"say for which GPU, before the script: {example}{where}", 2)
    if not options.program:
        raise CommandError("name a program: memtui plan --gpu a100-80g train.py", 2)
    _check_words(options)
    argv, label = resolve(options.program)
    if shutil.which(argv[0]) is None and not os.path.exists(argv[0]):
        raise CommandError(f"cannot run {argv[0]}: No such file or directory", _NOT_FOUND)
    planner = None
    try:
        planner = _Planner(argv, label, options)
        if options.live:
            return planner.live()
        if options.fit:
            return planner.fit(parse_setting(options.fit[0]))
        return planner.answer()
    except PlanningError as error:
        raise CommandError(str(error)) from None
    except VirtualGpuError as error:
        # The list of cards is this command's.
        raise CommandError(f"{error.problem}: {error.fix}".replace("--list", "memtui plan --list")) from None
    except LaunchFailed as error:
        raise CommandError(str(error)) from None
    finally:
        if planner is not None:
            planner.line.clear()


def _check_words(options: argparse.Namespace) -> None:
    """Raises CommandError where two options do not go together."""
    fit, compare = options.fit or [], options.compare or []
    if len(fit) > 1:
        raise CommandError("--fit searches one setting: give it once, and the others values of your choice", 2)
    if fit and compare:
        raise CommandError("--fit finds one value and --compare puts several beside each other: give one of them", 2)
    if options.live and (fit or compare):
        raise CommandError("--live shows one run: leave --fit and --compare out", 2)


_Result = TypeVar("_Result")


class _Planner:
    """One command's runs."""

    def __init__(self, argv: list[str], label: str, options: argparse.Namespace) -> None:
        self._argv, self._label, self._options = argv, label, options
        self._interrupted = False
        self._cards = [card_for(name) for text in options.gpu for name in text.split(",")]
        host = HostMemory()
        self._env = with_agent(rehearsal=options.steps or 0, host_bytes=host.kept_bytes(options.gpus))
        self._cwd = current_folder()
        self._torch: Optional[Path] = torch_of_program(shutil.which(argv[0]) or argv[0])
        self._capability = _capability(self._cwd, self._env, keep=options.keep)
        self.line = PlanLine(sys.stderr)
        self._rehearsal = Rehearsal(
            argv,
            self._cwd,
            self._env,
            self._capability,
            torch_location=self._torch,
            keep=options.keep,
            steps=options.steps,
            host=host,
        )

    def answer(self) -> int:
        """The answer for each GPU and each combination of settings, and the table of several."""
        rows: list[Compared] = []
        for card, settings in self._asked():
            rows.append(Compared(settings, self._until_interrupted(self._answer(card, settings))))
            if self._interrupted:
                break
        self.line.clear()
        width = shutil.get_terminal_size().columns
        compares = len(self._asked()) > 1
        if self._options.json:
            plain = [row.as_json() for row in rows]
            print(json.dumps(plain if compares else plain[0], indent=1))
        elif compares:
            _print(comparison_lines(rows, self._label, width))
        else:
            _print(answer_lines(rows[0].answer, self._label, width))
        for row in rows:
            self._tell_output(row.answer.told)
        missing = len(self._asked()) - len(rows)
        if missing:
            print(f"memtui: interrupted: {missing} of {missing + len(rows)} were not tried", file=sys.stderr)
        return max([_UNKNOWN] * bool(missing) + [_status(row.answer) for row in rows])

    def _asked(self) -> list[tuple[Card, dict[str, str]]]:
        settings = combinations(parse_choices(self._options.compare or []))
        return [(card, each) for card in self._cards for each in settings]

    def _tell_output(self, trial: Trial) -> None:
        if self._options.output or trial.ended == "failed":
            sys.stdout.flush()
            sys.stderr.write(f"\nthe end of its output:\n{shown(trial.output)}")

    async def _answer(self, card: Card, settings: Mapping[str, str]) -> Answer:
        profile = self._profile(card)
        argv, variables = applied(settings, self._argv)
        what = " ".join((*(f"{name}={value}" for name, value in settings.items()), f"on {card.name}"))
        runs = [self._rehearsal.run(profile, argv=argv, extra=variables, progress=self._progress(what))]
        if self._wants_expandable() and not settings:
            runs.append(self._rehearsal.run(profile, extra=self._expandable(), beside=True))
        found = await _all_of(runs)
        capped, expandable = found[0], found[1] if len(found) > 1 else None
        uncapped = None
        if capped.out_of_memory and not self._interrupted:
            endless = profile_for(_ENDLESS, self._options.gpus)
            uncapped = await self._rehearsal.run(
                _with_memory(profile, endless),
                argv=argv,
                extra=variables,
                progress=self._progress("with more memory, for what is short"),
            )
        context = self._options.context
        return Answer(
            gpu=_words(card),
            capped=capped,
            uncapped=uncapped,
            expandable=expandable,
            context_known=context is not None or card.context_bytes is not None,
            context_source="" if context is not None else f"{card.context.kind}: {card.context.source}",
        )

    def _profile(self, card: Card) -> Profile:
        profile = profile_for(card.name, self._options.gpus, context=self._options.context)
        if profile.context_bytes >= card.total_bytes:
            raise PlanningError(f"a context of {self._options.context} fills {_words(card)}", "say a smaller --context")
        return profile

    def _wants_expandable(self) -> bool:
        return not any("expandable_segments" in self._env.get(name, "") for name in _ALLOCATOR_SETTINGS)

    def _expandable(self) -> dict[str, str]:
        given = next((name for name in _ALLOCATOR_SETTINGS if self._env.get(name)), _ALLOCATOR_SETTINGS[0])
        before = self._env.get(given, "")
        return {given: ",".join(filter(None, (before, "expandable_segments:True")))}

    def _progress(self, what: str) -> _Progress:
        return _Progress(self.line, what)

    def fit(self, setting: Setting) -> int:
        """The largest value that fits, and the curve."""
        if len(self._cards) > 1:
            raise PlanningError("--fit is for one GPU", "name one with --gpu")
        search = self._until_interrupted(self._search(setting, self._cards[0]))
        self.line.clear()
        if self._options.json:
            tried = [
                {"value": each.value, "fits": each.fits, "peak_device_bytes": each.need_bytes} for each in search.tried
            ]
            found = {"setting": setting.name, "largest": search.best, "changes_nothing": search.changes_nothing}
            print(json.dumps({**found, "runs": tried}, indent=1))
        else:
            _print(search_lines(search, setting.name, _words(self._cards[0]), shutil.get_terminal_size().columns))
        return 0 if search.best is not None else _DOES_NOT_FIT

    async def _search(self, setting: Setting, card: Card) -> Search:
        profile = self._profile(card)
        search = Search(setting.low, setting.high)

        async def run(value: int) -> Tried:
            argv, env = with_value(setting.name, self._argv, {}, str(value))
            what = f"{setting.name} {value}, run {len(search.tried) + 1}"
            trial = await self._rehearsal.run(profile, argv=argv, extra=env, progress=self._progress(what))
            if self._interrupted:
                raise asyncio.CancelledError  # what a run that was cut short took tells nothing
            device = trial.fullest
            if trial.ended == "rising":
                problem = f"with {setting.name} {value} {rising(trial)} no value can be said to fit"
                raise PlanningError(problem, f"plan one value: memtui plan --gpu {card.name} ...")
            if trial.ended == "host memory":
                taken = units.size(trial.host.taken_bytes)
                problem = f"with {setting.name} {value} the program took {taken} of this machine's memory"
                raise PlanningError(problem, "plan on a machine with more, or say smaller values")
            if device is None or (trial.ended == "failed" and not trial.steps):
                why = trial.error or "it says no why"
                problem = f"with {setting.name} {value} the program failed: {why}"
                raise PlanningError(problem, "see that it takes this argument")
            search.room_bytes = device.usable_bytes
            return Tried(value, not trial.out_of_memory, None if trial.out_of_memory else device.peak_device_bytes)

        return await largest(search, run)

    def _until_interrupted(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Runs it; a signal to end cancels it, so that programs are ended and what was seen until then is told."""

        async def guarded() -> _Result:
            task = asyncio.ensure_future(coroutine)

            def end() -> None:
                self._interrupted = True
                task.cancel()

            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, end)
            return await task

        try:
            return asyncio.run(guarded())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def live(self) -> int:
        """The program in the app, on the first of the GPUs."""
        from .run import run_in_app

        env = environment(self._profile(self._cards[0]), self._torch, base=self._env)
        use_driver_of(env)
        shared = _shared(env)
        with throwaway(
            self._argv, self._cwd, env, self._capability, writable=shared, keep=self._options.keep
        ) as program:
            return run_in_app(program.command, program.environment, f"{self._label} (plan)", self._options)


async def _all_of(runs: Sequence[Coroutine[Any, Any, Trial]]) -> list[Trial]:
    """All results; where this is cancelled, they are, and give what they have. Raises what the first of them raises."""
    tasks = [asyncio.ensure_future(run) for run in runs]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
    finally:
        if any(task.done() and not task.cancelled() and task.exception() for task in tasks):
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
    return [task.result() for task in tasks]


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print(writable(sys.stdout, line))


class _Progress:
    """Tells on one line how far a run is."""

    def __init__(self, line: PlanLine, what: str) -> None:
        self._line, self._what = line, what

    def __call__(self, session: Session) -> None:
        frame = session.frame
        self._line.show(self._what, None if frame is None else frame.step, session)


def _words(card: Card) -> str:
    return card.full_name if card.group != "size" else f"{card.name} of memory"


def _shared(env: dict[str, str]) -> list[Path]:
    return [Path(env["VGPU_SHM"]).parent, paths.runtime_folder()]


def _capability(cwd: str, env: dict[str, str], *, keep: bool) -> Capability:
    if keep:
        return Capability(False, False, Path(os.path.abspath(os.sep)))
    return probe(cwd, env)


def _with_memory(profile: Profile, endless: Profile) -> Profile:
    return replace(profile, memory_bytes=endless.memory_bytes, driver_reserved_bytes=0)


def _status(answer: Answer) -> int:
    return {True: 0, False: _DOES_NOT_FIT, None: _UNKNOWN}[answer.fits]
