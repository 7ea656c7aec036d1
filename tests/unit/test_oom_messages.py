"""Out-of-memory messages: every format, and wherever in a text they stand."""

from __future__ import annotations

import io
import random
import tracemalloc
from typing import Any, Optional

import pytest

from memtui.analysis.oom import parse
from memtui.analysis.oom.answer import explain
from memtui.analysis.oom.interval import Interval, read_printed
from memtui.analysis.oom.parse import Found, by_rank, find_messages
from tests.support import messages
from tests.support.messages import GIB, MIB, Figures, c10_size, print_message

SIZES = {
    "tried": "300.00 MiB",
    "total": "23.64 GiB",
    "allocated": "20.10 GiB",
    "free": "81.25 MiB",
    "reserved": "22.90 GiB",
    "cached": "2.80 GiB",
    "idle": "2.80 GiB",
    "in_use": "23.10 GiB",
    "allowed": "22.95 GiB",
    "private": "64.00 MiB",
    "other": "0 bytes",
}
BARE = {
    "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=50 error=2 : out of memory": "runtime",
    "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58": "runtime",
    "RuntimeError: CUDA error: out of memory": "runtime",
    "RuntimeError: CUDA driver error: out of memory": "driver",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": "library",
    'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":995, please': "jetson",
    "torch.OutOfMemoryError: Allocation on device ": "async",
    "torch.cuda.OutOfMemoryError: CUDA out of memory.": "bare",
}


def find(text: str) -> list[Found]:
    return find_messages(io.BytesIO(text.encode()))


def only(text: str) -> Found:
    [found] = find(text)
    return found


def without(*names: str) -> dict[str, str]:
    return {name: size for name, size in SIZES.items() if name not in names}


@pytest.mark.parametrize(
    ("text", "backend", "names"),
    [
        (messages.brackets(without("allowed"), "T2", 3), "CUDA", "tried total allocated free cached"),
        (messages.brackets(SIZES, "T3", 3), "CUDA", "tried total allocated free allowed reserved"),
        (messages.brackets(without("allowed"), "T4", 3), "CUDA", "tried total allocated free reserved"),
        (messages.brackets(without("allowed"), "T15", 3), "NPU", "tried total allocated free reserved"),
        (messages.brackets(without("allowed"), "T16", 3), "MUSA", "tried total allocated free reserved"),
        (messages.brackets(without("allowed"), "T12", 3), "XPU", "tried total allocated free reserved"),
        (
            messages.sentences(without("allowed", "private"), "T5", 3, ("1.00 GiB", "0 bytes")),
            "CUDA",
            "tried total allocated free in_use unallocated",
        ),
        (
            messages.sentences(without("in_use", "private"), "T6", 3),
            "CUDA",
            "tried total allocated free allowed unallocated",
        ),
        (messages.sentences(SIZES, "T7", 3), "CUDA", "tried total allocated free allowed in_use private unallocated"),
        (
            messages.sentences(SIZES, "T9", 3, hint=""),
            "CUDA",
            "tried total allocated free allowed in_use private unallocated",
        ),
        (
            messages.sentences(without("allowed"), "T10", 3),
            "HIP",
            "tried total allocated free in_use private unallocated",
        ),
        (
            messages.sentences(without("free", "in_use", "private", "allowed"), "T11", 3),
            "XPU",
            "tried total allocated unallocated",
        ),
        (messages.metal(SIZES), "MPS", "tried allocated allowed other"),
        (messages.asynchronous(SIZES, 3), "CUDA", "tried total allocated free allowed"),
    ],
)
def test_every_format_has_its_figures(text: str, backend: str, names: str) -> None:
    """Each under its own name, none that is not there, in a text with other lines."""
    found = only(f"Traceback (most recent call last):\n  x = y\n{text}\n3.00 GiB free\n")

    message = found.message
    assert (message.backend, message.device, found.line) == (backend, None if backend == "MPS" else 3, 3)
    assert message.complete
    assert set(message.figures) == set(names.split())
    for name, figure in message.figures.items():
        assert figure.text == SIZES["idle" if name == "unallocated" else name]
    assert message.expandable_hint == (messages.HINT in text)


@pytest.mark.parametrize("text", BARE)
def test_a_message_without_figures_says_what_is_known(text: str) -> None:
    message = only(text).message
    assert (message.format, message.complaint) == ("bare", BARE[text])
    answer = explain(message)
    assert (answer.cause.kind, answer.cause.reason) == ("undecided", "no figures")
    assert answer.remedies


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000 bytes.",
            "host memory",
        ),
        ("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.", "impossible"),
    ],
)
def test_what_words_alone_say(text: str, kind: str) -> None:
    assert explain(only(text).message).cause.kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: if you see CUDA out of memory, lower the batch",
        "out of memory: Killed process 4242 (python)",
        "    raise OutOfMemoryError(f'Tried to allocate {size}')",
        "",
    ],
)
def test_what_merely_speaks_of_it_is_no_message(text: str) -> None:
    assert find(text) == []


def test_a_printed_size_is_every_whole_number_that_prints_so() -> None:
    """Both bounds print as the size does, their neighbours outside do not; also where half is rounded to even."""
    chance = random.Random(7)
    sizes = [chance.randrange(1 << chance.randrange(1, 45)) for _ in range(3_000)]
    sizes += [9 * GIB // 8, 11 * GIB // 8, GIB, GIB + 1, 1024, 1025, MIB, MIB + 1, 0]
    for size in sizes:
        digits, unit = c10_size(size).split(" ")
        interval = read_printed(digits, unit).interval
        assert interval is not None
        assert interval.low <= size <= interval.high
        if unit != "bytes":
            scale = {"KiB": 1 << 10, "MiB": MIB, "GiB": GIB}[unit]
            outside = [f"{each / scale:.2f}" for each in (interval.low - 1, interval.high + 1) if each >= 0]
            inside = [f"{each / scale:.2f}" for each in (interval.low, interval.high)]
            assert inside == [digits, digits]
            assert digits not in outside


def test_fewer_decimals_are_wider_and_2_to_the_64th_is_unknown() -> None:
    assert read_printed("20", "MiB").interval == Interval(39 * MIB // 2, 41 * MIB // 2)
    assert read_printed("17179869184.00", "GiB").interval is None
    message = only(messages.sentences({**SIZES, "in_use": "17179869184.00 GiB"}, "T6")).message
    assert message.not_available == ("in_use",)
    assert any("2^64" in note for note in explain(message).notes)


def test_cached_is_beside_what_is_allocated_and_reserved_contains_it() -> None:
    """GIVEN the same figure in the format of PyTorch 1.4 and of 1.5, THEN only there it is all idle."""
    sizes = {**without("allowed"), "cached": "21.00 GiB", "reserved": "21.00 GiB"}
    idle = [only(messages.brackets(sizes, form)).message.idle for form in ("T2", "T3")]
    assert [each and round(each.middle / GIB, 2) for each in idle] == [21.0, 0.9]


def interleaved(*ranks: int) -> str:
    """As many ranks fail at once, and a logger wraps each line and mixes them."""
    lines: list[list[str]] = []
    for rank in ranks:
        text = print_message(Figures((300 + rank) * MIB, 24 * GIB, 80 * MIB, 20 * GIB, 3 * GIB), "T6", rank)
        lines.append([f"[rank{rank}]: {text[place : place + 60]}" for place in range(0, len(text), 60)])
    return "\n".join(line for together in zip(*lines) for line in together)


def test_ranks_are_told_apart_and_the_first_comes_first() -> None:
    """GIVEN messages of three ranks, wrapped and mixed line by line, one of them printed twice, THEN one each."""
    found = by_rank(find(f"{interleaved(5, 0, 2)}\n\n{interleaved(5)}"))

    assert [(each.rank, each.message.device, each.count) for each in found] == [(5, 5, 2), (0, 0, 1), (2, 2, 1)]
    assert [each.message.figures["tried"].text for each in found] == ["305.00 MiB", "300.00 MiB", "302.00 MiB"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_and_line_ends(encoding: str, end: str) -> None:
    text = f"épochs…{end}{print_message(Figures(5 * GIB // 4, 8 * GIB, 0, 7 * GIB, 0), 'T6')}{end}"
    [found] = find_messages(io.BytesIO(text.encode(encoding)))
    assert (found.message.figures["tried"].text, found.line) == ("1.25 GiB", 2)


def test_a_message_is_found_once_wherever_blocks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN blocks of any size, and the message at any place of them, THEN it is found, once, at its line."""
    text = print_message(Figures(5 * GIB // 4, 8 * GIB, 0, 7 * GIB, 0), "T6")
    chance = random.Random(3)
    for _ in range(40):
        monkeypatch.setattr(parse, "BLOCK_BYTES", chance.choice([4096, 20_000, 70_000]))
        before = [f"step {n}: loss {chance.random()}" for n in range(chance.randrange(3_000))]
        after = [f"step {n}" for n in range(chance.randrange(3_000))]
        found = only("\n".join([*before, text, *after]))
        assert (found.count, found.line) == (1, len(before) + 1)
    junk = bytes(chance.randrange(256) for _ in range(100_000)).replace(b"\n", b"")
    [found] = find_messages(io.BytesIO(junk + b" " + text.encode() + junk))  # one line, no text
    assert found.message.figures["tried"].text == "1.25 GiB"


class Long(io.RawIOBase):
    """A log that is far larger than what may be kept of it."""

    def __init__(self, size: int, end: bytes) -> None:
        self._left, self._end = size, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            count = min(len(buffer), len(self._end))
            buffer[:count], self._end = self._end[:count], self._end[count:]
            return count
        filler = (b"step 17: memory is fine, loss 0.25, out of 90 words\n" * (len(buffer) // 52 + 1))[: len(buffer)]
        buffer[:] = filler
        self._left -= len(buffer)
        return len(buffer)


def test_a_large_log_is_not_kept_in_memory() -> None:
    """GIVEN 200 MB with a message at the end, THEN it is found with a few MB."""
    text = print_message(Figures(5 * GIB // 4, 8 * GIB, 0, 7 * GIB, 0), "T6")
    stream = io.BufferedReader(Long(200_000_000, f"\n{text}\n".encode()))
    tracemalloc.start()
    try:
        [found] = find_messages(stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.message.complete
    assert peak < 8_000_000


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"free": "30.00 GiB"}, "more is free than the device has"),
        ({"reserved": "19.00 GiB"}, "more is allocated than reserved"),
        ({"tried": "0 bytes"}, "nothing was asked for"),
        ({"total": "0 bytes"}, "the device has no memory"),
    ],
)
def test_figures_that_contradict_each_other_decide_nothing(names: dict[str, str], why: str) -> None:
    answer = explain(only(messages.brackets({**without("allowed"), **names}, "T4")).message)
    assert (answer.cause.kind, answer.cause.reason) == ("undecided", "contradiction")
    assert why in answer.sentence


@pytest.mark.parametrize(
    ("listed", "in_use", "kind"),
    [
        (("71.62 GiB",), "21.24 GiB", "other process"),
        (("21.24 GiB", "71.62 GiB"), None, "other process"),  # in a container: one of them is this one
        (("0 bytes", "92.80 GiB"), None, "fragmentation"),  # all of it is this one's
        ((), None, "other process"),  # nobody is listed, and there is room for much else
    ],
)
def test_others_are_told_from_this_process(listed: tuple[str, ...], in_use: Optional[str], kind: str) -> None:
    """GIVEN the processes in any order and by any pid, THEN the own one is told by what it holds."""
    own = {"in_use": in_use} if in_use else {}
    sizes = {"tried": "290.00 MiB", "total": "93.00 GiB", "free": "134.94 MiB", "idle": "731.17 MiB", **own}
    sizes["allocated"] = "91.80 GiB" if kind == "fragmentation" else "19.85 GiB"
    assert explain(only(messages.sentences(sizes, "T7", others=listed)).message).cause.kind == kind


@pytest.mark.parametrize(
    ("allocated", "tried", "kind"),
    [("14.00 GiB", "3.00 GiB", "full"), ("4.00 GiB", "3.00 GiB", "undecided"), ("4.00 GiB", "17.00 GiB", "impossible")],
)
def test_what_is_free_is_bounded_where_it_is_not_printed(allocated: str, tried: str, kind: str) -> None:
    """GIVEN a device that does not tell what is free, THEN the rest of it is the most that can be."""
    sizes = {"tried": tried, "total": "16.00 GiB", "allocated": allocated, "idle": "512.00 MiB"}
    answer = explain(only(messages.sentences(sizes, "T11", hint="")).message)
    assert answer.cause.kind == kind
    assert answer.cause.reason == ("missing" if kind == "undecided" else "")
    assert "–" not in answer.sentence


def test_metal_without_a_limit_leaves_it_open() -> None:
    sizes = {"tried": "2.00 GiB", "allocated": "14.00 GiB", "other": "1.00 GiB"}
    cause = explain(only(messages.metal(sizes)).message).cause
    assert (cause.kind, set(cause.possible), cause.reason) == ("undecided", {"full", "unexplained"}, "missing")
