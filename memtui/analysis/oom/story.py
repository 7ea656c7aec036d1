"""What a screen, or a few lines, say of an out-of-memory error that was watched."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Optional

from memtui.analysis import units
from memtui.analysis.policy import DEFAULT, Policy
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.text import clean, phase_words, place_words
from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import Event, Failure

from .answer import Answer, explain_evidence
from .evidence import Evidence
from .interval import Interval
from .live import live_evidence

_SITES, _PINS, _OTHERS = 3, 4, 3
#: Errors kept, the newest: a program that tries out batches makes many.
_STORIES = 64


@dataclass(frozen=True)
class Story:
    """One error: where and when, the answer, the figures in one unit, and who held the memory."""

    event: Event
    heading: str  # "rank 0 · step 41 · forward · 12:03:11"
    raised: str  # "raised at train.py:88 softmax", "" where that is not known
    answer: Answer
    unit: str
    figures: tuple[tuple[str, str], ...]  # ("asked for", "2.0 GiB"), the others in the same unit, without it
    held: tuple[tuple[str, int], ...]  # categories and what else lies on the device, the largest first
    held_note: str  # where categories are of another moment, or unknown
    pins: tuple[str, ...]
    sites: tuple[str, ...]
    sites_note: str
    others: tuple[str, ...]
    settings: str
    count: int  # errors on this device so far, this one included


def build_story(session: Session, event: Event, policy: Policy = DEFAULT) -> Story:
    """All that is said of `event`, an "oom" of `session`, from what is known of it now."""
    evidence = live_evidence(session, event, policy)
    failure = event.failure or Failure()
    unit = "GiB" if evidence.total is None else units.unit_of(evidence.total.middle)
    answer = explain_evidence(evidence)
    sites, sites_note = _sites(session, event, leaking=answer.cause.kind == "leak")
    return Story(
        event=event,
        heading=_heading(session, event),
        raised=f"raised at {clean(failure.site, 80)}" if failure.site else "",
        answer=answer,
        unit=unit,
        figures=tuple(_figures(evidence, unit)),
        held=_held(evidence),
        held_note=_held_note(evidence, failure),
        pins=tuple(_pins(failure, evidence)),
        sites=sites,
        sites_note=sites_note,
        others=tuple(_others(session, event, evidence)),
        settings=clean(failure.settings, 120),
        count=sum(
            each.name == "oom" and each.device == event.device and each.time_ns <= event.time_ns
            for each in session.events
        ),
    )


def _heading(session: Session, event: Event) -> str:
    hello = session.hello
    offset = 0 if hello is None else hello.wall_offset_ns
    parts = [] if hello is None or hello.rank is None else [f"rank {hello.rank}"]
    parts += [clean(event.device or "", 40)]
    parts += [] if event.phase == "startup" else [f"step {step_number(event.step):,}"]
    parts += [phase_words(event.phase), time.strftime("%H:%M:%S", time.localtime((event.time_ns + offset) / 1e9))]
    return " · ".join(filter(None, parts))


def _figures(evidence: Evidence, unit: str) -> Iterator[tuple[str, str]]:
    def number(interval: Optional[Interval]) -> str:
        return units.number(None if interval is None else interval.middle, unit)

    live = evidence.live
    yield "asked for", units.size(None if evidence.tried is None else evidence.tried.middle)
    if evidence.allowed is not None:
        yield "allowed", number(evidence.allowed)
    yield "driver free", number(evidence.free)
    yield "cache", number(evidence.idle)
    yield "largest block", units.number(live.largest_free_block_bytes, unit)
    yield "live", f"{number(evidence.live_tensors)} of {number(evidence.total)}"
    if evidence.private is not None:
        yield "idle in graphs' pools", number(evidence.private)
    yield "other processes", number(evidence.others)


def _held(evidence: Evidence) -> tuple[tuple[str, int], ...]:
    found = dict(evidence.live.categories)
    if evidence.live.categories_step is None:
        rest = {
            "cache": evidence.idle,
            "private_pool_idle": evidence.private,
            "non_torch": evidence.own_outside,
            "other_processes": evidence.others,
        }
        found.update({name: each.middle for name, each in rest.items() if each is not None and each.middle > 0})
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def _held_note(evidence: Evidence, failure: Failure) -> str:
    step = evidence.live.categories_step
    if step is not None:
        return f"as of step {step_number(step):,}: this one was not looked at"
    if failure.blocks is None:
        return "the blocks were not read: the program records a memory history itself, or there was no time"
    if failure.undecided_bytes:
        what = {"backward": "gradients or temporaries", "optimizer": "state or temporaries"}
        kind = what.get(evidence.live.phase, "of no one kind yet")
        return f"of the unattributed {units.size(failure.undecided_bytes)} are new in this phase: {kind}"
    return ""


def _pins(failure: Failure, evidence: Evidence) -> Iterator[str]:
    """The segments that a large request could have had, but for what lives in them."""
    if evidence.in_pools or evidence.idle is None or evidence.idle.middle == 0:
        return
    for each in failure.pinned[:_PINS]:
        live = "1 live block" if each.num_live == 1 else f"{each.num_live:,} live blocks, the largest"
        owner = f", {each.category.replace('_', ' ')}" if each.category else ""
        yield (
            f"segment {each.address:#x} of {units.size(each.segment_bytes)}: {units.size(each.free_bytes)} free, "
            f"pinned by {live} of {units.size(each.block_bytes)} at {each.block_address:#x}{owner}"
        )


def _sites(session: Session, event: Event, *, leaking: bool) -> tuple[tuple[str, ...], str]:
    """The call sites with most live memory at the peak of the newest recorded step; of a leak, what it left behind."""
    recorded = [each for each in session.recorded(event.device or "") if each.time_ns <= event.time_ns]
    if not recorded or not recorded[-1].sites:
        return (), "" if recorded else "no step was recorded: d records one, with the call site of each block"
    timeline = StepTimeline(recorded[-1])
    totals: dict[int, list[int]] = defaultdict(list)
    instant = timeline.last if leaking else timeline.peak
    for block in timeline.alive(instant):
        if block.site >= 0 and (block.born >= 0 or not leaking):
            totals[block.site].append(block.size_bytes)
    largest = sorted(totals, key=lambda site: -sum(totals[site]))[:_SITES]
    texts = (
        f"{clean(recorded[-1].sites[site].split(chr(10))[0], 80)}  {units.size(sum(totals[site]))}"
        + (f" in {len(totals[site]):,}" if len(totals[site]) > 1 else "")
        for site in largest
    )
    number = step_number(recorded[-1].step)
    return tuple(texts), f"left behind by recorded step {number:,}" if leaking else f"at the peak of step {number:,}"


def _others(session: Session, event: Event, evidence: Evidence) -> Iterator[str]:
    reading = session.reading(event.device or "")
    if reading is None or evidence.others is None or evidence.others.middle == 0 or not reading.others:
        return
    known = sorted(reading.others, key=lambda each: -(each.bytes_held or 0))
    for each in known[:_OTHERS]:
        yield f"{clean(each.name, 40) or 'process'} {each.pid}  {units.size(each.bytes_held)}"


class Stories:
    """The errors of a session, each told as of when it was first seen: what comes later does not change it."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], Story] = {}
        self._seen: tuple[int, Optional[Event]] = (0, None)  # of the session's events

    def update(self, session: Session, at: Optional[Callable[[int], Session]] = None) -> tuple[Story, ...]:
        """Those that are new, the oldest first. `at` gives the session of an instant, where it can be gone back to.

        An agent tells a late viewer its events before its frames: an error waits for those that were before it.
        """
        seen = len(session.events), session.events[-1] if session.events else None
        if seen[0] == self._seen[0] and seen[1] is self._seen[1]:
            return ()
        newest_ns = 0 if session.frame is None else session.frame.time_ns
        waits = False
        new: dict[tuple[str, int], Story] = {}
        for event in reversed(session.events):
            key = event.device or "", event.time_ns
            if event.name != "oom":
                continue
            if key in self._made:
                break
            if at is None and session.end is None and event.time_ns > newest_ns:
                waits = True
                continue
            story = build_story(session if at is None else at(event.time_ns), event)
            if at is not None and story.answer.cause.kind == "undecided":
                story = build_story(session, event)
            new[key] = story
        self._seen = (0, None) if waits else seen
        for key in sorted(new, key=lambda each: each[1]):
            self._made[key] = new[key]
        while len(self._made) > _STORIES:
            del self._made[next(iter(self._made))]
        return tuple(new[key] for key in sorted(new, key=lambda each: each[1]))

    @property
    def all(self) -> tuple[Story, ...]:
        """Those that are kept, the oldest first."""
        return tuple(sorted(self._made.values(), key=lambda story: story.event.time_ns))


def short_lines(story: Story, remedies: int = 3) -> Iterator[str]:
    """A few lines for a stream: the place, the sentence, the figures, what would have helped."""
    event = story.event
    again = f", for the {story.count:,}th time" if story.count > 3 else ""
    yield f"out of memory on {clean(event.device or '', 40)} {place_words(event.phase, event.step)}{again}" + (
        f", {story.raised}" if story.raised else ""
    )
    yield f"  {story.answer.sentence}"
    yield "  " + " · ".join(f"{name} {text}" for name, text in story.figures) + f" ({story.unit})"
    for number, remedy in enumerate(story.answer.remedies[:remedies], start=1):
        yield f"  {number} {remedy.action}{gain_text(remedy.saves_bytes)}"


def gain_text(saves_bytes: Optional[int]) -> str:
    """ "; up to 3.1 GiB", or nothing where it is not known."""
    return f"; up to {units.size(saves_bytes)}" if saves_bytes else ""
