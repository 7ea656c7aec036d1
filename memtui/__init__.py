"""memtui: where the memory of a PyTorch training goes, live.

Importing this imports neither torch nor Textual.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__", "start", "step", "stop"]


def start() -> None:
    """Starts the agent in this process, as `memtui run` does; calling it again changes nothing.

    Imports torch. A model that is built afterwards is known from its first layer on; an earlier one is found at the
    first backward pass.
    """
    import torch  # noqa: F401

    from .agent import dormant

    dormant.install().start()


def step() -> None:
    """Says that a training step ends here; from then on only this counts as one. Does nothing without an agent."""
    from .agent import dormant

    agent = dormant.current()
    if agent is not None:
        agent.step()


def stop() -> None:
    """Takes the agent out of this process again. Does nothing without one."""
    from .agent import dormant

    agent = dormant.current()
    if agent is not None:
        agent.stop()
