"""Cards by name, and the virtual GPUs that are like them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from memtui.virtual_gpu.card import GIB, UNKNOWN, Card, Figure
from memtui.virtual_gpu.card_slices import JETSONS, MIG_SLICES
from memtui.virtual_gpu.card_table import CONSUMER, DATA_CENTRE, WORKSTATION
from memtui.virtual_gpu.errors import VirtualGpuError
from memtui.virtual_gpu.profile import Profile, Size, parse_size

__all__ = ["UNKNOWN", "Card", "Figure", "card_for", "cards", "find_card", "profile_for"]

_CARDS = (*DATA_CENTRE, *WORKSTATION, *CONSUMER, *JETSONS, *MIG_SLICES)

_SIZE = re.compile(r"\s*\d+(\.\d+)?\s*[kmgt](i?b)?\s*", re.IGNORECASE | re.ASCII)
_GIGABYTES = re.compile(r"(?<=\d)\s*gi?b?(?![a-z])")
#: Words that add nothing to tell two cards of the table apart.
_NOISE = re.compile(r"nvidia|geforce|tesla|sxm\d?|hbm\d?e?|\bmig\b|\bgeneration\b")
_SERIES = re.compile(r"^(rtx|gtx)")
_SLICE = re.compile(r"\d\s*g\.\d|\bmig\b", re.IGNORECASE)

_NAMES_IN_A_MESSAGE = 6
_LIST_HINT = "--list shows all"


def cards() -> tuple[Card, ...]:
    """Every card of the table, by group."""
    return _CARDS


def find_card(text: str) -> Card:
    """The card meant by "a100-80g", "A100 80GB", "4090" or "NVIDIA A100-SXM4-80GB".

    Raises `VirtualGpuError` with the names to choose from where none or several are meant.
    """
    key = _key(text)
    if key:
        slices = _SLICE.search(text) is not None
        looked_at = [card for card in _CARDS if slices or card.group != "MIG slice"]
        for matches in (_named(key, looked_at), _partly_named(key, looked_at)):
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise VirtualGpuError(f"{text!r} may be one of several GPUs", f"name one of {_names(matches)}")
    raise VirtualGpuError(f"there is no GPU {text!r} in the table", _nearest(key))


def card_for(text: str) -> Card:
    """The card of a name, or one made up for a plain size such as "24GiB", of which nothing else is known.

    Such a one has compute capability 8.6, for which torch's workspaces are those of most cards.
    Raises `VirtualGpuError`.
    """
    if _SIZE.fullmatch(text) is None:
        return find_card(text)
    return Card(
        name=text.strip(),
        full_name="virtual GPU",
        group="size",
        box_bytes=None,
        compute_capability=Profile.compute_capability,
        multiprocessors=Profile.multiprocessors,
        total=Figure(parse_size(text), "given", "the size that was asked for"),
    )


def profile_for(text: str, count: int = 1, *, context: Size | None = None, **others: object) -> Profile:
    """`count` virtual GPUs like the card of `card_for(text)`.

    A context that is not known is charged as nothing: `card_for(text).context` says so.  `context`
    is charged instead where it is given.  `others` are further fields of `Profile`.  Raises
    `VirtualGpuError`.
    """
    card = card_for(text)
    reserved_bytes = card.driver_reserved_bytes or 0
    if context is None:
        context_bytes = card.context_bytes or 0
    else:
        context_bytes = context if isinstance(context, int) else parse_size(context)
    return Profile(
        count=count,
        memory_bytes=(card.total_bytes + reserved_bytes,),
        name=card.full_name,
        compute_capability=card.compute_capability,
        multiprocessors=card.multiprocessors,
        context_bytes=context_bytes,
        driver_reserved_bytes=reserved_bytes,
        **others,  # type: ignore[arg-type]  # Profile itself names an unknown field
    )


def _words(text: str) -> str:
    """Lower case, "80GB" as "80g", dashes between words, without the words that do not tell cards apart."""
    return re.sub(r"[^a-z0-9]+", "-", _NOISE.sub("", _GIGABYTES.sub("g", text.lower()))).strip("-")


def _key(text: str) -> str:
    return _words(text).replace("-", "")


def _named(key: str, looked_at: Iterable[Card]) -> list[Card]:
    """The cards of which that is a whole name, with or without RTX or GTX, and with their memory or without."""
    return [card for card in looked_at if key in _whole_names(card)]


def _partly_named(key: str, looked_at: Iterable[Card]) -> list[Card]:
    """The cards of which that is a part of the name, no number of which is cut: "a10" is no part of "a100"."""
    start = r"(?<!\d)" if key[0].isdigit() else ""
    part = re.compile(start + "-?".join(key) + r"(?!\d)")
    return [card for card in looked_at if part.search(_words(card.name))]


def _whole_names(card: Card) -> set[str]:
    names = {_key(card.name), _key(card.full_name)}
    names |= {_SERIES.sub("", name) for name in names}
    assert card.box_bytes is not None  # only a plain size has none, and is in no table
    return names | {f"{name}{card.box_bytes // GIB}g" for name in names}


def _nearest(key: str) -> str:
    by_key = {_key(card.name): card for card in _CARDS}
    near = difflib.get_close_matches(key, by_key, n=_NAMES_IN_A_MESSAGE // 2, cutoff=0.65)
    if not near:
        return f"{_LIST_HINT}; or name a size such as 24GiB"
    verb = "is" if len(near) == 1 else "are"
    return f"the nearest {verb} {_names([by_key[name] for name in near])}; {_LIST_HINT}; or name a size such as 24GiB"


def _names(matches: Iterable[Card]) -> str:
    names = [card.name for card in matches]
    more = len(names) - _NAMES_IN_A_MESSAGE
    return ", ".join(names[:_NAMES_IN_A_MESSAGE]) + (f" or {more} more ({_LIST_HINT})" if more > 0 else "")
