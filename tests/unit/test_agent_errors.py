"""Whose error it is: the agent's own is kept from the program, and what a signal handler raises is not."""

from __future__ import annotations

import pathlib
import signal
import threading
import types

import pytest

from memtui.agent import errors
from memtui.agent.errors import is_own

_AGENT = pathlib.Path(errors.__file__).with_name("made_up.py")


def _raised(code: str, file: str, **names: object) -> Exception:
    """What a function of the agent's raises that runs `code`, as if it stood in `file`."""
    inner = types.ModuleType("inner")
    exec(compile(code, file, "exec"), inner.__dict__)
    agent = types.ModuleType("agent")
    agent.__dict__.update(inner=inner.__dict__["inner"], **names)
    exec(compile("def outer():\n    inner()\n", str(_AGENT), "exec"), agent.__dict__)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        agent.__dict__["outer"]()
    error: Exception = caught.value
    # The test's own frames are above those of whoever catches it.
    error.__traceback__ = caught.tb.tb_next
    return error


@pytest.mark.parametrize(
    ("file", "own"),
    [
        (str(_AGENT), True),
        (threading.__file__, True),
        ("/somewhere/site-packages/torch/optim/optimizer.py", True),
        ("/somewhere/train.py", False),
        ("<string>", False),
        (str(pathlib.Path(threading.__file__).parent / "site-packages" / "timeouts.py"), False),
    ],
)
def test_by_the_frames_that_it_went_through(file: str, own: bool) -> None:
    error = _raised("def inner():\n    raise RuntimeError('it')\n", file)

    assert is_own(error) is own


def test_what_python_raises_for_a_handler_of_the_program_is_the_programs() -> None:
    """GIVEN a handler of the program's that calls a function of Python's, THEN its error is the program's."""
    code = "import threading\ndef inner():\n    threading.Thread(target=None).join()\n"

    assert is_own(_raised(code, "/somewhere/train.py")) is False
    assert is_own(_raised(code, str(_AGENT))) is True


def test_a_real_handler() -> None:
    def handler(number: int, frame: object) -> None:
        raise TimeoutError("time is up")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        error = _raised(f"import signal\ndef inner():\n    signal.raise_signal({int(signal.SIGALRM)})\n", str(_AGENT))
    finally:
        signal.signal(signal.SIGALRM, before)

    assert is_own(error) is False
