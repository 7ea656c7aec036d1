"""One process of a launcher's: a rank, in one of its lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Optional

from .session import Session


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
    ) -> None:
        self.pid, self.life = pid, life
        self._session, self._rank, self._local_rank = session, rank, local_rank

    @property
    def session(self) -> Session:
        """What is known of it."""
        return self._session()

    @property
    def rank(self) -> Optional[int]:
        """Among all ranks of the training; None while nobody has said."""
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
