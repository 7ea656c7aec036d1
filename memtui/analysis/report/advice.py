"""What dominates, and what to do: the owner and the phase first, then the lever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Optional

from memtui.analysis.bar import band
from memtui.analysis.composition import fullest
from memtui.analysis.policy import Policy
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.text import place_words
from memtui.analysis.view import Kind
from memtui.analysis.whatif.facts import Facts, gather
from memtui.analysis.whatif.levers import Lever, levers
from memtui.analysis.whatif.panel import Answer, panel
from memtui.session.session import Session

from .facts import Row, Section, cell
from .peaks import RECORD

_SHOWN, _OF_ONE_GROUP = 3, 2
#: Parts of the peak that are named.
_NAMED, _NAMED_FROM = 6, 0.01
#: What stands beside the parts of an instant that nobody looked at.
_DERIVED = {
    "activations": "what is left beside the others: with inputs and temporaries",
    "temporaries": "what is left beside the others",
    "gradients": "at most: of all that is trained",
}
_SHARDED = ("zero1", "zero2", "zero3")
_FITS = {"fits": "fits", "tight": "fits, hardly", "no": "does not fit", "unknown": "whether it fits is not known"}
_LEVERS = (("saved_bytes", "saves"), ("allocated_peak_bytes", "new peak"))


class Parts(NamedTuple):
    """What the fullest instant was made of, the largest first; `where` in words."""

    allocated_bytes: int
    where: str
    parts: tuple[tuple[str, int], ...]
    how: Kind = "measured"


def find_parts(session: Session, device: str, timeline: Optional[StepTimeline]) -> Optional[Parts]:
    """Of a recorded step's peak, or of the fullest instant that was looked at where that was fuller; None before."""
    looked = fullest(session, device)
    if timeline is not None:
        total = timeline.totals[timeline.peak]
        if looked is None or total >= looked.allocated_bytes:
            held = zip(timeline.categories, timeline.composition(timeline.peak))
            parts = sorted(((key, size) for key, size in held if size), key=lambda part: -part[1])
            where = place_words(timeline.phase(timeline.peak) or "", timeline.recorded.step)
            return Parts(total, f"at the recorded step's peak, {where}", tuple(parts))
    if looked is None:
        return None
    where = place_words(looked.phase, looked.step)
    return Parts(looked.allocated_bytes, f"at the fullest instant looked at, {where}", looked.parts)


def parts_section(found: Optional[Parts]) -> Section:
    """Who holds the memory at the peak."""
    columns = (("", ""), ("percent", ""))
    if found is None:
        row = Row("unattributed", "by owner", (cell("", None),), f"no look at the tensors came: {RECORD}")
        return Section("dominates", "What dominates", (row,), columns)
    shown: list[tuple[str, int]] = [
        part for part in found.parts[:_NAMED] if part[1] >= _NAMED_FROM * found.allocated_bytes
    ]
    rows = [_part(found, key, size) for key, size in shown]
    rest = found.allocated_bytes - sum(size for _, size in shown)
    if rest:
        rows.append(_part(found, "others", rest))
    said = "" if found.how == "measured" else f" ({found.how})"
    return Section("dominates", f"What dominates, {found.where}{said}", tuple(rows), columns, ("derived",))


def _part(found: Parts, key: str, size: int) -> Row:
    share = round(100 * size / found.allocated_bytes)
    figures = cell("", size, found.how), cell("percent", share, "derived", "percent")
    text = _DERIVED.get(key, "") if found.how == "derived" else ""
    return Row(f"{key}_bytes", band(key, 0).label, figures, text)


# Levers


def levers_section(session: Session, device: str, now_ns: int, policy: Policy, *, fits: bool) -> Section:
    """The strongest levers; sharding among devices only where the program has several."""
    title = "What would save most (predicted); it fits, so nothing must change" if fits else "What to do (predicted)"
    facts, reason = gather(session, device, now_ns, policy)
    if facts is None:
        cells = (cell("saved_bytes", None), cell("allocated_peak_bytes", None))
        return Section("levers", "What to do", (Row("levers", "levers", cells, reason),), _LEVERS)
    strongest = list(_strongest(session, device, facts, policy))
    rows = [_lever(*each) for each in strongest]
    if not rows:
        rows = [Row("levers", "levers", (), "none that is known here saves anything")]
    return Section("levers", title, tuple(rows), _LEVERS, ("predicted",))


def _strongest(session: Session, device: str, facts: Facts, policy: Policy) -> Iterator[tuple[Lever, Answer]]:
    world = 0 if session.hello is None or session.hello.world_size is None else session.hello.world_size
    devices = max(2, world)
    pairs = zip(levers(facts, 2, devices), panel(facts, device, 2, devices, policy).answers)
    useful = [
        pair
        for pair in pairs
        if pair[1].change_bytes is not None and pair[1].change_bytes < 0 and (world > 1 or pair[0].key not in _SHARDED)
    ]
    useful.sort(key=lambda pair: pair[1].change_bytes or 0)
    groups: dict[str, int] = {}
    shown = 0
    for lever, answer in useful:
        groups[lever.group] = groups.get(lever.group, 0) + 1
        if groups[lever.group] <= _OF_ONE_GROUP and shown < _SHOWN:
            shown += 1
            yield lever, answer


def _lever(lever: Lever, answer: Answer) -> Row:
    saved = None if answer.change_bytes is None else -answer.change_bytes
    # Of a peak that is a lower bound, what is saved is at most so much.
    fits = "so much at most" if answer.sign == "≥" else _FITS[answer.fits]
    kind: Kind = "lower_bound" if answer.sign == "≥" else "predicted"
    cells = (cell("saved_bytes", saved, "predicted"), cell("allocated_peak_bytes", answer.peak_bytes, kind))
    price = f"; price: {answer.price}" if answer.price else ""
    return Row(lever.key, lever.words, cells, f"{fits}{price}")
