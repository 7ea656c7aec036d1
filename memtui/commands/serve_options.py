"""The options of `memtui serve`, loaded when that command is asked for."""

from __future__ import annotations

import argparse

from memtui.cli import a_file
from memtui.serve.address import DEFAULT, Address, read_address


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where it listens, who may scrape, what gets an agent, and what is printed instead."""
    parser.description = (
        "Exposes the memory of every training of this user that has an agent, and of every GPU of this machine, for "
        "Prometheus. It listens on 127.0.0.1 alone unless --listen says otherwise, and goes on until it is told to "
        "end (SIGTERM, Ctrl-C)."
    )
    parser.add_argument(
        "--listen", type=_address, default=DEFAULT, metavar="ADDRESS:PORT", help=f"listen there; without it {DEFAULT}"
    )
    parser.add_argument(
        "--auto",
        nargs="*",
        metavar="NAME",
        help="get the agent into every training of yours on a GPU, as they come; with names, or patterns with * and ?: "
        "into those alone whose command line has one",
    )
    parser.add_argument("--quiet", action="store_true", help="no line at the start, and none of what gets an agent")
    access = parser.add_argument_group("who may scrape")
    access.add_argument("--certificate", type=a_file, metavar="FILE", help="HTTPS with this certificate (PEM)")
    access.add_argument("--key", type=a_file, metavar="FILE", help="its key, where that is not in the same file")
    access.add_argument("--client-ca", type=a_file, metavar="FILE", help="ask scrapers for a certificate signed by it")
    access.add_argument(
        "--password-file", type=a_file, metavar="FILE", help="basic authentication: one line USER:PASSWORD, mode 600"
    )
    printed = parser.add_argument_group("printed instead").add_mutually_exclusive_group()
    printed.add_argument("--unit", action="store_true", help="a systemd user unit with these options")
    printed.add_argument("--dashboard", action="store_true", help="a Grafana dashboard, as JSON")
    printed.add_argument("--rules", action="store_true", help="alert rules for Prometheus, as YAML")


def _address(text: str) -> Address:
    try:
        return read_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
