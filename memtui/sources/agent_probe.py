"""One question to an agent's socket: whether it is there, who answers, and to have the agent leave."""

from __future__ import annotations

import os
import pathlib
import socket
import stat
from typing import Optional

from memtui.wire import codec
from memtui.wire.frames import PROTOCOL, Hello, Refusal, Request

from .sockets import find_socket, listener

_PROBE_SECONDS, _UNLOADING_SECONDS = 3.0, 8.0
_CHUNK = 1 << 18


class AgentError(Exception):
    """The agent cannot be read; the message is one line for the user."""


class AgentRefused(AgentError):
    """The agent and this viewer do not understand each other: trying again is of no use."""


def find_agent(pid: int) -> Optional[pathlib.Path]:
    """The socket of the agent of process `pid`; None where there is none. Root finds those of other users too."""
    found = find_socket("agent", pid)
    return None if found is None else found.path


def check_owner(path: pathlib.Path) -> None:
    """Raises AgentError where `path` is not a socket of this user (root reads everybody's)."""
    try:
        info = os.lstat(path)
    except OSError as error:
        raise AgentError(f"no agent at {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(info.st_mode):
        raise AgentError(f"{path} is not a socket")
    if info.st_uid != os.geteuid() and os.geteuid() != 0:
        raise AgentError(f"{path} belongs to another user")


def probe(path: pathlib.Path, pid: int) -> None:
    """Raises AgentError where no agent of this version, in process `pid`, answers at `path`.

    A stopped process counts as answering.
    """
    check_owner(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PROBE_SECONDS)
        try:
            connection.connect(os.fspath(path))
            if listener(connection) not in (None, pid):
                raise AgentError(
                    f"what listens on {path} is not process {pid}, but one of a container that shares the folder"
                )
            connection.sendall(codec.encode(Request("hello", PROTOCOL, history=False)))
            splitter = codec.Splitter()
            while True:
                data = connection.recv(_CHUNK)
                if not data:
                    raise ConnectionResetError
                for body in splitter.feed(data):
                    check_greeting(codec.decode(body))
                    return
        except (TimeoutError, socket.timeout):  # two classes before Python 3.10
            return
        except ConnectionRefusedError:
            raise AgentError(f"nobody listens on {path}: the agent has gone, the process may be restarting") from None
        except (BrokenPipeError, ConnectionResetError):
            raise AgentError(
                f"what listens on {path} hung up: it is no memtui agent, or one of another version"
            ) from None
        except codec.CodecError as error:
            raise AgentError(f"what listens on {path} is no memtui agent: {error}") from None
        except OSError as error:
            raise AgentError(reason_of(error)) from None


def request_unloading(path: pathlib.Path) -> bool:
    """Asks the agent at `path` to leave its process; True once it has closed its socket, which may take a few seconds.

    Raises AgentError and OSError.
    """
    check_owner(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_UNLOADING_SECONDS)
        try:
            connection.connect(os.fspath(path))
            connection.sendall(codec.encode(Request("hello", PROTOCOL, history=False)))
            connection.sendall(codec.encode(Request("unload", PROTOCOL)))
            while connection.recv(_CHUNK):
                pass
        except (TimeoutError, socket.timeout):  # two classes before Python 3.10
            return False
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            pass  # gone already
    return True


def check_greeting(message: object) -> None:
    """Raises AgentError where the first message is not that of an agent this viewer understands."""
    if isinstance(message, Refusal):
        raise AgentRefused(message.reason)
    if not isinstance(message, Hello):
        raise AgentError("what listens on the agent's socket is no memtui agent")
    if message.protocol != PROTOCOL:
        raise AgentRefused(version_text(message))


def version_text(hello: Hello) -> str:
    """Why an agent of another protocol cannot be read, and what to do."""
    newer = hello.protocol > PROTOCOL
    age = "newer" if newer else "older"
    fix = "upgrade this memtui" if newer else "use the memtui that started it, or restart the program"
    return (
        f"the agent in process {hello.pid} is {age} than this viewer "
        f"(memtui {hello.agent}, protocol {hello.protocol}; this one speaks {PROTOCOL}): {fix}"
    )


def reason_of(error: Exception) -> str:
    """Why an agent cannot be read, in one line."""
    if isinstance(error, codec.CodecError):
        return f"the agent sent something that is no frame ({error}); connecting again"
    if isinstance(error, OSError) and error.strerror:
        return f"the agent cannot be read: {error.strerror}"
    return str(error)
