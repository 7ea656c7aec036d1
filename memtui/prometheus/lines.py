"""What a server knows of ranks in lines: a summary of each run, and what is found, once each."""

from __future__ import annotations

import time

from memtui.analysis.text import clean

from .feed import FleetFeed
from .fleet import Course

_MOST_RUNS = 20


class FleetLines:
    """Lines of one feed."""

    def __init__(self, feed: FleetFeed) -> None:
        self._feed = feed
        self._told: set[tuple[object, ...]] = set()
        self._trouble = ""

    def news(self, now_s: float) -> list[str]:
        """What there is to be said after a look; `now_s` is Unix time."""
        feed = self._feed
        clock = time.strftime("%H:%M:%S", time.localtime(now_s))
        if feed.trouble:
            before, self._trouble = self._trouble, feed.trouble
            return [clean(f"memtui: {clock} · {feed.trouble}", 400)] if feed.trouble != before else []
        lines = []
        if self._trouble:
            self._trouble = ""
            lines.append(f"memtui: {clock} · the server answers again")
        fleet = feed.fleet
        if fleet is None:
            return lines
        if feed.replay:
            clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fleet.look.time_s))
        for course in fleet.courses[:_MOST_RUNS]:
            lines += self._of(course, clock, len(fleet.courses) > 1)
        if len(fleet.courses) > _MOST_RUNS:
            more = len(fleet.courses) - _MOST_RUNS
            lines.append(f"memtui: {clock} · {more:,} more {'run' if more == 1 else 'runs'}; --query selects some")
        return lines

    def _of(self, course: Course, clock: str, several: bool) -> list[str]:
        view = course.view
        name = f"{view.program} · " if several or view.program else ""
        hosts = view.hosts[0] if len(view.hosts) == 1 else f"{len(view.hosts)} hosts"
        count = f"{len(view.rows):,} {'process' if view.apart else 'rank' if len(view.rows) == 1 else 'ranks'}"
        lines = [f"memtui: {clock} · {name}{count} on {hosts} · {view.summary}"]
        for finding in view.findings:
            key = course.run.key, finding.key, finding.ranks
            if key not in self._told:
                self._told.add(key)
                lines.append(f"memtui: {name if several else ''}{finding.text}")
        return lines
