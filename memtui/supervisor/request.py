"""What the viewer asks a fresh supervisor to start, and what it is told about it: one JSON document each way."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

#: Enough for hours of progress bars; the whole of what a supervisor may hold.
RING_BYTES = 16 << 20


# Named tuples and not dataclasses: those would bring the inspect module, 2 MiB and 15 ms, into a process that is to be
# small and quick.
class StartRequest(NamedTuple):
    """A program to start. `argv[0]` is searched in the PATH of `env`, as a shell would."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    pty: bool
    columns: int
    rows: int
    #: Without a pty: the descriptors that become 0, 1 and 2; -1 is one the caller has closed.
    stdio: list[int]
    #: Descriptors above 2 that the program inherits from whoever started the viewer.
    inherited: list[int]
    #: Name of a variable that the program finds set to its own pid.
    direct_pid_variable: str | None = None
    ring_bytes: int = RING_BYTES
    #: How long after the program's end the status waits for somebody to collect it.
    keep_seconds: float = 86400.0
    #: How often the socket file is looked at, for cleaners that sweep temporary folders.
    check_seconds: float = 10.0
    #: How long a supervisor with nothing left to do stays for a viewer that connects once more.
    grace_seconds: float = 10.0

    def to_json(self) -> bytes:
        """The document; surrogate escapes survive as \\u escapes."""
        return json.dumps(self._asdict()).encode("ascii")

    @classmethod
    def from_json(cls, document: bytes) -> StartRequest:
        """The request; raises ValueError or TypeError, which here mean two different installations."""
        return cls(**json.loads(document))


class StartReport(NamedTuple):
    """How starting went: a pid, or the step that failed and the system's reason."""

    pid: int = 0
    supervisor_pid: int = 0
    #: Unix time, seconds.
    started_at: float = 0.0
    #: "command", "folder", "terminal", "socket" or "fork"; empty where the program runs.
    failed_step: str = ""
    errno: int | None = None
    reason: str = ""

    def to_json(self) -> bytes:
        """The document."""
        return json.dumps(self._asdict()).encode("ascii")

    @classmethod
    def from_json(cls, document: bytes) -> StartReport:
        """The report; raises ValueError or TypeError where the document is cut short."""
        fields: dict[str, Any] = json.loads(document)
        return cls(**fields)
