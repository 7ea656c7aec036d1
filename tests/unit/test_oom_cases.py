"""Messages and series that people have reported: `../shared/cases` beside the checkout, where it is there."""

from __future__ import annotations

import io
import json
import pathlib
import re
from typing import Any

import pytest

from memtui.analysis.leak import find_leak
from memtui.analysis.oom.answer import Answer, explain
from memtui.analysis.oom.evidence import Live
from memtui.analysis.oom.interval import read_printed
from memtui.analysis.oom.message import Message
from memtui.analysis.oom.parse import find_messages
from memtui.analysis.oom.series import Figure, course_text, find_course
from memtui.analysis.policy import DEFAULT
from memtui.session.floors import Floor, Floors
from tests.support import messages

CASES = pathlib.Path(__file__).parents[3] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no ../shared/cases beside the checkout")

#: What a verdict of the list means in our words; the first that is found in it.
_KINDS = {
    "fragmentation": "fragmentation",
    "impossible": "impossible",
    "leak": "leak",
    "not explained": "unexplained",
    "other process": "other process",
    "others hold it": "other process",
    "spill": "spill",
    "cap": "cap",
    "4 GB block limit": "block limit",
    "full": "full",
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(bytes|[KMG]i?B)?")


def read(name: str) -> list[dict[str, Any]]:
    path = CASES / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def printed(text: str, unit: str = "GiB") -> str:
    """A figure as PyTorch prints it; the list leaves out decimals that are 0, and a unit here and there."""
    match = _SIZE.search(text)
    assert match is not None, text
    number, found = match.group(1), match.group(2) or unit
    if found == "bytes" or float(number) == 0:
        return f"{int(float(number))} bytes"
    return f"{float(number):.2f} {found}"


def text_of(case: dict[str, Any]) -> list[str]:
    """The message, or messages, of an instance in its format."""
    form = case["format"]
    sizes = {
        name: printed(case[name], "GB" if "GB" in case["allocated"] else "GiB")
        for name in ("total", "allocated", "free")
        if case[name] != "-"
    }
    tried = [printed(part) for part in case["tried"].split(" / ")]
    idle = case["reserved_or_idle"]
    others, named = other_figures(case)
    sizes.update(named)
    if form == "T13":
        limit = {"allowed": sizes.pop("total"), "other": printed(case["others"])}
        return [messages.metal({**sizes, **limit, "tried": each}) for each in tried]
    if form == "T14":
        return [messages.asynchronous({**sizes, "tried": each}) for each in tried]
    if form in ("T2", "T3", "T4", "T12", "T15"):
        if idle != "-":
            sizes["cached" if form == "T2" else "reserved"] = printed(idle)
        return [messages.brackets({**sizes, "tried": each}, form) for each in tried]
    if idle != "-":
        sizes["idle"] = printed(idle)
    return [messages.sentences({**sizes, "tried": each}, form, others=tuple(others)) for each in tried]


def other_figures(case: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The processes that are listed, and this process, cap and private pools, out of a case's free text."""
    others: list[str] = []
    named: dict[str, str] = {}
    for part in re.split(r"[;,]", case["others"]):
        if "idle" in part or "elsewhere" in part or not re.search(r"\d", part) or "limit" in part:
            continue
        if "allowed" in part:
            named["allowed"] = printed(part)
        elif "private" in part:
            named["private"] = printed(part)
        elif "this" in part or (case["format"] in ("T7",) and "Process" not in part):
            named["in_use"] = printed(part)
        elif case["format"] not in ("T13",):
            others.append(printed(part))
    return others, named


def answers(case: dict[str, Any]) -> list[tuple[Message, Answer]]:
    found = find_messages(io.BytesIO("\n".join(text_of(case)).encode()))
    assert len(found) == len(case["tried"].split(" / "))
    return [(each.message, explain(each.message)) for each in found]


INSTANCES = read("oom_instances.jsonl") if CASES.is_dir() else []


@pytest.mark.parametrize("case", INSTANCES, ids=[case["id"] for case in INSTANCES])
def test_an_instance_gets_its_verdict_or_undecided(case: dict[str, Any]) -> None:
    """GIVEN a message with an instance's figures, THEN its cause; or undecided, where that is among what it can be."""
    right = next(kind for words, kind in _KINDS.items() if words in case["verdict"])
    for message, answer in answers(case):
        assert message.complete or case["id"] == "I27"  # whose last figure is not known
        assert answer.cause.kind == right or (answer.cause.kind == "undecided" and right in answer.cause.possible)


#: What the figures leave open, and why: a margin below their rounding, a figure that is missing, or one message alone.
OPEN = {"I6": "one message", "I21": "rounding", "I27": "missing", "I34": "rounding"}


def test_no_more_is_left_open_than_the_figures_do() -> None:
    found = {
        case["id"]: answer.cause.reason for case in INSTANCES for _, answer in answers(case) if answer.cause.reason
    }
    assert found == {name: reason for name, reason in OPEN.items() if name in {case["id"] for case in INSTANCES}}


def test_what_is_known_of_the_process_decides() -> None:
    """GIVEN that what is allocated grew, as was seen over hours, THEN the message without a cause is a leak's."""
    [case] = [case for case in INSTANCES if case["id"] == "I6"]
    [(message, _)] = answers(case)
    assert explain(message, Live(growth_bytes_per_step=300_000.0)).cause.kind == "leak"


REPORTS = read("reports.jsonl") if CASES.is_dir() else []
#: What a right answer of the reports begins to say, in our words.
_SAID = (
    (r"(?i)request exceeds|larger than the gpu|> capacity|impossible on the card", "impossible"),
    (r"(?i)(an)?other process holds", "other process"),
    (r"(?i)cannot be explained", "unexplained"),
    (r"(?i)slow leak", "leak"),
    (r"(?i)fragmentation", "fragmentation"),
)


def numbered(report: dict[str, Any], *names: str) -> str:
    """The first of some figures of a report, printed; "" where it has none."""
    for name in names:
        for unit in ("GiB", "MiB", "GB", "MB", "G"):
            value = report["numbers"].get(f"{name}_{unit}")
            if isinstance(value, (int, float)):
                return printed(str(value), unit if "i" in unit else f"{unit[0]}iB")
    return ""


def with_message() -> list[dict[str, Any]]:
    """Reports that have the figures of a message, but of Metal's, which are among the instances."""
    needed = ("tried", "total", "free")
    return [each for each in REPORTS if all(numbered(each, name) for name in needed)]


@pytest.mark.parametrize("report", with_message(), ids=[each["id"] for each in with_message()])
def test_a_reported_message_gets_the_right_answer(report: dict[str, Any]) -> None:
    right = next(kind for words, kind in _SAID if re.search(words, report["right_answer"]))
    sizes = {name: numbered(report, name) for name in ("tried", "total", "free")}
    sizes["allocated"] = numbered(report, "msg_allocated", "allocated")
    idle, cached = numbered(report, "unalloc"), numbered(report, "cached")
    if idle:
        own = numbered(report, "this", "process")
        other = numbered(report, "other_pid")
        named = {**sizes, "idle": idle, **({"in_use": own} if own else {})}
        text = messages.sentences(named, "T6", others=(other,) if other else ())
    elif cached:
        text = messages.brackets({**sizes, "cached": cached}, "T2")
    else:
        reserved = numbered(report, "msg_reserved", "reserved", "end_reserved")
        text = messages.brackets({**sizes, **({"reserved": reserved} if reserved else {})}, "T3")
    [found] = find_messages(io.BytesIO(text.encode()))
    cause = explain(found.message).cause
    assert cause.kind == right or (not cause.certain and right in cause.possible)


def grown() -> list[dict[str, Any]]:
    """Reports of a growth that say from what and to what."""
    ends = (numbered(each, "start") and numbered(each, "end", "end_reserved") for each in REPORTS)
    return [each for each, both in zip(REPORTS, ends) if each["kind"] == "growth_leak" and both]


@pytest.mark.parametrize("report", grown(), ids=[each["id"] for each in grown()])
def test_two_figures_of_a_growth_are_not_called_a_leak(report: dict[str, Any]) -> None:
    """GIVEN no more than what it grew from and to, THEN growth: whether it goes on is not said."""
    texts = numbered(report, "start"), numbered(report, "end", "end_reserved")
    values = [read_printed(*text.split(" ")).interval for text in texts]
    figures = [Figure(step * 300, value.middle) for step, value in enumerate(values) if value is not None]
    assert find_course(figures).course == "growth"


#: How the way between a report's figures is described there: climbing evenly; given back at each epoch's end; at each
#: checkpoint; held from some step on; at the first step alone. By id; from, to or per event, of its figures.
_COURSES: dict[str, tuple[str, str, str, str]] = {
    "R021": ("even", "start", "allocated", "leak"),
    "R022": ("epochs", "start", "end", "saw-tooth"),
    "R030": ("checkpoints", "", "allocated_growth", "staircase"),
    "R046": ("held", "before", "after", "plateau"),
    "R047": ("held", "before", "after", "plateau"),
    "R065": ("held", "off", "on", "plateau"),
    "R066": ("at first", "later", "tick0", "transient"),
    "R067": ("at first", "resnet50_warm", "resnet50_tuning", "transient"),
}
_STEPS, _EPOCH = 400, 150


def course_of(report: dict[str, Any]) -> list[Figure]:
    """The series that a report describes, step by step, between its own figures."""
    shape, low, high, _ = _COURSES[report["id"]]
    first, last = (0 if not name else size_of(numbered(report, name)) for name in (low, high))
    every = report["numbers"].get("every_steps", 1)
    ways = {
        "even": lambda step: first + (last - first) * step // _STEPS,
        "epochs": lambda step: first + (last - first) * (step % _EPOCH) // _EPOCH,
        "checkpoints": lambda step: last * (1 + step // every),
        "held": lambda step: first if step < 10 else last,
        "at first": lambda step: last if not step else first,
    }
    saved = shape == "checkpoints"
    return [
        Figure(step, ways[shape](step), "checkpoint" if saved and step and not step % every else "")
        for step in range(_STEPS)
    ]


def size_of(text: str) -> int:
    value = read_printed(*text.split(" ")).interval
    assert value is not None, text
    return value.middle


def described() -> list[dict[str, Any]]:
    return [report for report in REPORTS if report["id"] in _COURSES]


@pytest.mark.parametrize("report", described(), ids=[report["id"] for report in described()])
def test_a_reported_series_gets_the_right_course(report: dict[str, Any]) -> None:
    """GIVEN each published series, THEN what its right answer says: only a rise that goes on evenly is a leak."""
    found = find_course(course_of(report))

    assert found.course == _COURSES[report["id"]][3]
    assert ("a leak" in course_text(found).replace("not a leak", "")) == (found.course == "leak")
    if "every_steps" in report["numbers"]:
        assert (found.period, found.event) == (report["numbers"]["every_steps"], "checkpoint")
    if report["numbers"].get("period") == "one epoch":
        assert found.period == _EPOCH


@pytest.mark.parametrize("report", described(), ids=[report["id"] for report in described()])
def test_a_reported_series_as_it_goes_on(report: dict[str, Any]) -> None:
    """GIVEN it step by step, THEN what holds memory, or gives it back, is never called a leak by the live monitor.

    An epoch is longer here than the steps that a list is given to be cleared: until then it is what it seems.
    """
    floors, alarms = Floors(), []
    figures = course_of(report)
    for figure in figures:
        floors.add(Floor(figure.step, figure.step * 1_000_000_000, figure.allocated_bytes, None))
        if find_leak(floors, None, DEFAULT) is not None:
            alarms.append(figure.step)
    course = _COURSES[report["id"]][3]

    if course in ("leak", "staircase"):
        assert alarms
        assert min(alarms) >= DEFAULT.leak_steps  # not before a list could have been cleared
    elif course == "saw-tooth":
        assert all(DEFAULT.leak_steps <= step < _EPOCH for step in alarms)  # in the first epoch alone
    else:
        assert alarms == []
