"""memtui: where the memory of a PyTorch training goes, live.

Importing this imports neither torch nor Textual.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "start", "step", "stop", "tag"]


def start(*, exact_peaks: bool = False) -> None:
    """Starts the agent in this process, as `memtui run` does; calling it again changes nothing.

    `exact_peaks` does what `memtui run --exact-peaks` does, also where the agent runs already.

    Imports torch. A model that is built afterwards is known from its first layer on; an earlier one is found at the
    first backward pass.
    """
    import torch  # noqa: F401

    from .agent import dormant

    sentry = dormant.install()
    if exact_peaks:
        sentry.take_exactly()
    sentry.start()


def step() -> None:
    """Says that a training step ends here; from then on only this counts as one. Does nothing without an agent."""
    from .agent import dormant

    agent = dormant.current()
    if agent is not None:
        agent.step()


def tag(what: Any, name: str, category: str = "inputs") -> None:
    """Names tensors that no module and no optimizer holds: they are listed by that name. Does nothing without an agent.

    `what` is a tensor, a module, or a dict, list or tuple of them (those that it holds now); nothing here keeps it
    alive. What a model or an optimizer owns keeps the name it has there. ValueError for a category that there is not.
    """
    from .wire.frames import CATEGORIES

    if category not in CATEGORIES:
        raise ValueError(f"no category {category!r}: " + ", ".join(CATEGORIES))
    from .agent import dormant

    agent = dormant.current()
    if agent is not None:
        agent.tag(what, name, category)


def stop() -> None:
    """Takes the agent out of this process again. Does nothing without one."""
    from .agent import dormant

    agent = dormant.current()
    if agent is not None:
        agent.stop()
