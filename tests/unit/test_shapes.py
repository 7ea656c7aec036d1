"""Steps of several sizes, written down by hand, and the same step at another size."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Optional

import pytest

from memtui.agent.recorder import MORE_STEPS, STEPS_BETWEEN, WATCHED_STEPS, Variety
from memtui.analysis.allocator.replay import replayed
from memtui.analysis.analyst import Analyst
from memtui.analysis.build import build_view
from memtui.analysis.shapes.asked import asked_shape
from memtui.analysis.shapes.outlook import outlook, outlook_now, shape_lines
from memtui.session.readings import ShapeForecast
from memtui.sources.log_reader import LogReader
from memtui.sources.log_writer import LogWriter
from memtui.wire.frames import CATEGORIES, RecordedHeap, RecordedStep
from tests.support.recorded import by_hand
from tests.support.sessions import Run, hello

KIB, MIB = 1 << 10, 1 << 20
BASE = 1 << 40
ROWS = 4
PARAMETERS, GRADIENTS, INPUTS, ACTIVATIONS, TEMPORARIES = (
    CATEGORIES.index(name) for name in ("parameters", "gradients", "inputs", "activations", "temporaries")
)
Scored = Callable[[int], int]


def attention(length: int) -> int:
    """Bytes of the scores of 8 heads."""
    return ROWS * 8 * 4 * length * length


def step(length: int, last: int = 64, *, number: int = 5, scores: Scored = attention, extra: int = 0) -> RecordedStep:
    """A batch of `length` tokens a row, after one of `last`; `extra` bytes are asked for once more, in forward."""
    made: list[tuple[int, int, int, int]] = []  # born, died, bytes, category
    events = 0

    def alloc(size: int, category: int) -> int:
        nonlocal events
        made.append((events, -1, size, category))
        events += 1
        return len(made) - 1

    def free(block: int) -> None:
        nonlocal events
        born, _, size, category = made[block]
        made[block] = born, events, size, category
        events += 1

    made.append((-1, -1, 8 * MIB, PARAMETERS))
    made.append((-1, -1, 8 * MIB, GRADIENTS))
    made.append((-1, -1, 8 * ROWS * (last + 1), CATEGORIES.index("unattributed")))
    old_gradient, old_batch = 1, 2
    alloc(8 * ROWS * (length + 1), INPUTS)
    free(old_batch)
    kept = [alloc(ROWS * length * 4 * 256, ACTIVATIONS), alloc(scores(length), ACTIVATIONS)]
    free(old_gradient)
    if extra:
        free(alloc(extra, TEMPORARIES))
    tiles = alloc(-(-ROWS * length // 32) * 32 * 512, TEMPORARIES)
    alloc(8 * MIB, GRADIENTS)
    for block in (tiles, *reversed(kept)):
        free(block)
    place, segments, places = 0, [], []
    for _, _, size, _ in made:
        units = -(-size // (2 * MIB)) * 4096
        places.append(place)
        segments.append((place, units, 0, int(size <= MIB), 0, 0))
        place += units
    heap = RecordedHeap(BASE, tuple(segments[:3]), places=tuple(places), asked_bytes=tuple(row[2] for row in made))
    blocks = [(born, died, -(-size // 512) * 512, category) for born, died, size, category in made]
    return by_hand(blocks, events, step=number, time_ns=number * 1_000_000_000, heap=heap)


def three(**options: Scored) -> list[RecordedStep]:
    """Recorded steps of 200, 328 and 264 tokens a row."""
    return [
        step(length, number=5 + 4 * place, scores=options.get("scores", attention))
        for place, length in enumerate((200, 328, 264))
    ]


def named(text: str, recorded: list[RecordedStep], highest_bytes: Optional[int] = None) -> ShapeForecast:
    """What is said of a batch as it is written."""
    found = outlook_now(recorded, asked_shape(text) if text else None, highest_bytes=highest_bytes)
    (each,) = [each for each in found if each.asked == text]
    return each


def test_a_batch_three_times_as_long() -> None:
    """Every law at once: what is fixed, what grows with the length and with its square, what has an offset, tiles."""
    said = named(str(ROWS * (984 + 1)), three())
    came = replayed(step(984, 984))
    assert said.reason == ""
    assert said.factor == pytest.approx(3.0)
    assert said.input_bytes == 8 * ROWS * 985
    assert abs((said.allocated_bytes or 0) - came.peak_allocated_bytes) <= 512 * 32
    assert said.reserved_bytes is not None
    assert said.reserved_bytes >= came.peak_allocated_bytes
    assert said.own_error_percent == pytest.approx(0.0, abs=0.1)
    assert named("x3", three()).allocated_bytes == said.allocated_bytes
    assert named(f"{8 * ROWS * 985}B", three()).allocated_bytes == said.allocated_bytes


def test_two_sizes_are_enough_where_each_law_is_told_by_one() -> None:
    said = named("x3", three()[:2])
    assert abs((said.allocated_bytes or 0) - replayed(step(984, 984)).peak_allocated_bytes) <= 512 * 32
    assert said.own_error_percent is None


def test_the_largest_batch_that_was_seen() -> None:
    """That of the largest recorded step, or a larger one that a step's higher peak tells."""
    largest = replayed(step(328, 328)).peak_allocated_bytes
    assert named("", three()).allocated_bytes == largest
    higher = replayed(step(500, 500)).peak_allocated_bytes
    said = named("", three(), highest_bytes=higher)
    assert said.by_peak
    assert said.factor == pytest.approx(500 / 328, rel=0.01)
    assert abs((said.allocated_bytes or 0) - higher) <= 0.01 * higher
    assert shape_lines([said])[0].startswith(
        "the largest batch seen (about 15.7 KiB of input; 1.52 times the largest recorded by its peak): peak"
    )


def test_a_batch_that_does_not_fit() -> None:
    """Within what the device has, a request that fails is named, and no peak is said."""
    needed = named("x3", three()).allocated_bytes
    assert needed is not None
    under_way = outlook(three(), asked_shape("x3"), capacity_bytes=needed - MIB)
    found: list[ShapeForecast] = []
    try:
        while True:
            next(under_way)
    except StopIteration as end:
        found = end.value
    seen, large = found
    assert seen.failed_bytes is None
    assert (large.allocated_bytes, large.failed_bytes) == (None, attention(984))
    assert " would not fit: a request of 118.2 MiB fails" in shape_lines([large])[0]


def test_other_events_are_refused() -> None:
    """A large block more in the largest step; a small one that is gone at once makes no difference."""
    small, large, middle = three()
    longer = step(328, number=9, extra=MIB)
    said = named("x2", [small, longer, middle])
    assert said.allocated_bytes is None
    assert said.reason.startswith("steps 14 and 10 differ in more than sizes: 10 and 12 allocations and frees")
    assert shape_lines([said]) == (f"no prediction for a batch of x2: {said.reason}",)
    assert shape_lines(outlook_now([small, longer, middle], asked_shape("x2"))) == shape_lines([said])
    passing = named("x2", [small, step(328, number=9, extra=4 * KIB), middle])
    assert passing.allocated_bytes == named("x2", [small, large, middle]).allocated_bytes


def test_sizes_that_follow_no_law_are_refused() -> None:
    sizes = {200: 5 * MIB, 264: 60 * MIB, 328: 61 * MIB}
    said = named("x2", three(scores=lambda length: sizes[length]))
    assert said.reason.endswith("% of the peak grow cannot be told from steps 6, 10 and 14")
    assert named("", three(scores=lambda length: sizes[length])).reason == said.reason


def test_one_size_says_nothing_unless_it_is_asked() -> None:
    alike = [step(200, 200, number=5), step(200, 200, number=9)]
    assert outlook_now(alike) == outlook_now(alike[:1]) == outlook_now([]) == []
    assert named("x2", alike).reason == "all recorded steps are of one size, and two sizes are needed"
    assert named("x2", alike[:1]).reason == "one step is recorded so far, and two sizes are needed"


@pytest.mark.parametrize("text", ["", "x", "0", "x0", "-4", "long", "4.5", "x1e9", "9" * 30])
def test_what_is_no_size_of_a_batch(text: str) -> None:
    with pytest.raises(ValueError, match=r"write tokens|no factor"):
        asked_shape(text)


def test_in_a_session_and_in_its_log(tmp_path: pathlib.Path) -> None:
    """The analyst finds both forecasts, the screen says them, and the log has them."""
    run, log = Run(), LogWriter(str(tmp_path / "log"), "0.1.0")
    run.frame(100 * MIB)
    for recorded in three():
        run.session.apply(recorded, 0)
    analyst, found = Analyst(asked=asked_shape("4,096")), []
    for _ in range(2000):
        found += [each for each in analyst(run.session) if isinstance(each, ShapeForecast)]
    assert [each.asked for each in found] == ["", "4,096"]
    log.message(hello(time_ns=5), run.session)
    for each in found:
        run.session.apply_shape(each)
        log.reading(each)
    log.close()
    lines = build_view(run.session, "cuda:0", run.now_ns).forecast
    assert any(line.startswith("a batch of 4,096 tokens of 8 bytes (3.1") for line in lines)
    reader = LogReader(str(tmp_path / "log"))
    assert reader.whole.shapes("cuda:0") == tuple(found)
    reader.close()


def test_what_is_asked_and_cannot_be_foretold_yet_is_said() -> None:
    """GIVEN --max-shape x2, WHEN nothing is recorded, and then steps of one size, THEN a line says what is missing."""
    run, analyst = Run(), Analyst(asked=asked_shape("x2"))

    def lines() -> list[str]:
        for _ in range(50):
            for each in analyst(run.session):
                if isinstance(each, ShapeForecast):
                    run.session.apply_shape(each)
        told = build_view(run.session, "cuda:0", run.now_ns).forecast
        return [line for line in told if line.startswith("no prediction for a batch of x2: ")]

    run.frame(100 * MIB)
    assert lines() == []
    run.frame(100 * MIB, step=1)
    said = "no prediction for a batch of x2: "
    assert lines() == [said + "no step is recorded so far, and two of different sizes are needed"]
    run.session.apply(step(200, 200, number=5), 0)
    assert lines() == [said + "one step is recorded so far, and two sizes are needed"]
    run.session.apply(step(200, 200, number=9), 0)
    assert lines() == [said + "all recorded steps are of one size, and two sizes are needed"]


def test_steps_that_differ_in_size_alone_are_recorded_again_and_no_others() -> None:
    """(allocations, bytes) of the steps after the one that was recorded first; how often the next is recorded."""

    def recordings(asked: Callable[[int], tuple[int, int]]) -> list[int]:
        variety, found = Variety(), []
        for number in range(3 * WATCHED_STEPS):
            if not variety.over and variety.due(*asked(number)):
                found.append(number)
        return found

    varied = recordings(lambda number: (900, 1000 * MIB + number * 40 * MIB))
    assert len(varied) == MORE_STEPS
    assert all(b - a >= STEPS_BETWEEN for a, b in zip([0, *varied], varied))
    assert recordings(lambda _: (900, 1000 * MIB)) == []
    assert recordings(lambda number: (900, 1000 * MIB + number % 2 * MIB)) == []
    assert recordings(lambda number: (900 + number % 7, 1000 * MIB + number % 7 * 40 * MIB)) == []
    assert recordings(lambda number: (900, (1000 + 500 * (number > WATCHED_STEPS)) * MIB)) == []
