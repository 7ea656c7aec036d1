"""`memtui serve`: the memory of this machine's trainings for Prometheus."""

from __future__ import annotations

import argparse
import importlib.resources
import os
import sys
from typing import Optional

from memtui.cli import CommandError
from memtui.serve.access import AccessError, read_credentials, tls_context
from memtui.serve.address import AddressError, listen
from memtui.serve.unit import unit

_MISSING = "memtui serve needs prometheus-client: pip install 'memtui[prometheus]'"


def serve(options: argparse.Namespace) -> int:
    """Runs the daemon, or prints what was asked for; the exit status. Raises CommandError."""
    if options.dashboard or options.rules:
        return _print_data("dashboard.json" if options.dashboard else "rules.yml")
    if options.unit:
        print(unit(_command(options)), end="")
        return 0
    if options.certificate is None and (options.key or options.client_ca):
        raise CommandError("--key and --client-ca are of --certificate FILE: name that too")
    try:
        from memtui.serve.daemon import Wanted
        from memtui.serve.daemon import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise CommandError(_MISSING) from None
    try:
        tls = None if options.certificate is None else tls_context(options.certificate, options.key, options.client_ca)
        credentials = None if options.password_file is None else read_credentials(options.password_file)
        listening = listen(options.listen)
    except (AccessError, AddressError) as error:
        raise CommandError(str(error)) from None
    warning = _warning(options)
    if warning:
        print(f"memtui: {warning}", file=sys.stderr, flush=True)
    auto = None if options.auto is None else tuple(options.auto)

    def said(line: str) -> None:
        if not options.quiet:
            print(f"memtui: {line}", flush=True)

    return run(Wanted(options.listen, tls, credentials, auto), listening, said)


def _warning(options: argparse.Namespace) -> Optional[str]:
    """What is open to others, if something is."""
    if options.listen.is_loopback:
        return None
    if options.certificate is None and options.password_file is None:
        return f"anybody who reaches {options.listen} can read this; --certificate and --password-file keep it to some"
    if options.certificate is None:
        return f"the password goes to {options.listen} in the clear; --certificate FILE encrypts it"
    return None


def _command(options: argparse.Namespace) -> list[str]:
    """This command without --unit, to be run from anywhere."""
    words = [sys.executable, "-m", "memtui", "serve", "--listen", str(options.listen)]
    for name in ("certificate", "key", "client_ca", "password_file"):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", os.path.abspath(value)]
    if options.quiet:
        words.append("--quiet")
    if options.auto is not None:
        words += ["--auto", *options.auto]
    return words


def _print_data(name: str) -> int:
    file = importlib.resources.files("memtui.serve").joinpath(name)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(f"this installation of memtui is not whole: it has no {name}") from None
    print(text, end="" if text.endswith("\n") else "\n")
    return 0
