"""A verdict that is certain is right: messages printed from figures known to the byte, whole, cut off and spoiled."""

from __future__ import annotations

import io
import random

import pytest

from memtui.analysis.oom.answer import explain, explain_evidence
from memtui.analysis.oom.evidence import Evidence
from memtui.analysis.oom.interval import Interval
from memtui.analysis.oom.parse import find_messages
from tests.support.messages import FORMS, Disguise, Figures, print_message, random_figures, verdict

MESSAGES = 600


@pytest.mark.parametrize("form", FORMS)
def test_whole_messages(form: str) -> None:
    """In any disguise each is found with its rank; its verdict is that on the exact figures, or leaves it open."""
    certain = set()
    for seed in range(MESSAGES // len(FORMS)):
        chance = random.Random(f"{form} {seed}")
        figures = random_figures(chance, form)
        disguise = Disguise(chance)
        [found] = find_messages(io.BytesIO(disguise.of(print_message(figures, form, seed % 8)).encode()))
        assert (found.rank, found.message.complete) == (disguise.rank, True)
        cause, right = explain(found.message).cause, verdict(figures, form)
        assert right <= set(cause.possible)
        assert not cause.certain or {cause.kind} == right
        certain |= {cause.kind} if cause.certain else set()
    assert len(certain) >= 5


def test_messages_that_were_cut_off() -> None:
    """What may have stood behind the cut is not taken for absent."""
    found_any = 0
    for seed in range(MESSAGES):
        chance = random.Random(seed)
        form = chance.choice(FORMS)
        figures = random_figures(chance, form)
        text = print_message(figures, form)
        for found in find_messages(io.BytesIO(text[: chance.randrange(len(text))].encode())):
            cause, right = explain(found.message).cause, verdict(figures, form)
            found_any += 1
            assert not cause.possible or right <= set(cause.possible)
            assert not cause.certain or {cause.kind} == right
    assert found_any > MESSAGES / 2


def test_spoiled_messages_end_no_command() -> None:
    """Characters go, come and change places: whatever is read of it is answered."""
    for seed in range(MESSAGES):
        chance = random.Random(seed)
        form = chance.choice(FORMS)
        text = list(Disguise(chance).of(print_message(random_figures(chance, form), form)))
        for _ in range(chance.randrange(1, 30)):
            place = chance.randrange(len(text))
            text[place] = chance.choice(
                ["", "0", "9" * 40, ".", " ", "\n", "\x1b[2J", "\x00", "é", "GiB", "(", "bytes"]
            )
        for found in find_messages(io.BytesIO("".join(text).encode())):
            answer = explain(found.message)
            assert answer.sentence.isprintable()
            assert all(remedy.saves_bytes is None or remedy.saves_bytes >= 0 for remedy in answer.remedies)


def test_exact_figures_leave_nothing_open() -> None:
    """GIVEN what somebody who watched knows, to the byte, THEN there is one verdict, the right one."""

    def exactly(size: int) -> Interval:
        return Interval.exactly(size)

    for seed in range(MESSAGES):
        chance = random.Random(seed)
        figures: Figures = random_figures(chance, "T6")
        cause = explain_evidence(
            Evidence(
                tried=exactly(figures.tried),
                total=exactly(figures.total),
                free=exactly(figures.free),
                allocated=exactly(figures.allocated),
                idle=exactly(figures.idle),
                reserved=exactly(figures.reserved),
                allowed=None if figures.allowed is None else exactly(figures.allowed),
                own=exactly(figures.reserved + figures.own_outside),
                others=exactly(max(0, figures.total - figures.free - figures.reserved - figures.own_outside)),
            )
        ).cause
        assert set(cause.possible) == verdict(figures, "T6")
        assert cause.certain or cause.reason == "one message"
