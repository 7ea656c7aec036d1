"""What a screen, or a few lines, say of an out-of-memory error that was watched."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Optional

from memtui.analysis import units
from memtui.analysis.bar import band
from memtui.analysis.policy import DEFAULT, Policy
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.recorded_groups import short_site
from memtui.analysis.text import clean, phase_words, place_words
from memtui.analysis.view import Band
from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import CATEGORIES, Event, Failure

from .answer import Answer, explain_evidence
from .evidence import Evidence
from .interval import Interval
from .live import live_evidence

_SITES, _PINS, _OTHERS = 4, 4, 3
#: Call sites with less than such a part of the largest one's are left out.
_CRUMBS = 100
#: Holes of less than such a part of what was asked for are left out.
_NOT_WORTH = 50
#: Errors kept, the newest: a program that tries out batches makes many.
_STORIES = 64


@dataclass(frozen=True)
class Story:
    """One error: where and when, the answer, its figures, and who held the memory."""

    event: Event
    heading: str  # "rank 0 · step 41 · forward · 12:03:11"
    raised: str  # "raised at train.py:88 softmax", "" where that is not known
    answer: Answer
    figures: tuple[tuple[str, str], ...]  # ("asked for", "2.0 GiB"), ...
    bands: tuple[Band, ...]  # who held the device, adding up to it exactly; empty where its figures are not known
    like: tuple[tuple[str, int], ...]  # categories of another step, where those of this one are not known
    held_note: str  # of which step those are, or why there are none
    at_least: tuple[str, ...]  # keys of bands that are lower bounds
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
    answer = explain_evidence(evidence)
    owners = _owners_note(session, event, evidence)
    sites, sites_note = _sites(session, event, leaking=answer.cause.kind == "leak")
    return Story(
        event=event,
        heading=_heading(session, event),
        raised=f"raised at {clean(failure.site, 80)}" if failure.site else "",
        answer=answer,
        figures=tuple(_figures(evidence)),
        bands=tuple(_bands(evidence, failure)),
        like=_like(evidence),
        held_note="; ".join(filter(None, (_held_note(evidence, failure), owners))),
        at_least=("gradients",) if owners else (),
        pins=tuple(_pins(failure, evidence)),
        sites=sites,
        sites_note=sites_note,
        others=tuple(_others(session, event, evidence)),
        settings=clean(failure.settings, 120),
        count=_count(session, event),
    )


def _count(session: Session, event: Event) -> int:
    """How many there were on its device, this one the last: by torch's own counter, where not all of many were told."""
    told = sum(
        each.name == "oom" and each.device == event.device and each.time_ns <= event.time_ns for each in session.events
    )
    return max(told, event.figures.get("num_ooms", 0))


def _heading(session: Session, event: Event) -> str:
    hello = session.hello
    offset = 0 if hello is None else hello.wall_offset_ns
    parts = [] if hello is None or hello.rank is None else [f"rank {hello.rank}"]
    parts += [clean(event.device or "", 40)]
    parts += [] if event.phase == "startup" else [f"step {step_number(event.step):,}"]
    parts += [phase_words(event.phase), time.strftime("%H:%M:%S", time.localtime((event.time_ns + offset) / 1e9))]
    return " · ".join(filter(None, parts))


def _figures(evidence: Evidence) -> Iterator[tuple[str, str]]:
    def size(interval: Optional[Interval]) -> str:
        return units.size(None if interval is None else interval.middle)

    yield "asked for", size(evidence.tried)
    if evidence.allowed is not None:
        yield "allowed", size(evidence.allowed)
    yield "driver free", size(evidence.free)
    yield "cache", size(evidence.idle)
    yield "largest block", units.size(evidence.live.largest_free_block_bytes)
    yield "live", f"{size(evidence.live_tensors)} of {size(evidence.total)}"
    if evidence.private is not None:
        yield "idle in graphs' pools", size(evidence.private)
    others = evidence.others
    rounded = others is not None and others.low == 0 < others.high
    yield "other processes", f"≤ {units.size(others.high)}" if others is not None and rounded else size(others)


def _bands(evidence: Evidence, failure: Failure) -> Iterator[Band]:
    """The device at that instant, by the exact figures."""
    total, free, reserved, live = evidence.total, evidence.free, evidence.reserved, evidence.live_tensors
    if total is None or free is None or reserved is None or live is None:
        return
    categories = evidence.live.categories if evidence.live.categories_step is None else {}
    if sum(categories.values()) != live.low:
        categories = {"allocated": live.low}
    held = dict(categories)
    if failure.blocks is None:
        held["reusable_cache"] = reserved.low - live.low
    else:
        held["reusable_cache"] = failure.blocks.reusable_cache_bytes
        held["inactive_split"] = failure.blocks.inactive_split_bytes
        held["private_pool_idle"] = failure.blocks.private_pool_idle_bytes
    known = evidence.own_outside is not None and evidence.others is not None
    if evidence.own_outside is not None and evidence.others is not None:
        held.update(non_torch=evidence.own_outside.low, other_processes=evidence.others.low)
    rest = total.low - free.low - sum(held.values())
    held["driver_reserved" if known else "device_unattributed"] = rest
    held["device_free"] = free.low
    order = [*CATEGORIES, *(key for key in held if key not in CATEGORIES)]
    yield from (band(key, held[key]) for key in order if held.get(key))


def _like(evidence: Evidence) -> tuple[tuple[str, int], ...]:
    if evidence.live.categories_step is None:
        return ()
    return tuple(sorted(evidence.live.categories.items(), key=lambda item: -item[1]))


def _held_note(evidence: Evidence, failure: Failure) -> str:
    step = evidence.live.categories_step
    if step is not None:
        return f"this step was not looked at; one like it, step {step_number(step):,}, had"
    if failure.blocks is None:
        return "the blocks were not read: the program records a memory history itself, or there was no time"
    if failure.undecided_bytes:
        what = {"backward": "gradients or temporaries", "optimizer": "state or temporaries"}
        kind = what.get(evidence.live.phase, "of no one kind yet")
        return f"of the unattributed {units.size(failure.undecided_bytes)} are new in this phase: {kind}"
    return ""


def _owners_note(session: Session, event: Event, evidence: Evidence) -> str:
    """Of when the owners are, where gradients may have been made since; "" where none are hidden.

    An allocation that has failed is told without a look at any tensor: the owners are those of the look before.
    """
    live = evidence.live
    if live.categories_step is not None or not live.categories.get("unattributed"):
        return ""
    looks = [look for look, at_ns in session.looks(event.device or "") if at_ns < event.time_ns]
    if not looks or (looks[-1].step == event.step and event.phase not in ("backward", "optimizer")):
        return ""
    return f"owners as of step {step_number(looks[-1].step):,}: gradients made since are unattributed"


def _pins(failure: Failure, evidence: Evidence) -> Iterator[str]:
    """The segments that a large request could have had, but for what lives in them."""
    if evidence.in_pools or evidence.tried is None:
        return
    for each in failure.pinned[:_PINS]:
        if each.free_bytes < evidence.tried.low // _NOT_WORTH:
            return
        what = each.category.replace("_", " ") or "a block"
        more = f" and {each.num_live - 1:,} more" if each.num_live > 1 else ""
        yield (
            f"segment {each.address:#x}: {units.size(each.free_bytes)} of {units.size(each.segment_bytes)} free, "
            f"pinned by {what} of {units.size(each.block_bytes)} at {each.block_address:#x}{more}"
        )


def _sites(session: Session, event: Event, *, leaking: bool) -> tuple[tuple[str, ...], str]:
    """The call sites with most live memory: at the failing request where it was recorded, else at the peak of the
    newest recorded step; of a leak what that step left behind.
    """
    if event.failure is not None and event.failure.sites:
        live = [(each.text, each.size_bytes, each.num_blocks) for each in event.failure.sites]
        return _site_texts(live), "of this step, which was being recorded"
    recorded = [each for each in session.recorded(event.device or "") if each.time_ns <= event.time_ns]
    if not recorded or not recorded[-1].sites:
        return (), "" if recorded else "no step was recorded: d records one, with the call site of each block"
    timeline = StepTimeline(recorded[-1])
    totals: dict[int, list[int]] = defaultdict(list)
    instant = timeline.last if leaking else timeline.peak
    for block in timeline.alive(instant):
        if block.site >= 0 and (block.born >= 0 or not leaking):
            totals[block.site].append(block.size_bytes)
    texts = _site_texts([(recorded[-1].sites[site], sum(sizes), len(sizes)) for site, sizes in totals.items()])
    number = step_number(recorded[-1].step)
    return texts, f"left behind by recorded step {number:,}" if leaking else f"at the peak of step {number:,}"


def _site_texts(sites: list[tuple[str, int, int]]) -> tuple[str, ...]:
    """ "12.0 GiB in 24  attention.py:71 softmax ← block.py:20 forward", the largest first, without crumbs."""
    found = sorted(sites, key=lambda site: -site[1])[:_SITES]
    texts = []
    for text, size_bytes, count in found:
        if size_bytes * _CRUMBS < found[0][1]:
            break
        lines = tuple(clean(line.strip(), 300) for line in text.split("\n"))
        texts.append(f"{units.size(size_bytes)}{f' in {count:,}' if count > 1 else ''}  {short_site(lines, 3)}")
    return tuple(texts)


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
            new[key] = build_story(session, event) if at is None else story_at(session, event, at)
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


def story_at(session: Session, event: Event, at: Callable[[int], Session]) -> Story:
    """As it was told then, where that was enough; else by all that a recording, `session`, has."""
    story = build_story(at(event.time_ns), event)
    return story if story.answer.cause.certain else build_story(session, event)


def short_lines(story: Story, remedies: int = 3) -> Iterator[str]:
    """A few lines for a stream: the place, the sentence, the figures, what would have helped."""
    event = story.event
    again = f", {story.count:,} times so far" if story.count > 3 else ""
    yield f"out of memory on {clean(event.device or '', 40)} {place_words(event.phase, event.step)}{again}" + (
        f", {story.raised}" if story.raised else ""
    )
    yield f"  {story.answer.sentence}"
    yield "  " + " · ".join(f"{name} {text}" for name, text in story.figures)
    for number, remedy in enumerate(story.answer.remedies[:remedies], start=1):
        yield f"  {number} {remedy.action}{gain_text(remedy.saves_bytes)}"


def gain_text(saves_bytes: Optional[int]) -> str:
    """ "; up to 3.1 GiB", or nothing where it is not known."""
    return f"; up to {units.size(saves_bytes)}" if saves_bytes else ""
