"""Out-of-memory errors that were watched, on a stream."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Optional

from memtui.analysis.build import build_view
from memtui.analysis.oom.story import Stories, Story, build_story, short_lines
from memtui.analysis.verdict import end_text
from memtui.session.session import Session
from memtui.sources.kept import kept_log, kept_session
from memtui.sources.monitor import Monitor

from .ownline import OwnLines

if TYPE_CHECKING:
    from memtui.sources.gathered import Gathered
    from memtui.sources.ranks import Ranks

#: Of so many at once, the newest are told in full, of the others so many sentences: who tries out batches has many.
_TOLD_AT_ONCE, _SENTENCES = 2, 6
#: An error that is as long ago has not ended the program.
_LIVED_ON_NS = 60_000_000_000
#: A program may have begun so long before its viewer.
_STARTED_BEFORE_S = 10.0


class Errors:
    """Those of what is watched, each as of when it came; of several ranks each is told with the rank's name."""

    def __init__(self, feed: Monitor | Ranks | Gathered) -> None:
        self._feed = feed
        self._stories: dict[int, Stories] = {}  # by id of the session
        self._new: dict[str, list[Story]] = {}
        self._sessions: list[Session] = []  # kept, that no other one has the id of an old one

    def look(self) -> None:
        """Takes what is new."""
        for name, session in self._watched():
            if id(session) not in self._stories:
                self._stories[id(session)] = Stories()
                self._sessions.append(session)
            new = self._stories[id(session)].update(session)
            if new:
                self._new.setdefault(name, []).extend(new)

    def tell(self, lines: OwnLines) -> None:
        """Says what is new."""
        for name, stories in self._new.items():
            tell(stories, lines, name)
        self._new.clear()

    def tell_kept(self, since_s: float, lines: OwnLines) -> None:
        """Says what programs of this machine have kept themselves, of which nothing was heard in time."""
        if getattr(self._feed, "elsewhere", False):
            return
        for name, session in self._watched():
            stories = self._stories.get(id(session))
            if stories is None or not stories.all:
                tell_kept(session.pid, since_s, lines, name)

    def _watched(self) -> list[tuple[str, Session]]:
        feed = self._feed
        if not isinstance(feed, Monitor) and feed.several:
            return [(f"{member.name}: ", member.session) for member in feed.members]
        return [("", feed.session)]


def tell(stories: list[Story], lines: OwnLines, name: str = "") -> None:
    """Says what is new, and empties the list; `name` goes before, of a rank."""
    earlier = Counter(story.answer.sentence for story in stories[:-_TOLD_AT_ONCE])
    if earlier:
        told = sum(earlier.values())
        count = max(told, _counted(stories) - _TOLD_AT_ONCE)
        times = "once" if count == 1 else f"{count:,} times"
        known = f" ({told:,} of them known)" if told < count else ""
        lines.say(f"memtui: {name}out of memory {times}{known}, and again right after")
    for sentence, count in earlier.most_common(_SENTENCES):
        lines.say(f"memtui:   {sentence}{f' ({count:,} times)' if count > 1 else ''}")
    for story in stories[-_TOLD_AT_ONCE:]:
        for line in short_lines(story):
            lines.say(f"memtui: {'' if line.startswith(' ') else name}{line}")
    stories.clear()


def _counted(stories: list[Story]) -> int:
    """How many there were from the first to the last on each device, those between them that were not told included."""
    counts: dict[Optional[str], list[int]] = {}
    for story in stories:
        counts.setdefault(story.event.device, []).append(story.count)
    return sum(max(each) - min(each) + 1 for each in counts.values())


def tell_kept(pid: Optional[int], since_s: float, lines: OwnLines, name: str = "") -> None:
    """Says what a program has kept itself since then (Unix seconds), of which no viewer was told in time."""
    path = None if pid is None else kept_log(pid, since_s - _STARTED_BEFORE_S)
    session = None if path is None else kept_session(path)
    if session is not None:
        tell(list(Stories().update(session)), lines, name)
        lines.say(f"memtui: memtui open {path} shows its last figures")


def tell_last(session: Session, lines: OwnLines, name: Optional[str] = None) -> None:
    """Says of the newest error of a program that has failed, unless the program lived on for long after it.

    `name` goes before; without it that of a rank of several.
    """
    newest = next((event for event in reversed(session.events) if event.name == "oom"), None)
    end, hello = session.end, session.hello
    several = hello is not None and hello.rank is not None and (hello.world_size or 1) > 1
    if name is None:
        name = f"rank {hello.rank}: " if hello is not None and several else ""
    if newest is not None and end is not None and end.time_ns - newest.time_ns < _LIVED_ON_NS:
        tell([build_story(session, newest)], lines, name)


def tell_failed(feed: Ranks | Gathered, lines: OwnLines) -> None:
    """Says of everything that was watched in the app and did not end in order how it ended."""
    several = [(f"{member.name}: ", member.session) for member in feed.members] if feed.several else []
    for name, session in several or [("", feed.session)]:
        end = session.end
        if end is None or not (end.exception or end.exit_status or end.silent or end.unheard):
            continue
        tell_last(session, lines, name)
        peak = build_view(session, session.default_device(), end.time_ns).verdict.peak
        lines.say(f"memtui: {name}{' · '.join(part for part in (end_text(end), peak) if part)}")
