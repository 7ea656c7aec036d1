"""What is printed of several ranks: a line a second for all of them, and what is found between them, once each."""

from __future__ import annotations

import time

from memtui.analysis.build import build_view
from memtui.analysis.headline import farewell
from memtui.ranks.view import RanksView, build_ranks
from memtui.sources.ranks import Ranks

from .ownline import OwnLines


class RankLines:
    """Lines of one feed of ranks; nothing while there are not several."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._told: set[tuple[str, tuple[int, ...]]] = set()

    @property
    def several(self) -> bool:
        """Whether there is anything to set side by side."""
        return self._ranks.several

    def view(self) -> RanksView:
        """What there is to say now."""
        ranks = self._ranks
        return build_ranks(ranks.members, ranks.now_ns(), ranks.driver, ranks.label)

    def say(self, lines: OwnLines) -> None:
        """The summary, and findings that are new."""
        view = self.view()
        clock = time.strftime("%H:%M:%S")
        lines.say(f"memtui: {clock} · {len(view.rows)} ranks · {view.summary}")
        self._tell(view, lines)

    def farewell(self, lines: OwnLines) -> None:
        """What was found of the end, and how each rank ended."""
        view = self.view()
        self._tell(view, lines)
        for member in sorted(self._ranks.members, key=lambda each: (each.rank is None, each.rank, each.life)):
            session = member.session
            end = farewell(build_view(session, session.default_device(), self._ranks.now_ns()))
            name = f"process {member.pid}" if member.rank is None else f"rank {member.rank}"
            life = f" (life {member.life})" if member.life > 1 else ""
            lines.say(f"memtui: {name}{life}: {end}")

    def _tell(self, view: RanksView, lines: OwnLines) -> None:
        for finding in view.findings:
            key = finding.key, finding.ranks
            if key not in self._told:
                self._told.add(key)
                lines.say(f"memtui: {finding.text}")
