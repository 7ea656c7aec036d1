"""Where is listened: "127.0.0.1:9797", "[::]:9797", "gpu-box:9797"."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import NamedTuple

DEFAULT_PORT = 9797


class AddressError(Exception):
    """It cannot be listened there; the message is one line for the user."""


class Address(NamedTuple):
    """A host's name or number, without brackets, and a port; port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost"


DEFAULT = Address("127.0.0.1", DEFAULT_PORT)


def read_address(text: str) -> Address:
    """Raises ValueError."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not host or not 0 <= number <= 65535 or (":" in host and not bracketed):
        raise ValueError(f"{text!r:.80}: write ADDRESS:PORT, 127.0.0.1:{DEFAULT_PORT} or [::]:{DEFAULT_PORT}")
    return Address(host[1:-1] if bracketed else host, number)


def listen(address: Address) -> socket.socket:
    """A socket that listens there; raises AddressError."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        both = family == socket.AF_INET6 and address.host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(place[:2], family=family, backlog=128, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        raise AddressError(_reason(address, error)) from None
    listener.setblocking(False)
    return listener


def _reason(address: Address, error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        other = Address(address.host, address.port + 1 if address.port < 65535 else DEFAULT_PORT)
        return (
            f"{address} is in use, perhaps by another memtui serve: memtui serve --listen {other}; "
            f"ss -ltnp 'sport = :{address.port}' says who has it"
        )
    if number == errno.EACCES:
        return f"{address}: ports below 1024 are for root: memtui serve --listen {Address(address.host, DEFAULT_PORT)}"
    if number == errno.EADDRNOTAVAIL or isinstance(error, (socket.gaierror, UnicodeError)):
        fix = f"ip address lists those it has, and --listen [::]:{address.port} means all"
        return f"{address}: this machine has no such address; {fix}"
    return f"{address}: {getattr(error, 'strerror', None) or error}"
