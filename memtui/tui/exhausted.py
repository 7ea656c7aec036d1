"""The out-of-memory errors of what is watched: told when they come, and kept for their page."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from memtui.analysis.oom.story import Stories, Story, story_at
from memtui.analysis.text import clean
from memtui.wire.frames import Event

from .feed import Feed, Recording, absent


class Exhausted:
    """Of a live feed each error as of when it came; in a recording those until the instant that is shown."""

    def __init__(self, feed: Feed, say: Callable[[str], None]) -> None:
        self.feed, self._say = feed, say
        self._stories = Stories()
        self._replayed: dict[tuple[str, int], Story] = {}

    def look(self) -> bool:
        """Takes what is new, and says so; whether there is any error."""
        if self.feed.replay:
            return bool(self.feed.session.events_of("oom"))
        new = self._stories.update(self.feed.session)
        if new:
            story = new[-1]
            self._say(f"out of memory on {clean(story.event.device or '', 40)}: {story.answer.cause.kind} · o says why")
        return bool(self._stories.all)

    def events(self) -> tuple[Event, ...]:
        """The errors that there are, the oldest first."""
        if self.feed.replay:
            return tuple(sorted(self.feed.session.events_of("oom"), key=lambda event: event.time_ns))
        self.look()
        return tuple(story.event for story in self._stories.all)

    def story(self, event: Event) -> Story:
        """What is to be said of one of them."""
        if not self.feed.replay:
            return next(story for story in self._stories.all if story.event is event)
        key = event.device or "", event.time_ns
        if key not in self._replayed:
            recording = cast("Recording", self.feed)
            self._replayed[key] = story_at(recording.session, event, recording.session_at)
        return self._replayed[key]

    def nothing(self) -> str:
        """Why there may be no error to be told of although there was one; "" where there is none."""
        return absent(self.feed, "errors")

    def retries(self) -> int:
        """How many allocations succeeded at the second try."""
        session = self.feed.session
        failed = {event.time_ns for event in session.events_of("oom")}
        return sum(event.time_ns not in failed for event in session.events_of("alloc_retry"))
