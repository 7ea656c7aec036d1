"""Does to the files around it what a program may do, tries the network, says what it saw in JSON, and exits with 7."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable
from typing import Any


def error_of(action: Callable[[], Any]) -> str:
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return ""


def wreck(folder: pathlib.Path) -> None:
    (folder / "changed").write_text("other", encoding="ascii")
    with open(folder / "appended", "a", encoding="ascii") as file:
        file.write("more")
    os.unlink(folder / "deleted")
    os.rename(folder / "renamed", folder / "renamed-to")
    os.chmod(folder / "rights", 0o600)
    os.utime(folder / "times", (1, 1))
    os.unlink(folder / "full" / "inner")
    os.rmdir(folder / "full")
    os.mkdir(folder / "full")
    assert os.listdir(folder / "full") == []
    os.mkdir(folder / "new")
    (folder / "new" / "file").write_bytes(b"\1" * (1 << 20))
    os.rename(folder / "new", folder / "new-renamed")
    os.mkdir(folder / "locked", 0o000)
    os.symlink("changed", folder / "link")
    with sqlite3.connect(folder / "base.sqlite") as base:
        base.execute("update t set x = 2")
    base.close()


def reach_out() -> dict[str, Any]:
    begin = time.monotonic()
    found: dict[str, Any] = {
        "name": error_of(lambda: socket.getaddrinfo("example.com", 80)),
        "address": error_of(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)),
        "outside socket": error_of(lambda: socket.socket(socket.AF_UNIX).connect(os.environ["OUTSIDE_SOCKET"])),
    }
    found["seconds"] = time.monotonic() - begin
    with contextlib.suppress(OSError):
        found["own name"] = socket.gethostbyname(socket.gethostname())
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
        found["loopback"] = True
    return found


def main() -> None:
    home = pathlib.Path.home()
    found = {
        "pid": os.getpid(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "cwd": os.getcwd(),
        "home owner": home.stat().st_uid,
        "weights": os.path.exists("weights.bin"),
        "environment": pathlib.Path(".venv/pyvenv.cfg").read_text(encoding="ascii"),
        "cached": (home / "cached").read_text(encoding="ascii"),
        "temporary": tempfile.gettempdir(),
        "beside it": [names for _, _, names in os.walk(tempfile.gettempdir()) if names],
        "hosts": pathlib.Path("/etc/hosts").read_text(encoding="utf-8"),
        "asked for names": [
            line.split()[1:] for line in pathlib.Path("/etc/nsswitch.conf").read_text().splitlines() if "hosts:" in line
        ],
        "offline": os.environ.get("HF_HUB_OFFLINE"),
    }
    found.update(reach_out())
    wreck(pathlib.Path())
    if "WRECK_HOME" in os.environ:
        wreck(home)
        with open("/tmp/" + os.environ["WRECK_HOME"], "w", encoding="ascii"):
            pass
        with contextlib.suppress(OSError), open("/" + os.environ["WRECK_HOME"], "w", encoding="ascii"):
            pass
        with open("/dev/shm/" + os.environ["WRECK_HOME"], "w", encoding="ascii"):
            pass
    (pathlib.Path(tempfile.gettempdir()) / "scrap").write_text("x", encoding="ascii")
    if "SHARED" in os.environ:
        (pathlib.Path(os.environ["SHARED"]) / "answer").write_text("42", encoding="ascii")
    print(json.dumps(found))
    raise SystemExit(7)


if __name__ == "__main__":
    main()
