"""Hosts as users name them: `ssh://[user@]box[:port][/pid]`, lines of host files, and Slurm's lists."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

#: What a host may be called. It reaches the user's own ProxyCommand, perhaps through a shell: nothing one acts on.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9_.-]{1,15})?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")
_SCHEME = "ssh://"
_MOST_HOSTS = 4096
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class AddressError(ValueError):
    """A host that cannot be; the message is one line for the user."""


class Address(NamedTuple):
    """Where ssh connects to; what is None is left to the user's configuration."""

    host: str
    user: Optional[str] = None
    port: Optional[int] = None

    @property
    def destination(self) -> str:
        """As ssh takes it."""
        return self.host if self.user is None else f"{self.user}@{self.host}"

    @property
    def label(self) -> str:
        """As it is shown beside others: "box", "box:2222"."""
        host = f"[{self.host}]" if ":" in self.host and self.port is not None else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """As the user would write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{_SCHEME}{'' if self.user is None else self.user + '@'}{host}{port}"


class Target(NamedTuple):
    """What is to be watched there: a process, a launcher for its ranks, or all of this user's."""

    address: Address
    pid: Optional[int] = None


def parse_target(text: str) -> Target:
    """`ssh://[user@]box[:port][/pid]`; raises AddressError."""
    if not text.startswith(_SCHEME):
        raise AddressError(f"{text!r} is no host: write ssh://box, ssh://user@box:22/1234")
    place, _, rest = text[len(_SCHEME) :].partition("/")
    pid: Optional[int] = None
    if rest:
        if not rest.isascii() or not rest.isdigit() or not 0 < int(rest[:20]) < 1 << 31:
            raise AddressError(f"{text!r}: what follows the host is a process id: ssh://box/1234")
        pid = int(rest)
    return Target(_address(place, text), pid)


def parse_host(text: str) -> Address:
    """`[user@]box[:port]`, also with ssh:// in front; raises AddressError."""
    target = parse_target(text if text.startswith(_SCHEME) else _SCHEME + text)
    if target.pid is not None:
        raise AddressError(f"{text!r}: a host is wanted here, not a process")
    return target.address


def _address(place: str, text: str) -> Address:
    user, at, rest = place.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise AddressError(f"{text!r}: {user!r} is no user's name" + _DASH * user.startswith("-"))
    port: Optional[str] = None
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        if not bracket or (after and not after.startswith(":")) or not _ADDRESS.fullmatch(host):
            raise AddressError(f"{text!r}: {rest!r} is no address: ssh://[2001:db8::1]:22")
        port = after[1:] if after else None
    else:
        host, colon, after = rest.partition(":")
        port = after if colon else None
        if not _HOST.fullmatch(host):
            if not host:
                raise AddressError(f"{text!r} names no host: ssh://box")
            raise AddressError(f"{text!r}: {host!r} is no host's name" + _DASH * host.startswith("-"))
    number: Optional[int] = None
    if port is not None:
        if not port.isascii() or not port.isdigit() or not 0 < int(port[:9]) < 1 << 16:
            raise AddressError(f"{text!r}: {port!r} is no port")
        number = int(port)
    return Address(host, user if at else None, number)


_DASH = ", ssh would take it for an option"


def parse_host_file(text: str) -> list[Address]:
    """A host a line, as in a file for mpirun or deepspeed: what follows it ("slots=8") and comments are left out.

    Each once, in their order. Raises AddressError, with the line's number.
    """
    found: dict[Address, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            found[parse_host(words[0])] = None
        except AddressError as error:
            raise AddressError(f"line {number}: {error}") from None
        if len(found) > _MOST_HOSTS:
            raise AddressError(f"more than {_MOST_HOSTS:,} hosts")
    return list(found)


def parse_slurm(text: str) -> list[Address]:
    """A list as in $SLURM_JOB_NODELIST, "gpu[01-03,07],login1"; raises AddressError."""
    found: dict[Address, None] = {}
    for each in _split(text):
        for name in _expanded(each):
            found[parse_host(name)] = None
    return list(found)


def _split(text: str) -> list[str]:
    """At commas that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise AddressError(f"{text!r}: brackets that do not match")
        if character == "," and not depth:
            parts.append(text[begin:place])
            begin = place + 1
    if depth:
        raise AddressError(f"{text!r}: brackets that do not match")
    return [part.strip() for part in (*parts, text[begin:]) if part.strip()]


def _expanded(text: str) -> list[str]:
    head, bracket, rest = text.partition("[")
    if not bracket:
        return [text]
    inner, _, tail = rest.partition("]")
    tails = _expanded(tail)
    found: list[str] = []
    for part in inner.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise AddressError(f"{text!r}: {part!r} is no range of numbers")
        first, last = match[1], match[2] or match[1]
        count = int(last) - int(first) + 1
        if count < 1 or (len(found) + count) * len(tails) > _MOST_HOSTS:
            raise AddressError(f"{text!r}: {part!r} is a range of {max(count, 0):,} hosts")
        numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
        found += [f"{head}{number}{after}" for number in numbers for after in tails]
    return found
