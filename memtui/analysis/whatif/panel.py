"""The answers as values for the screen: the present, each lever's peak, and the largest batch that fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from memtui.analysis import units
from memtui.analysis.policy import DEFAULT, Policy
from memtui.analysis.text import phase_words
from memtui.session.session import Session
from memtui.wire.frames import CATEGORIES

from .facts import Facts, gather
from .levers import Lever, Sign, levers, room_bytes
from .moments import Moment, most_times

Fits = Literal["fits", "tight", "no", "unknown"]


@dataclass(frozen=True)
class Answer:
    """A lever's row. Bytes; None is unknown. `parts` are (category, before, after) at the peaks, the moved ones.

    `bands` are (category, bytes) of the device at the new peak; "outside" is all outside the allocator.
    """

    words: str
    group: str
    peak_bytes: Optional[int]
    sign: Sign
    change_bytes: Optional[int]
    device_bytes: Optional[int]
    fits: Fits
    phase: str
    bands: tuple[tuple[str, int], ...]
    parts: tuple[tuple[str, int, int], ...]
    rule: str
    assumes: str
    price: str
    why_not: str


@dataclass(frozen=True)
class Largest:
    """What the batch could be multiplied by; None is not known, and 0 that none fits.

    `times` is where tensors fill the device: the allocator may need more, as blocks of one size do not serve another.
    With `careful_times` what it may lose so grows with the batch, and there is room for it.
    """

    times: Optional[float]
    careful_times: Optional[float]


NOT_KNOWN = Largest(None, None)


@dataclass(frozen=True)
class Panel:
    """The page. Without `present` nothing can be told, and `reason` says why."""

    device: str = ""
    present: Optional[Answer] = None
    answers: tuple[Answer, ...] = ()
    largest: Largest = NOT_KNOWN
    largest_words: str = ""
    basis: str = ""
    capacity_bytes: Optional[int] = None
    reason: str = ""


def build_panel(
    session: Session, device: str, now_ns: int, times: int = 2, devices: int = 8, policy: Policy = DEFAULT
) -> Panel:
    """What the present figures of a device say of each lever."""
    facts, reason = gather(session, device, now_ns, policy)
    return Panel(device=device, reason=reason) if facts is None else panel(facts, device, times, devices, policy)


def panel(facts: Facts, device: str, times: int = 2, devices: int = 8, policy: Policy = DEFAULT) -> Panel:
    """The same of facts that are there; the batch is asked for `times` as large, and sharing among `devices`."""
    largest = _largest(facts)
    now = Lever("now", "", "now", "", moments=facts.moments)
    return Panel(
        device,
        _answer(now, facts, policy),
        tuple(_answer(lever, facts, policy) for lever in levers(facts, times, devices)),
        largest,
        _largest_words(largest, facts),
        facts.basis,
        facts.reach_bytes,
    )


def _answer(lever: Lever, facts: Facts, policy: Policy) -> Answer:
    then, now = max(lever.moments, key=lambda each: each.total, default=None), facts.present
    peak = None if then is None else then.total
    device = None if peak is None or facts.outside_bytes is None else peak + facts.outside_bytes
    sign = _sign(lever, facts)
    return Answer(
        words=lever.words,
        group=lever.group,
        peak_bytes=peak,
        sign=sign,
        change_bytes=None if peak is None else peak - now.total,
        device_bytes=device,
        fits=_fits(device, facts.reach_bytes, sign, policy),
        phase="" if then is None else then.phase,
        bands=() if then is None else _bands(then, facts),
        parts=() if then is None else tuple(_moved(now, then)),
        rule=lever.rule,
        assumes=lever.assumes,
        price=lever.price,
        why_not=lever.why_not,
    )


def _sign(lever: Lever, facts: Facts) -> Sign:
    if facts.kind != "lower_bound":
        return lever.sign
    return "≈" if lever.sign == "≤" else "≥"


def _fits(device: Optional[int], reach: Optional[int], sign: Sign, policy: Policy) -> Fits:
    """A lower bound can show that it does not fit, never that it does; an upper bound the other way round."""
    if device is None or reach is None:
        return "unknown"
    if device > reach:
        return "unknown" if sign in ("≤", "≈") else "no"
    if sign in ("≥", "≈"):
        return "unknown"
    return "tight" if reach - device < policy.tight_share * reach else "fits"


def _bands(then: Moment, facts: Facts) -> tuple[tuple[str, int], ...]:
    inside = [(key, held) for key, held in zip(CATEGORIES, then.sizes) if held]
    return (*inside, ("outside", facts.outside_bytes)) if facts.outside_bytes else tuple(inside)


def _moved(now: Moment, then: Moment) -> list[tuple[str, int, int]]:
    pairs = zip(CATEGORIES, now.sizes, then.sizes)
    return [(key, before, after) for key, before, after in pairs if before != after]


def _largest(facts: Facts) -> Largest:
    room = room_bytes(facts)
    most = None if room is None else most_times(facts.moments, room)
    if room is None or facts.holes_bytes is None:
        return Largest(most, None)
    return Largest(most, most_times(facts.moments, room, facts.holes_bytes))


def _largest_words(largest: Largest, facts: Facts) -> str:
    """ "largest batch that fits: ×1.84, 29 samples (16 now, by the command line); ×1.52 if holes … grow with it"."""
    room, most, careful = room_bytes(facts), largest.times, largest.careful_times
    if room is None:
        return "largest batch that fits: not known, as what else is on the device is not"
    if most is None:
        return "largest batch that fits: not known, as nothing was seen that grows with it"
    if not most:
        return f"no batch fits: what does not grow with it is more than the {units.size(room)} that tensors can have"
    said = f"largest batch that fits: {'at most ' if facts.kind == 'lower_bound' else ''}{_times(most)}"
    if facts.batch is not None:
        said += f", {int(most * facts.batch):,} samples ({facts.batch:,} now, by the command line)"
    if careful and facts.holes_bytes is not None and _times(careful) != _times(most):
        said += f"; {_times(careful)} if holes of {units.size(facts.holes_bytes)} grow with it"
    return said


def _times(value: float) -> str:
    """Rounded down."""
    return f"×{int(value):,}" if value >= 10 else f"×{int(value * 100) / 100:.2f}"


def where(answer: Answer) -> str:
    """ "in backward": where a peak is then."""
    return phase_words(answer.phase, after_in=True) if answer.phase else ""
