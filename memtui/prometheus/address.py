"""Where a Prometheus server is, and what it is told of who asks."""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass, field
from typing import Optional
from urllib.parse import SplitResult, quote, unquote, urlsplit

#: Where a password may stand that is on no command line.
PASSWORD_VARIABLE = "MEMTUI_PROMETHEUS_PASSWORD"
_LONGEST_PASSWORD = 4_096


@dataclass(frozen=True)
class Address:
    """`secure` is https; `prefix` comes before /api/v1; `authorization` is a header's value, which nothing prints."""

    secure: bool
    host: str
    port: int
    prefix: str = ""
    authorization: Optional[str] = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The address without the password."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{name}:{self.port}{self.prefix}"


def parse_address(url: str, user: str = "", password_file: str = "") -> Address:
    """The server of "http://prometheus:9090", or of a URL with a path or credentials in it; raises ValueError.

    `user` is a name, or a name and a password with a colon between. A password that is in neither is looked for in the
    file, which nobody else may read, and then in MEMTUI_PROMETHEUS_PASSWORD. Without a user the file has both: one line
    USER:PASSWORD.
    """
    if any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError("the URL of the server has a space or a control character in it")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"no server can be at {_shown(url)}: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"no server can be at {_shown(url)}: write http://HOST:9090 or https://HOST")
    if not parts.hostname:
        raise ValueError(f"{_shown(url)} names no host: write http://HOST:9090")
    if parts.query or parts.fragment:
        raise ValueError("the URL of the server ends before the query: write http://HOST:9090")
    secure = parts.scheme == "https"
    # A server that was named without a port behind a bare host is where Prometheus listens by itself.
    usual = 443 if secure else 80 if "://" in url else 9090
    prefix = quote(parts.path.rstrip("/"), safe="/%~:@!$&'()*+,;=-._")
    for end in ("/api/v1", "/graph", "/query"):
        prefix = prefix[: -len(end)] if prefix.endswith(end) else prefix
    return Address(secure, parts.hostname, port or usual, prefix, _authorization(parts, user, password_file))


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    front, mark, rest = url.partition("://")
    return repr(f"{front}{mark}{rest.rpartition('@')[2]}"[:200])


def _authorization(parts: SplitResult, user: str, password_file: str) -> Optional[str]:
    name, colon, password = user.partition(":")
    if not user and parts.username is not None:
        name, password = unquote(parts.username), unquote(parts.password or "")
        colon = ":" if parts.password is not None else ""
    if password_file:
        line = _read(password_file)
        # As for memtui serve, where there is nobody but the file to say the name.
        name, password = (name, line) if name else (line.partition(":")[0], line.partition(":")[2])
        colon = ":"
    elif name and not colon:
        password = os.environ.get(PASSWORD_VARIABLE, "")
        if not password:
            raise ValueError(f"there is no password of {name}: --password-file FILE, or {PASSWORD_VARIABLE}")
    if not name:
        return None
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode("ascii")


def _read(path: str) -> str:
    """The password in a file of one line that nobody else may read."""
    try:
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ValueError(f"others may read {path}: chmod 600 {path}")
            text = file.read(_LONGEST_PASSWORD + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"the password cannot be read from {path}: {reason}") from None
    password = text.strip("\r\n")
    if not password or len(text) > _LONGEST_PASSWORD or "\n" in password:
        raise ValueError(f"{path} is no file with a password, of one line")
    return password
