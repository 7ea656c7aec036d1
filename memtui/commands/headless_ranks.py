"""What is printed of several ranks: a line a second for all of them, and what is found between them, once each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Optional, Protocol

from memtui.analysis.build import build_view
from memtui.ranks.ends import end_words
from memtui.ranks.view import RanksView, build_ranks
from memtui.session.members import Member
from memtui.session.readings import DriverReading

from .ownline import OwnLines


class Side(Protocol):
    """Ranks side by side: live, or at one instant of their logs."""

    @property
    def members(self) -> Sequence[Member]:
        """All that were seen."""

    @property
    def several(self) -> bool:
        """Whether there is anything to set side by side."""

    @property
    def driver(self) -> Optional[DriverReading]:
        """What the driver said of all devices."""

    @property
    def label(self) -> str:
        """What was started."""

    def now_ns(self) -> int:
        """The instant, on the monitored machine's monotonic clock."""


class RankLines:
    """Lines of one feed of ranks."""

    def __init__(self, ranks: Side) -> None:
        self._ranks = ranks
        self._told: set[tuple[str, tuple[int, ...]]] = set()

    @property
    def several(self) -> bool:
        """Whether there is anything to set side by side."""
        return self._ranks.several

    def say(self, lines: OwnLines, clock: str = "", prefix: str = "memtui: ") -> None:
        """The summary, and findings that are new; `clock` is now where it is not given."""
        view = self._view()
        what = "processes" if view.apart else "ranks"
        lines.say(f"{prefix}{clock or time.strftime('%H:%M:%S')} · {len(view.rows)} {what} · {view.summary}")
        self._tell(view, lines, prefix)

    def farewell(self, lines: OwnLines, prefix: str = "memtui: ") -> None:
        """What was found of the end, and how each rank ended."""
        self._tell(self._view(), lines, prefix)
        for member in sorted(self._ranks.members, key=_place):
            session = member.session
            if session.end is None:
                continue
            peak = build_view(session, session.default_device(), session.end.time_ns).verdict.peak
            end = end_words(session)
            lines.say(f"{prefix}{member.name}: {' · '.join(part for part in (end, peak) if part)}")

    def tell_end(self, lines: OwnLines) -> None:
        """Which rank ended first, where that was no ordinary end; nothing of a single process."""
        if self.several:
            for finding in self._view().findings:
                if finding.key == "ended":
                    lines.say(f"memtui: {finding.text}")

    def _view(self) -> RanksView:
        ranks = self._ranks
        return build_ranks(ranks.members, ranks.now_ns(), ranks.driver, ranks.label)

    def _tell(self, view: RanksView, lines: OwnLines, prefix: str) -> None:
        for finding in view.findings:
            key = finding.key, finding.ranks
            if key not in self._told:
                self._told.add(key)
                lines.say(f"{prefix}{finding.text}")


def _place(member: Member) -> tuple[bool, int, int]:
    return member.rank is None, member.rank or 0, member.life
