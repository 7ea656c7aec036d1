"""Which ranks belong together: trainings, and the lives of their ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from memtui.analysis.text import clean

from .collect import Key, Look, Place
from .rows import Named, host_of, whole


@dataclass(frozen=True)
class Run:
    """A training: the newest life of each rank, by rank, and the lives before."""

    name: str
    members: tuple[Named, ...]
    past: tuple[Named, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is told from others by."""
        first = self.members[0].key
        return self.name, first.run, "" if first.rank else first.pid


def runs_of(look: Look) -> tuple[Run, ...]:
    """All runs that there are ranks of, by name.

    A process that is no rank of anything is a run of its own. Where one name is used by trainings on several targets at
    once, so that a rank is there twice, each target's is a run.
    """
    by_run: dict[str, list[Key]] = defaultdict(list)
    alone: list[Key] = []
    for key in (*look.ranks, *_gone(look)):
        if whole(key.rank) is None:
            alone.append(key)
        else:
            by_run[key.run].append(key)
    found: list[Run] = []
    for name, keys in by_run.items():
        if _doubled(keys, look):
            by_target: dict[str, list[Key]] = defaultdict(list)
            for key in keys:
                by_target[key.instance].append(key)
            for instance, own in by_target.items():
                found.append(_run(f"{_named(name)} on {clean(instance, 60)}", own, look))
        else:
            found.append(_run(_named(name), keys, look))
    for key in alone:
        host = host_of(key, look.info.get(key, {}))
        found.append(Run(f"{_named(key.run)} · pid {clean(key.pid, 12)} on {host}", (Named(key, 0),)))
    return tuple(sorted(found, key=lambda run: run.name))


def _named(name: str) -> str:
    return clean(name, 60) or "a run without a name"


def _gone(look: Look) -> Iterable[Key]:
    """Ranks that were there until their target was not scraped any more."""
    for key in look.info:
        if key not in look.ranks and not (key in look.last and look.last[key].vanished):
            target = look.targets.get(Place(key.job, key.instance))
            if target is None or not target.up:
                yield key


def _doubled(keys: list[Key], look: Look) -> bool:
    """Whether a rank lives twice at once."""
    seen: set[str] = set()
    for key in keys:
        rank = look.ranks.get(key)
        if rank is not None and not rank.outcome and rank.state != "ended":
            if key.rank in seen:
                return True
            seen.add(key.rank)
    return False


def _run(name: str, keys: list[Key], look: Look) -> Run:
    by_rank: dict[int, list[Key]] = defaultdict(list)
    for key in keys:
        by_rank[whole(key.rank) or 0].append(key)
    current, past = [], []
    for rank in sorted(by_rank):
        lives = sorted(by_rank[rank], key=lambda key: _age(key, look))
        named = [Named(key, rank, life) for life, key in enumerate(lives, 1)]
        current.append(named[-1])
        past += named[:-1]
    return Run(name, tuple(current), tuple(past))


def _age(key: Key, look: Look) -> tuple[bool, bool, float]:
    """What orders the lives of a rank: those that have gone, then the ended, then by their newest frame."""
    rank = look.ranks.get(key)
    if rank is None:
        return False, False, 0.0
    _, device = rank.main()
    over = bool(rank.outcome) or rank.state == "ended"
    return True, not over, device.figures.get("frame_timestamp_seconds", 0.0)
