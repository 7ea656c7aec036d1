"""One process of a launcher's: a rank, in one of its lives."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from .session import Session

#: What processes of unlike trainings are called together.
SEVERAL = "several trainings"
#: Ends of ranks that are as near to each other may be told in another order than they came in.
_TOGETHER_NS = 2_000_000_000


class Member:
    """Who it is among the ranks, and its session, which a recording replaces as it is moved through.

    `rank` and `local_rank` are what its environment says, until its agent says it. The first life is 1: a rank that
    comes back after a restart is another member of the same rank.
    """

    def __init__(
        self,
        pid: int,
        session: Callable[[], Session],
        *,
        rank: Optional[int] = None,
        local_rank: Optional[int] = None,
        life: int = 1,
        host: str = "",
    ) -> None:
        self.pid, self.life = pid, life
        self.host = host  # as the user named it, where it is watched from another machine
        self.number: Optional[int] = None  # in place of the rank, among processes of unlike trainings
        self._session, self._rank, self._local_rank = session, rank, local_rank

    @property
    def session(self) -> Session:
        """What is known of it."""
        return self._session()

    @property
    def rank(self) -> Optional[int]:
        """Among all ranks of the training; None while nobody has said."""
        if self.number is not None:
            return self.number
        hello = self.session.hello
        return hello.rank if hello is not None and hello.rank is not None else self._rank

    @property
    def local_rank(self) -> Optional[int]:
        """Among those of its machine."""
        hello = self.session.hello
        return hello.local_rank if hello is not None and hello.local_rank is not None else self._local_rank

    @property
    def world_size(self) -> Optional[int]:
        """How many ranks there are on all machines."""
        return None if self.session.hello is None else self.session.hello.world_size

    @property
    def name(self) -> str:
        """ "rank 3", "rank 3 (life 2)"; of one that nobody has numbered "process 4242"."""
        if self.number is not None:
            return f"{self.host}/{self.pid}" if self.host else f"process {self.pid}"
        known = f"process {self.pid}" if self.rank is None else f"rank {self.rank}"
        return f"{known} (life {self.life})" if self.life > 1 else known

    @property
    def end_ns(self) -> int:
        """When it ended, 0 where it has not; of one that went without a word, which is noticed later, when it was
        heard last.
        """
        end, frame = self.session.end, self.session.frame
        if end is None:
            return 0
        return min(end.time_ns, frame.time_ns) if end.silent and frame is not None else end.time_ns

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than in order."""
        end = self.session.end
        return end is not None and bool(end.exception or end.exit_status or end.silent)

    @property
    def over(self) -> bool:
        """Whether its process is gone."""
        return self.session.end is not None


def number_lives(members: Iterable[Member]) -> None:
    """Counts the lives of each rank, in the order in which its members came."""
    counted: Counter[int] = Counter()
    for member in members:
        if member.rank is not None:
            counted[member.rank] += 1
            member.life = counted[member.rank]


def number_apart(found: Sequence[tuple[Member, frozenset[str]]]) -> bool:
    """Counts rows, in this order, where the members are of more than one training; whether that is so.

    Beside each member stands what it has in common with others of its training.
    """
    trainings: list[frozenset[str]] = []
    for _, job in found:
        trainings = [each for each in trainings if not each & job] + [
            job.union(*(each for each in trainings if each & job))
        ]
    for place, (member, _) in enumerate(found):
        member.number = place if len(trainings) > 1 else None
    return len(trainings) > 1


def in_order_of_end(members: Iterable[Member]) -> list[tuple[Member, int]]:
    """Those that are over, each with when it ended, from the first to the last.

    Of one that went without a word it is known when it was heard last and when it was missed. Of two of them the one
    that was missed first went first: the other may have been silent for longer before, but not been gone.
    """
    over = [each for each in members if each.over]
    silent = sorted((each for each in over if _is_silent(each)), key=_missed_ns)
    heard = itertools.accumulate((each.end_ns for each in silent), max)
    others = [(each, each.end_ns) for each in over if not _is_silent(each)]
    return sorted([*zip(silent, heard), *others], key=lambda found: found[1])


def _is_silent(member: Member) -> bool:
    return member.session.end is not None and member.session.end.silent


def _missed_ns(member: Member) -> int:
    return member.session.end.time_ns if member.session.end is not None else 0


def first_failed(members: Iterable[Member]) -> Optional[Member]:
    """The one that failed first; where all ended in order or go on, the first that ran out of memory; else None."""
    kept = list(members)
    failed = [(each, end_ns) for each, end_ns in in_order_of_end(kept) if each.failed]
    if failed:
        first, end_ns = failed[0]
        if not _is_silent(first):
            return first
        # A killed one was heard last at some tick before its end: it may have followed one that ran out of memory.
        until = end_ns + _TOGETHER_NS
        return next((each for each, end_ns in failed if end_ns <= until and _ran_out(each)), first)
    return first_exhausted(kept)


def first_exhausted(members: Iterable[Member]) -> Optional[Member]:
    """The one of which an allocation failed first; None where none has."""
    events = [(each, each.session.events_of("oom")) for each in members]
    first = [(min(event.time_ns for event in failed), each) for each, failed in events if failed]
    return min(first, key=lambda found: found[0])[1] if first else None


def _ran_out(member: Member) -> bool:
    end = member.session.end
    return end is not None and "OutOfMemory" in (end.exception or "")


def newest(members: Iterable[Member]) -> list[Member]:
    """The latest life of each rank, by rank."""
    latest = {member.rank: member for member in members if member.rank is not None}
    return [latest[rank] for rank in sorted(latest)]


def earlier(members: Iterable[Member]) -> list[Member]:
    """Lives that are over because another one of the same rank came after, by rank and life."""
    kept = list(members)
    current = set(map(id, newest(kept)))
    past = [member for member in kept if member.rank is not None and id(member) not in current]
    return sorted(past, key=lambda member: (member.rank, member.life))
