"""Events in the order in which they happened."""

from __future__ import annotations

from collections import deque

from memtui.wire.frames import Event


def insert(events: deque[Event], event: Event) -> bool:
    """Puts an event in its place among the newest; False for one that is there already.

    After a reconnection the agent sends its events again. What happened first stands first, whatever was told first: a
    counter's change is seen only at the next frame.
    """
    place = len(events)
    for held in reversed(events):
        if held == event:
            return False
        if held.time_ns < event.time_ns:
            break
        place -= _order(held) > _order(event)
    if len(events) == events.maxlen:
        events.popleft()
        place = max(0, place - 1)
    events.insert(place, event)
    return True


def _order(event: Event) -> tuple[int, bool]:
    """Of one instant, the retry came first: torch gives back its cache and tries again before it gives up."""
    return event.time_ns, event.name != "alloc_retry"
