"""`memtui attach ssh://…`: processes on other machines, over the user's own ssh, also beside one of this machine."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from memtui.analysis.analyst import Analyst
from memtui.analysis.text import clean
from memtui.cli import CommandError
from memtui.sources.gathered import Gathered, Spot
from memtui.sources.remote_link import FoundThere, Link, Root, found_there
from memtui.sources.ssh_address import Address, AddressError, parse_host_file, parse_slurm, parse_target
from memtui.sources.ssh_connection import Connection, SshError, has_terminal
from memtui.sources.ssh_words import REFUSED_KEY
from memtui.sources.virtual_driver import use_driver_of_process
from memtui.wire.relaying import LinkError

from .ownline import OwnLines
from .screen import check_terminal, show, wants_app

_AT_ONCE = 8
_LARGEST_FILE = 1 << 20
_NODE_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_WAYS = {"ptrace": "ptrace and a pending call", "remote_exec": "sys.remote_exec", "gdb": "gdb and a pending call"}
#: What no patience helps against.
_FINAL = frozenset(("missing", "ended", "thread", "zombie", "kernel", "ending", "user", "self"))


def attach_hosts(options: argparse.Namespace) -> int:
    """Watches until all of it has ended or is left; 0."""
    wanted, listed = _wanted(options)
    if options.all:
        raise CommandError(
            "--all is for this machine; memtui attach ssh://box watches every process with an agent there", 2
        )
    if options.pid is not None:
        from .attach import check_process

        check_process(options.pid)
    app = wants_app(options)
    if app and not options.dry_run:
        check_terminal()
    connections = _connect(wanted, listed)
    try:
        connections = _once(connections, wanted)
        if options.dry_run:
            return _dry_run(options, connections, wanted)
        found = _look(connections, wanted, listed, app=app)
        if not app:
            _enter(connections, found, quiet=options.quiet)
    except BaseException:
        for connection in connections:
            connection.close()
        raise
    return _watch(options, connections, wanted, found, app=app)


def _watch(
    options: argparse.Namespace,
    connections: Sequence[Connection],
    wanted: dict[Address, list[Root]],
    found: dict[Address, list[list[FoundThere]]],
    *,
    app: bool,
) -> int:
    from .exhausted import tell_failed
    from .run import open_log

    spots = [Spot(wanted[each.address], Link(each, wanted[each.address])) for each in connections]
    if options.pid is not None:
        use_driver_of_process(options.pid)
        spots.append(Spot([options.pid]))
    one = len(spots) == 1 and [each.pid for some in found[connections[0].address] for each in some] == spots[0].roots
    try:
        log = open_log(options)
    except CommandError:
        for connection in connections:
            connection.close()
        raise
    feed = Gathered(
        spots,
        analyst=lambda _rank: Analyst(asked=options.max_shape),
        log=log,
        whole_log=one,
        unload=options.unload,
    )
    if options.unload and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, _frame: sys.exit(128 + number))
    if app:
        kind = show(feed, options)
        tell_failed(feed, OwnLines(sys.stderr))
        if kind == "detach":
            _tell_going_on(spots)
    else:
        from .attach import watch_lines

        watch_lines(feed, options, (signal.SIGHUP,) if options.unload else ())
    for text in feed.partings:
        print(f"memtui: {clean(text, 400)}", file=sys.stderr)
    if options.unload and options.pid is not None:
        from .entry import unload

        unload(options.pid)
    return 1 if feed.partings else 0


def _tell_going_on(spots: Sequence[Spot]) -> None:
    lines = OwnLines(sys.stderr)
    members = [(spot, member) for spot in spots for member in spot.members.values() if not member.over]
    if len(members) == 1 and members[0][0].link is not None:
        spot, member = members[0]
        assert spot.link is not None
        again = f"memtui attach {spot.link.address.url}/{member.pid}"
        lines.say(f"memtui: process {member.pid} on {spot.label} goes on; {again} shows it again")
    elif members:
        lines.say(f"memtui: {len(members)} processes go on; the same command shows them again")


# What was asked for


def _wanted(options: argparse.Namespace) -> tuple[dict[Address, list[Root]], set[Address]]:
    """What is to be watched by host; and which hosts only stand in a list."""
    try:
        targets = [_target(text) for text in options.targets]
        named = [] if options.hosts is None else parse_host_file(_read(options.hosts))
        if options.slurm:
            value = next((os.environ[name] for name in _NODE_LISTS if os.environ.get(name)), "")
            if not value:
                raise CommandError("--slurm: this is no Slurm job ($SLURM_JOB_NODELIST is not set): name the hosts", 2)
            named += parse_slurm(value)
    except AddressError as error:
        raise CommandError(str(error), 2) from None
    wanted: dict[Address, list[Root]] = {}
    for address, pid in (*targets, *((each, None) for each in named)):
        roots = wanted.setdefault(address, [])
        if pid not in roots:
            roots.append(pid)
    if not wanted:
        lists = [options.hosts] if options.hosts is not None else []
        lists += [f"${name}={os.environ[name]}" for name in _NODE_LISTS if options.slurm and os.environ.get(name)][:1]
        raise CommandError(f"{' and '.join(lists)} names no host", 2)
    return wanted, set(named) - {address for address, _ in targets}


def _target(text: str) -> tuple[Address, Root]:
    if text.isascii() and text.isdigit():
        raise CommandError(f"say memtui attach --pid {text}", 2)
    target = parse_target(text)
    return target.address, target.pid


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read(_LARGEST_FILE)
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_FILE)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", 2) from None


# Connections


def _connect(wanted: dict[Address, list[Root]], listed: set[Address]) -> list[Connection]:
    """One to each host, before anything takes the terminal; raises CommandError."""
    addresses, terminal = list(wanted), has_terminal()
    made: dict[Address, Connection] = {}
    failed: dict[Address, SshError] = {}
    abort = threading.Event()
    try:
        if len(addresses) > 1 or not terminal:
            # All at once where nothing has to be asked; the others are asked for one after the other.
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                try:
                    for address, result in zip(addresses, pool.map(lambda each: _try(each, abort), addresses)):
                        if isinstance(result, Connection):
                            made[address] = result
                        else:
                            failed[address] = result
                except BaseException:
                    abort.set()
                    raise
        for address in addresses:
            if address in made or (address in failed and not (terminal and _may_be_asked(failed[address]))):
                continue
            try:
                made[address] = Connection(address, batch=False, show=_show)
                failed.pop(address, None)
            except SshError as error:
                failed[address] = error
        # All of them are named, each once: a wrong $MEMTUI_SSH is the same for all.
        *others, last = list(dict.fromkeys(map(str, failed.values()))) or [""]
        fatal = any(address not in listed for address in failed) or not made
        for trouble in others if fatal else [*others, *filter(None, [last])]:
            print(f"memtui: {trouble}", file=sys.stderr)
        if fatal:
            raise CommandError(last)
    except BaseException:
        for connection in made.values():
            connection.close()
        raise
    return [made[address] for address in addresses if address in made]


def _once(connections: Sequence[Connection], wanted: dict[Address, list[Root]]) -> list[Connection]:
    """Of a machine that has two names each process is watched by the first one that it was asked for by."""
    kept: list[Connection] = []
    shown: dict[tuple[object, ...], dict[Root, Connection]] = {}
    for connection in connections:
        facts, roots = connection.facts, wanted[connection.address]
        machine = tuple(str(facts.get(name) or "") for name in ("boot", "space", "uid"))
        known = shown.setdefault(machine if all(machine[:2]) else (connection,), {})
        again = [root for root in roots if root in known]
        for root in again:
            two = f"{connection.address.label} is the same machine as {known[root].address.label}"
            what = "its processes are" if root is None else f"process {root} is"
            print(f"memtui: {two}: {what} shown once", file=sys.stderr)
            roots.remove(root)
        known.update(dict.fromkeys(roots, connection))
        if roots:
            kept.append(connection)
        else:
            connection.close()
    return kept


def _try(address: Address, abort: threading.Event) -> Connection | SshError:
    try:
        return Connection(address, batch=True, abort=abort)
    except SshError as error:
        return error


def _may_be_asked(error: SshError) -> bool:
    """Whether somebody at the terminal could help."""
    return "Permission denied" in str(error) or REFUSED_KEY in str(error)


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# What is there


def _look(
    connections: Sequence[Connection], wanted: dict[Address, list[Root]], listed: set[Address], *, app: bool
) -> dict[Address, list[list[FoundThere]]]:
    """What is there of what is wanted; raises CommandError where that is nothing, or cannot be watched."""
    everything: dict[Address, list[list[FoundThere]]] = {}
    for connection in connections:
        roots = wanted[connection.address]
        try:
            found = [[found_there(each) for each in some] for some in connection.find(roots)]
            for root, some in zip(roots, found):
                if root is None:
                    continue
                if [each.pid for each in some] != [root] and some:
                    continue  # a launcher's ranks
                if not (some and some[0].agent):
                    _check(connection, root, app=app)
            everything[connection.address] = found
            if not any(found) and connection.address not in listed:
                raise CommandError(_nothing(connection))
        except LinkError as error:
            raise CommandError(f"{connection.address.label}: the far end sent {error}: dropped") from None
        except SshError as error:
            raise CommandError(str(error)) from None
    if not any(some for found in everything.values() for some in found):
        raise CommandError("nothing to watch on these hosts: no process with an agent, and no rank")
    return everything


def _check(connection: Connection, pid: int, *, app: bool) -> None:
    answer = connection.ask(do="check", pid=pid)
    kind, reason = _text(answer, "kind"), _text(answer, "text")
    label, address = connection.address.label, connection.address
    if not reason or (app and kind not in _FINAL):
        return  # in the app the driver's and the system's view is shown, with the reason
    if kind == "user":
        owner = address._replace(user=_text(answer, "owner") or "USER")
        fix = f"log in as that user: memtui attach {owner.url}/{pid}"
    elif kind == "ended":
        port = "" if address.port is None else f" -p {address.port}"
        fix = f"ssh{port} {address.destination} memtui attach --pid {pid} shows its output and its status"
    elif kind == "missing":
        fix = f"memtui attach {address.url} watches what has an agent there"
    else:
        fix = _text(answer, "fix").replace("memtui attach --pid ", f"memtui attach {address.url}/")
    raise CommandError(f"{label}: {reason}" + (f"; {fix}" if fix else ""))


def _enter(connections: Sequence[Connection], found: dict[Address, list[list[FoundThere]]], *, quiet: bool) -> None:
    """Gets agents in before there are lines, and says what that is at; raises CommandError where one does not."""
    for connection in connections:
        label = connection.address.label
        for each in (each for some in found[connection.address] for each in some if not each.agent):
            said = ""

            def tell(plain: dict[str, Any], label: str = label, pid: int = each.pid) -> None:
                nonlocal said
                if plain.get("stage") in ("waiting", "failed") and _text(plain, "text") != said:
                    said = _text(plain, "text")
                    print(f"memtui: {label}: process {pid}: {said}", file=sys.stderr, flush=True)

            try:
                ended = connection.enter(each.pid, tell)
            except (LinkError, SshError) as error:
                raise CommandError(str(error)) from None
            status, text = _text(ended, "status"), _text(ended, "text")
            if status == "cancelled":
                raise CommandError(f"taken back: {text}", 130)
            if status != "attached":
                raise CommandError(f"{label}: {text}")
            held = ended.get("paused_ns")
            if not quiet and ended.get("already") is not True:
                pause = f", a thread of it was held for {held / 1e6:.1f} ms" if type(held) is int else ""
                print(f"memtui: {label}: {text} ({_text(ended, 'way')}{pause})", file=sys.stderr, flush=True)


def _nothing(connection: Connection) -> str:
    address = connection.address
    trainings = connection.ask(do="trainings").get("found")
    some = [found_there(each) for each in trainings[:4]] if type(trainings) is list else []
    text = f"{address.label}: no process of this user has an agent, and none is a rank"
    if some:
        named = ", ".join(f"{address.url}/{each.pid} ({clean(each.command, 60)})" for each in some)
        return f"{text}; with PyTorch loaded: memtui attach {named}"
    return f"{text} or has PyTorch loaded"


def _text(answer: dict[str, Any], name: str) -> str:
    return clean(str(answer.get(name, "")), 300)


def _dry_run(options: argparse.Namespace, connections: Sequence[Connection], wanted: dict[Address, list[Root]]) -> int:
    """Says what attaching would do; 0 where all of it would be allowed."""
    refused = 0
    if options.pid is not None:
        from .entry import dry_run

        refused += dry_run(options.pid)
    for connection in connections:
        label = connection.address.label
        try:
            roots = wanted[connection.address]
            for some in connection.find(roots):
                for each in map(found_there, some):
                    refused += _say(label, each.pid, connection.ask(do="check", pid=each.pid))
                if not some:
                    print(f"{label}: nothing to attach to")
                    refused += 1
        except (LinkError, SshError) as error:
            raise CommandError(str(error)) from None
        finally:
            connection.close()
    print("nothing was touched")
    return 1 if refused else 0


def _say(label: str, pid: int, answer: dict[str, Any]) -> bool:
    """Prints a line; whether it would be refused."""
    text = _text(answer, "text")
    if answer.get("agent") is True and not text:
        print(f"{label}: process {pid} has an agent: attaching connects to it")
    elif text:
        print(f"{label}: {text}")
    else:
        ways = [_WAYS.get(str(way), "") for way in answer.get("ways", [])]
        first, *others = [way for way in ways if way] or ["no way"]
        then = f"; failing that, by {', then by '.join(others)}" if others else ""
        print(f"{label}: the agent would get into process {pid} by {first}{then}")
    return bool(text)
