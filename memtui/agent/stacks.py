"""What the stack of an allocation says: the program's own lines, and the submodule that was running."""

from __future__ import annotations

import bisect
import os
from collections.abc import Mapping
from typing import Any, Optional

from .recording import Span, Submodules

_DEPTH = 8
_Frames = list[Mapping[str, Any]]


class Sites:
    """Call sites by number. Frames are torch's, the innermost first; the same frame is always the same object."""

    def __init__(self, torch_folder: str) -> None:
        self.texts: list[str] = []
        self._torch = torch_folder + os.sep
        self._by_frames: dict[tuple[int, ...], int] = {}
        self._by_text: dict[str, int] = {}

    def of(self, frames: _Frames) -> int:
        """The number of a stack's site; -1 where there is no stack, as in backward."""
        if not frames:
            return -1
        key = tuple(map(id, frames))
        place = self._by_frames.get(key)
        if place is None:
            own = [frame for frame in frames if not frame["filename"].startswith(self._torch)] or frames
            text = "\n".join(f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in own[:_DEPTH])
            place = self._by_text.setdefault(text, len(self.texts))
            if place == len(self.texts):
                self.texts.append(text)
            self._by_frames[key] = place
        return place


class Running:
    """Which submodule was running, from the calls that were noted and the forwards that are on the stack.

    The stack tells which forwards are running, the calls which module of that class was called last. A call that has
    returned is told from one that goes on by the stack: it has no frame there.
    """

    def __init__(self, submodules: Submodules) -> None:
        self._parents = submodules.parents
        self._spans = submodules.spans
        self._by_code: dict[tuple[str, str], set[Span]] = {}
        for span in submodules.spans:
            if span is not None:
                self._by_code.setdefault(span[:2], set()).add(span)
        self._times: dict[Span, list[int]] = {}
        self._places: dict[Span, list[int]] = {}
        for time_ns, place in submodules.calls:
            span = self._spans[place]
            if span is not None:
                self._times.setdefault(span, []).append(time_ns)
                self._places.setdefault(span, []).append(place)
        self._chains: dict[tuple[int, ...], tuple[Span, ...]] = {}

    def at(self, frames: _Frames, time_ns: int) -> int:
        """The place of the innermost module that was running, -1 where there was none."""
        if not self._times or not frames:
            return -1
        running, since_ns = -1, 0
        for span in self._chain(frames):
            found = self._called(span, running, since_ns, time_ns)
            if found is not None:
                running, since_ns = found
        return running

    def _chain(self, frames: _Frames) -> tuple[Span, ...]:
        key = tuple(map(id, frames))
        chain = self._chains.get(key)
        if chain is None:
            found = (self._span(frame) for frame in reversed(frames))
            chain = self._chains[key] = tuple(span for span in found if span is not None)
        return chain

    def _span(self, frame: Mapping[str, Any]) -> Optional[Span]:
        for span in self._by_code.get((frame["filename"], frame["name"]), ()):
            if span[2] <= frame["line"] <= span[3]:
                return span
        return None

    def _called(self, span: Span, above: int, since_ns: int, time_ns: int) -> Optional[tuple[int, int]]:
        """The module of this code that was called last below `above`; the outer one where one holds another."""
        times, places = self._times.get(span, []), self._places.get(span, [])
        found: Optional[tuple[int, int]] = None
        for at in range(bisect.bisect_right(times, time_ns) - 1, -1, -1):
            if times[at] <= since_ns:
                break  # at the call of `above` itself
            place = places[at]
            if found is None:
                if self._inside(place, above):
                    found = place, times[at]
                    if not self._nested(place, above):
                        return found
            elif place != found[0] and self._inside(found[0], place) and self._inside(place, above):
                found = place, times[at]
        return found

    def _inside(self, place: int, above: int) -> bool:
        """Whether a module is another or in it; -1 holds all."""
        while place not in (above, -1):
            place = self._parents[place]
        return place == above

    def _nested(self, place: int, above: int) -> bool:
        """Whether another module of the same code holds this one, below `above`."""
        span, place = self._spans[place], self._parents[place]
        while place not in (-1, above):
            if self._spans[place] == span:
                return True
            place = self._parents[place]
        return False
