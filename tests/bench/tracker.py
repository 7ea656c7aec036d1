"""torch's MemTracker at the boundaries at which the agent has looked: its categories beside memtui's and the truth.

`torch.distributed._tools.mem_tracker.MemTracker` follows every tensor that passes torch's dispatcher, in a pass of its
own over the same steps. Within its scope the persistent categories are memtui's to the byte, once its rounding is
accounted for. Where the two differ, each byte has one of these reasons, found block by block:

- **rounding**: it counts what was asked for, rounded up to 512 bytes. The allocator hands out a whole block where less
  than 1 MiB would be left over, and that block is what the card has less of.
- **unseen**: cuBLAS's workspaces are allocated below the dispatcher. So is what the program had made before it was
  switched on and did not hand to it (a gradient scaler's counters).
- **inputs** are activations to it, as is whatever is made outside backward and optimizer.
- **DDP's buckets** are temporaries to it, for it sees them first when backward copies into them; where gradients are
  views into them they are gradients also while there are none. What **FSDP2** has gathered is parameters.
- **compiled modules** run uncompiled under it, for a dispatch mode is on: activations are those of another run. It
  hooks no parameter inside one, so gradients stay temporaries.
- **replayed graphs** pass no dispatcher: what their pool holds is unseen, or whatever first touched it.

It refuses a root module that runs twice in an iteration (a GAN's judge) and frozen parameters (LoRA).
"""

from __future__ import annotations

from typing import Any

from .report import Line

PERSISTENT = ("parameters", "buffers", "gradients", "optimizer_state")
OTHERS = ("activations", "temporaries", "inputs", "workspaces", "communication", "private_pools")
#: Not of persistent categories: the loss's gradient, made after the program says that backward begins and before it is
#: entered, and a few more of the smallest blocks that are freed and given out again between two looks.
_SMALL_BYTES = 4 * 512


def lines(kind: str, memtui: list[dict[str, Any]], found: dict[str, Any]) -> list[Line]:
    """The figures at the fullest boundary, and the reasons for what is apart at any."""
    if "failed" in found:
        return [Line(f"{kind}: MemTracker", f"refused by MemTracker: {' '.join(found['failed'])[:110]}")]
    rows = paired(memtui, found["rows"])
    ours, theirs = max(rows, key=lambda pair: sum(pair[0]["agent"].values()))
    figures = ", ".join(_figure(name, ours, theirs) for name in (*PERSISTENT, *OTHERS) if _any(name, ours, theirs))
    another = max(another_run_bytes(*pair) for pair in rows)
    apart = max(persistent_bytes(*pair) for pair in rows)
    held = max(unexplained_bytes(*pair, PERSISTENT) for pair in rows)
    left = max(unexplained_bytes(*pair, OTHERS) for pair in rows)
    named = {**reasons(rows), "another run than without it": another}
    why = "; ".join(f"{reason} {size:,} B" for reason, size in named.items() if size) or "nothing"
    return [
        Line(f"{kind}: memtui | MemTracker | truth", f"{ours['boundary']}, bytes: {figures}"),
        Line(
            f"{kind}: MemTracker, apart by",
            f"{why}; persistent {apart:,} B apart but for rounding; unexplained {held:,} B of it, {left:,} B of others",
            f"0 B, ≤ {_SMALL_BYTES:,} B unexplained",
            not held and left <= _SMALL_BYTES,
        ),
    ]


def paired(memtui: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Rows of the same boundaries of the last step; both passes have them in the same order."""
    ours = memtui[-len(theirs) :]
    assert theirs
    assert [row["boundary"] for row in ours] == [row["boundary"] for row in theirs]
    return list(zip(ours, theirs))


def persistent_bytes(ours: dict[str, Any], theirs: dict[str, Any]) -> int:
    """How far memtui and MemTracker are apart in the persistent category that is most so, its rounding apart."""
    return max(
        abs(ours["agent"].get(name, 0) - theirs["tracker"].get(name, 0) - theirs["larger"].get(name, 0))
        for name in PERSISTENT
    )


def unexplained_bytes(ours: dict[str, Any], theirs: dict[str, Any], names: tuple[str, ...]) -> int:
    """What is left of the difference in the category of `names` that is most apart, after every reason.

    The reasons are read from the program's own account, block by block, so they add up by themselves: what is left says
    that memtui agrees with that account, and that MemTracker's figure is the sum of what it follows. It is no evidence
    for a reason.
    """
    agent = dict(ours["agent"])
    agent["inputs"] = agent.get("inputs", 0) + agent.pop("unattributed", 0)  # see categories.py
    for name in names:
        agent[name] = agent.get(name, 0) + _another_run(name, ours, theirs)
    off = []
    for name in names:
        moved = sum(size for pair, size in theirs["pairs"].items() if _sides(pair)[0] == name)
        moved -= sum(size for pair, size in theirs["pairs"].items() if _sides(pair)[1] == name)
        counted = theirs["tracker"].get(name, 0) + theirs["larger"].get(name, 0)
        off.append(abs(agent.get(name, 0) - counted - moved))
    return max(off)


def another_run_bytes(ours: dict[str, Any], theirs: dict[str, Any]) -> int:
    """By how much the two passes differ themselves, in the category that does most."""
    return max(abs(_another_run(name, ours, theirs)) for name in (*PERSISTENT, *OTHERS))


def _another_run(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> int:
    return int(theirs["truth"].get(name, 0)) - int(ours["truth"].get(name, 0))


def reasons(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, int]:
    """Bytes by reason, each at the boundary where it is most."""
    found: dict[str, int] = {}
    for _, theirs in rows:
        for name, size in {"rounding": sum(theirs["larger"].values()), **_moves(theirs["pairs"])}.items():
            found[name] = max(found.get(name, 0), size)
    return {name: size for name, size in found.items() if size}


def _moves(pairs: dict[str, int]) -> dict[str, int]:
    moves = {}
    for pair, size in pairs.items():
        whose, taken = _sides(pair)
        if whose != taken:
            moves[f"{whose} {'unseen' if taken == 'unseen' else f'taken for {taken}'}"] = size
    return moves


def _sides(pair: str) -> tuple[str, str]:
    whose, _, taken = pair.partition(" > ")
    return whose, taken


def _any(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return bool(ours["agent"].get(name) or theirs["tracker"].get(name) or ours["truth"].get(name))


def _figure(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    return (
        f"{name} {ours['agent'].get(name, 0):,} | {theirs['tracker'].get(name, 0):,} | {ours['truth'].get(name, 0):,}"
    )
