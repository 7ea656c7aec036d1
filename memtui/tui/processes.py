"""A process of this machine as a row: what it is, and whether it can be watched."""

from __future__ import annotations

from memtui.analysis import text, units
from memtui.sources.listing import Listed, age_ns

HEADS = ("pid", "user", "device", "memory", "age", "watch", "command")
RIGHT = frozenset(("pid", "memory", "age"))

#: What bars every way in, in a few words; the whole reason is told by who tries.
_REFUSALS = {
    "traced": "a debugger holds it",
    "user": "not yours; with sudo",
    "yama": "ptrace is not allowed; with sudo",
    "denied": "ptrace is not allowed; with sudo",
    "dumpable": "not dumpable; with sudo",
    "capability": "no CAP_SYS_PTRACE here",
    "seccomp": "seccomp forbids ptrace",
    "security": "a security module forbids it",
    "namespace": "in a container of others",
    "python": "no Python",
    "torch": "no PyTorch",
    "missing": "has ended",
}


def ordered(found: list[Listed]) -> list[Listed]:
    """Those that can be watched first; by pid."""
    return sorted(found, key=lambda listed: (bool(obstacle(listed)), listed.agent == "ended", listed.pid))


def cells(listed: Listed, *, short: bool = False) -> tuple[str, ...]:
    """What stands under `HEADS`; with `short` the command without the folders of its interpreter and script."""
    command = text.command(listed.command) if short else text.clean(" ".join(listed.command), 200)
    return (
        str(listed.pid),
        text.clean(listed.user, 20),
        text.clean(listed.device, 20) or units.UNKNOWN,
        units.size(listed.memory_bytes),
        units.duration(age_ns(listed)),
        watch_text(listed),
        command if listed.rank is None else f"[rank {listed.rank}] {command}",
    )


def watch_text(listed: Listed) -> str:
    """ "yes", with what is peculiar, or "no" and why."""
    reason = obstacle(listed)
    if reason:
        return f"no: {reason}"
    known = {"not yet": "yes: no PyTorch yet", "ended": "yes: ended", "no": "yes: gets the agent"}
    return known.get(listed.agent, "yes")


def obstacle(listed: Listed) -> str:
    """Why `memtui attach` would be refused or show nothing; empty where it would not."""
    if listed.agent == "no" and listed.part_of is not None:
        return f"part of {listed.part_of}"
    if not listed.own:
        return _REFUSALS["user"]
    if listed.stopped and listed.agent in {"no", "silent"}:
        return f"stopped; kill -CONT {listed.pid}"
    if listed.agent == "no":
        refusal = listed.refusal
        return "" if refusal is None else _REFUSALS.get(refusal.kind, text.clean(refusal.reason, 60))
    known = {"silent": "agent does not answer", "gone": "agent has gone", "other version": "of another memtui"}
    return (
        "" if listed.agent in {"yes", "not yet", "ended"} else known.get(listed.agent) or text.clean(listed.agent, 40)
    )
