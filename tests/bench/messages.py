"""Out-of-memory messages by the ten thousand: what is certain is right; and the time that a large log takes."""

from __future__ import annotations

import io
import random
import time
from collections import Counter
from collections.abc import Iterator

from memtui.analysis.oom.answer import explain
from memtui.analysis.oom.parse import find_messages
from memtui.analysis.oom.progress import Progress
from tests.support.messages import FORMS, Disguise, print_message, random_figures, verdict

from .report import Line, at_most

MESSAGES = 10_000
_LOG_BYTES = 64_000_000
#: Against a search for one word in the same bytes.
_SEARCH = 20
#: Many of the figures lie within their rounding of an edge of the rule, on purpose.
_OPEN_PERCENT = 40


def bench() -> Iterator[Line]:
    """Whole messages, messages that are cut off, and a log."""
    whole = _judge(cut=False)
    yield at_most(f"{MESSAGES:,} whole messages in disguise, not found", whole["lost"], 0, "", 0)
    yield at_most("of them, certain and wrong", whole["wrong"], 0, "", 0)
    yield at_most("of them, open without the right one among what is possible", whole["astray"], 0, "", 0)
    yield at_most("of them, undecided", 100 * whole["open"] / MESSAGES, _OPEN_PERCENT, "%", 1)
    cut = _judge(cut=True)
    yield at_most(f"{MESSAGES:,} messages cut off anywhere, certain and wrong", cut["wrong"], 0, "", 0)
    yield at_most("of them, open without the right one", cut["astray"], 0, "", 0)
    yield Line("of them, certain", f"{cut['certain']:,}")
    yield _log()


def _judge(*, cut: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(MESSAGES):
        chance = random.Random(seed)
        form = chance.choice(FORMS)
        figures = random_figures(chance, form)
        text = print_message(figures, form, seed % 8)
        disguise = Disguise(chance)
        text = disguise.of(text[: chance.randrange(10, len(text))] if cut else text)
        found = find_messages(io.BytesIO(text.encode()))
        if len(found) != 1:
            counts["lost"] += 1
            continue
        cause, right = explain(found[0].message).cause, verdict(figures, form)
        counts["certain" if cause.certain else "open"] += 1
        counts["wrong"] += cause.certain and {cause.kind} != right
        counts["astray"] += bool(cause.possible) and not right <= set(cause.possible)
    return counts


def _log() -> Line:
    line = b"2026-03-01 12:00:03 INFO step 17: loss 0.2518, 1204 tokens/s, memory is fine\n"
    log = line * (_LOG_BYTES // len(line))
    started = time.process_time()
    log.lower().find(b"no such word")
    searched = time.process_time() - started
    started = time.process_time()
    find_messages(io.BufferedReader(io.BytesIO(log)), Progress().add)  # type: ignore[arg-type]
    read = time.process_time() - started
    note = f", {_LOG_BYTES / read / 1e6:.0f} MB/s"
    return at_most("a log without a message, against a search for a word", read / searched, _SEARCH, "x", 1, note)
