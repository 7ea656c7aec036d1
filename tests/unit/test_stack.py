"""What a thread is busy with, from its stack's code objects; and what that puts in the place of a phase."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Optional

import pytest

from memtui.agent.activity import Activity
from memtui.agent.stack import DEPTH, Stack

TORCH = "/somewhere/site-packages/torch/"
TICK = 100_000_000


def layer(file: str, function: str, inner: Callable[[], Any]) -> Callable[[], Any]:
    """A function of that name in a file of that name, that calls `inner`."""
    given: dict[str, Any] = {"inner": inner}
    if function == "<module>":
        code = compile("result = inner()", file, "exec")
        return lambda: exec(code, given)
    exec(compile(f"def {function}():\n    return inner()", file, "exec"), given)
    function_of_that_name: Callable[[], Any] = given[function]
    return function_of_that_name


@contextmanager
def busy(*layers: tuple[str, str], depth: int = 0) -> Iterator[int]:
    """A thread inside these functions, the outermost first, and `depth` more; its number."""
    inside, leave = threading.Event(), threading.Event()

    def wait(more: int = depth) -> None:
        if more:
            wait(more - 1)
        else:
            inside.set()
            leave.wait(60)

    run: Callable[[], Any] = wait
    for file, function in reversed(layers):
        run = layer(file, function, run)
    thread = threading.Thread(target=run)
    thread.start()
    inside.wait(60)
    try:
        assert thread.ident is not None
        yield thread.ident
    finally:
        leave.set()
        thread.join()


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ([], None),
        ([("serialization.py", "save")], "checkpoint"),
        ([("serialization.py", "load"), ("serialization.py", "_legacy_load")], "checkpoint"),
        ([("serialization.py", "register_package")], None),
        ([("distributed/checkpoint/state_dict_saver.py", "save")], "checkpoint"),
        ([("utils/checkpoint.py", "checkpoint")], None),  # of activations: another thing
        ([("../safetensors/torch.py", "save_file")], "checkpoint"),
        ([("_dynamo/eval_frame.py", "_fn")], None),  # also on the stack of what is compiled already
        ([("_dynamo/eval_frame.py", "_fn"), ("_dynamo/convert_frame.py", "_compile")], "compilation"),
        ([("_inductor/compile_fx.py", "run")], None),
        ([("_inductor/compile_fx.py", "fx_codegen_and_compile")], "compilation"),
        ([("_inductor/runtime/triton_heuristics.py", "run")], None),
        (
            [
                ("_inductor/runtime/triton_heuristics.py", "run"),
                ("_inductor/runtime/triton_heuristics.py", "autotune_to_one_config"),
            ],
            "compilation",
        ),
        ([("../triton/runtime/autotuner.py", "run")], None),
        ([("../triton/runtime/autotuner.py", "run"), ("../triton/runtime/autotuner.py", "_bench")], "compilation"),
        # Importing defines functions and calls none of them.
        ([("_dynamo/convert_frame.py", "<module>")], None),
        ([("_dynamo/symbolic_convert.py", "<module>"), ("_dynamo/symbolic_convert.py", "Translator")], None),
        ([("_dynamo/convert_frame.py", "_compile"), ("_inductor/graph.py", "<module>")], "compilation"),
        # A data set that keeps its samples in such files.
        ([("utils/data/_utils/fetch.py", "fetch"), ("serialization.py", "load")], None),
        # The innermost tells what goes on.
        ([("serialization.py", "save"), ("_dynamo/convert_frame.py", "_compile")], "compilation"),
    ],
)
def test_what_a_stack_means(layers: list[tuple[str, str]], found: Optional[str]) -> None:
    stack = Stack()
    with busy(*((TORCH + file, function) for file, function in layers), depth=12) as thread:
        assert stack.doing(thread) == found
        assert stack.doing(thread) == found  # names of files are known by now
    assert stack.doing(thread) is None  # it is gone


def test_a_stack_is_followed_to_a_bounded_depth() -> None:
    with busy((TORCH + "serialization.py", "save"), depth=DEPTH - 20) as thread:
        assert Stack().doing(thread) == "checkpoint"
    with busy((TORCH + "serialization.py", "save"), depth=DEPTH + 20) as thread:
        assert Stack().doing(thread) is None


def test_another_thread_compiles() -> None:
    """A backward pass is compiled on a thread of autograd's; what else others do is not the training's."""
    with busy() as training:
        with busy((TORCH + "_inductor/compile_fx.py", "compile_fx_inner")):
            assert Stack().doing(training) is None
            assert Stack().doing(training, others=True) == "compilation"
        with busy((TORCH + "serialization.py", "save")):
            assert Stack().doing(training, others=True) is None


def test_no_local_lives_longer_for_being_looked_at() -> None:
    """GIVEN a function whose local is looked past WHEN it has returned THEN the local is gone, without a collection."""

    class Tensor:
        pass

    stack = Stack()

    def hold() -> weakref.ref[Tensor]:
        local = Tensor()
        stack.doing(threading.get_ident())
        stack.doing(threading.get_ident(), others=True)
        return weakref.ref(local)

    gc.disable()
    try:
        assert hold()() is None
        with busy(depth=3) as thread:
            frame = sys._current_frames()[thread]
            before = sys.getrefcount(frame)
            stack.doing(thread)
            stack.doing(threading.get_ident(), others=True)
            assert sys.getrefcount(frame) == before
            del frame
    finally:
        gc.enable()


def test_files_of_any_number_are_remembered_within_bounds() -> None:
    stack = Stack()
    for number in range(9_000):
        stack._learn(f"<ipython-input-{number}>")
    assert len(stack._rules) <= 4_096


class Shown:
    """A stack that shows what it is told."""

    def __init__(self) -> None:
        self.shows: Optional[str] = None
        self.asked = 0

    def doing(self, _thread: int, *, others: bool = False) -> Optional[str]:
        self.asked += 1
        return self.shows


def activity(shown: Shown) -> Activity:
    made = Activity()
    made._stack = shown  # type: ignore[assignment]
    return made


def test_an_activity_begins_when_it_is_seen_and_the_phase_goes_on_after_it() -> None:
    shown = Shown()
    place = activity(shown).place
    assert place("between", 10, 10 + TICK, 1) == ("between", 10)
    shown.shows = "checkpoint"
    assert place("between", 10, 10 + 2 * TICK, 1) == ("checkpoint", 10 + 2 * TICK)
    assert place("between", 10, 10 + 3 * TICK, 1) == ("checkpoint", 10 + 2 * TICK)
    shown.shows = "compilation"
    assert place("between", 10, 10 + 4 * TICK, 1) == ("compilation", 10 + 4 * TICK)
    shown.shows = None
    assert place("between", 10, 10 + 5 * TICK, 1) == ("between", 10 + 5 * TICK)
    assert place("between", 10, 10 + 6 * TICK, 1) == ("between", 10 + 5 * TICK)
    # A boundary is known better than a look.
    assert place("forward", 20 + 6 * TICK, 10 + 7 * TICK, 1) == ("forward", 20 + 6 * TICK)


def test_a_boundary_within_an_activity_begins_it_anew() -> None:
    shown = Shown()
    place = activity(shown).place
    shown.shows = "compilation"
    assert place("forward", 0, TICK, 1) == ("compilation", TICK)
    assert place("backward", TICK + 5, 2 * TICK, 1) == ("compilation", 2 * TICK)
    shown.shows = None
    assert place("optimizer", 2 * TICK + 5, 3 * TICK, 1) == ("optimizer", 2 * TICK + 5)


def test_short_steps_are_not_looked_into() -> None:
    shown = Shown()
    place = activity(shown).place
    shown.shows = "checkpoint"
    for tick in range(1, 20):
        assert place("between", tick * TICK - 2_000_000, tick * TICK, 1)[0] == "between"
    assert shown.asked == 0
    assert place("between", 19 * TICK, 20 * TICK, 1)[0] == "checkpoint"
