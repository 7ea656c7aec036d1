"""What is asked of the process that puts itself into a layer, and what it says it did."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

#: In the scratch folder.
REQUEST_NAME = "request.json"
REPORT_NAME = "report.json"

#: When the program could not be started at all, as a shell has it.
CANNOT_RUN = 126
NOT_FOUND = 127


@dataclass(frozen=True)
class Request:
    """One run: `layered` with a layer over the file system, else only without the network.

    `command` is empty for a trial, which does all the rest and ends.  `over` are pairs of a folder and the path at
    which it is to be seen; `shared` are paths that stay as they are outside, `read_only` those to be read only.
    """

    cwd: str
    layered: bool
    command: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)
    read_only: list[str] = field(default_factory=list)
    over: list[tuple[str, str]] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        return cls(**json.loads(text))


@dataclass
class Report:
    """What came of it.

    `failed_step` is "" where the program can be started, else "namespaces", "network", "scratch", "layers" or
    "folder", with the reason.  `read_only` are folders with no layer, `exposed` those that are as they were.
    `cwd_writable` is the answer of a trial.
    `own_ids_only`: files of other owners and groups cannot be changed.
    """

    failed_step: str = ""
    errno: int = 0
    reason: str = ""
    layers: int = 0
    read_only: list[str] = field(default_factory=list)
    exposed: list[str] = field(default_factory=list)
    cwd_writable: bool = False
    own_ids_only: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Report:
        return cls(**json.loads(text))
