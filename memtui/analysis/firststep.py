"""Peaks that can be told during the first step: its own, and that of the steps after it. Derived, in bytes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Optional

from memtui.session.firststep import FirstStep
from memtui.session.session import Session
from memtui.wire.frames import BackwardGraph, Model

from .backward.course import Pass, run
from .backward.graph import Graph
from .backward.holes import Doing, of_later_steps, put_together
from .backward.workspaces import Processor
from .optimizers import first_doing, first_state_bytes, temporary_bytes


@dataclass(frozen=True)
class Peaks:
    """The most that is allocated in the first step, and in any step after it.

    `kept_bytes` is that of later ones where gradients are there when a pass begins, as where they are accumulated or
    zeros take their place; None where it is known by now whether they are.
    """

    first_bytes: int
    later_bytes: int
    kept_bytes: Optional[int] = None


@dataclass(frozen=True)
class Coming:
    """The first backward, from where it began: its peak, that of one like it later, what is allocated at its end.

    `computed_again`: it computes some of its activations anew, whose memory is not in these figures.
    """

    peak_bytes: int
    later_peak_bytes: int
    end_bytes: int
    computed_again: bool = False
    kept_peak_bytes: Optional[int] = None  # of one that finds the gradients of the one before


def backward_to_come(session: Session, device: str, first: FirstStep) -> Optional[Coming]:
    """None where its beginning was not seen.

    By its graph where that was told. Else: at its beginning all activations are there, and the gradient of the largest
    with what it is computed from; at its end they have gone, and every gradient is there.
    """
    if first.backward_bytes is None or first.largest_activation_bytes is None or first.base_bytes is None:
        return None
    if session.model is None:
        return None
    gradients = _gradients(session.model, device)
    found = _by_graph(session, device, first)
    if found is not None:
        # What other passes train: those gradients are there too, then or by the next step. A pass within this one makes
        # them after its own beginning, which is where the peak is.
        missing = max(0, gradients - found.leaf_bytes)
        others = missing if found.whole else 0
        begin, before = first.backward_bytes, _later_forward_bytes(first, found)
        return Coming(
            max(begin + found.peak_bytes + others, first.forward_peak_bytes),
            max(begin + found.settled_peak_bytes + others, before),
            begin + found.end_bytes + missing,
            found.computed_again or (missing > 0 and not found.whole),
            max(begin + found.adding_peak_bytes, before) + gradients,
        )
    end = first.base_bytes + gradients
    peak = max(first.backward_bytes + 2 * first.largest_activation_bytes, first.forward_peak_bytes, end)
    return Coming(peak, peak, end, kept_peak_bytes=peak + gradients)


def _later_forward_bytes(first: FirstStep, found: Pass) -> int:
    """The peak of a later forward, where the last outputs keep their names until the new ones have come.

    As in a loop. They are what the first forward left and its backward did not find kept for it.
    """
    held = (first.backward_bytes or 0) - (first.base_bytes or 0)
    return first.forward_peak_bytes + max(0, held - sum(act.bytes_held for act in found.found))


def _by_graph(session: Session, device: str, first: FirstStep) -> Optional[Pass]:
    if session.graph is None or first.backward_bytes is None or first.base_bytes is None:
        return None
    facts = session.device(device)
    processor = None
    if facts is not None and facts.multi_processor_count and facts.max_threads_per_multi_processor:
        processor = Processor(facts.multi_processor_count, facts.max_threads_per_multi_processor)
    held = max(0, first.backward_bytes - first.base_bytes)
    return _run(session.graph, device, held, processor)


@functools.lru_cache(maxsize=32)
def _run(told: BackwardGraph, device: str, held_bytes: int, processor: Optional[Processor]) -> Optional[Pass]:
    try:
        workspace_bytes = told.workspace_bytes if device.startswith("cuda") else 0
        return run(Graph(told, device), held_bytes, workspace_bytes, processor)
    except ValueError:  # an agent that tells it differently
        return None


def forget_graphs() -> None:
    """Lets go of the graphs of passes that were run through, which may be some megabytes each."""
    _run.cache_clear()
    _slack.cache_clear()


def slack_bytes(session: Session, device: str, first: FirstStep, *, gradients_stay: bool = False) -> int:
    """By how much blocks exceed what was asked for at later peaks, beyond what they do before the first backward.

    By the allocator's rules; 0 where the first forward was not recorded.
    """
    found = _by_graph(session, device, first)
    if found is None or session.graph is None or session.model is None or session.hello is None:
        return 0
    known = session.model.optimizers
    trained = found.leaves if len(known) == 1 else ()
    optimizers = tuple(first_doing(session, optimizer, device, trained) for optimizer in known)
    return _slack(session.graph, device, found, optimizers, gradients_stay, session.hello.torch)


@functools.lru_cache(maxsize=32)
def _slack(
    told: BackwardGraph,
    device: str,
    backward: Pass,
    optimizers: tuple[Doing, ...],
    gradients_stay: bool,
    torch: str,
) -> int:
    forward = next((each for each in told.forward if each.device == device), None)
    if forward is None:
        return 0
    step = put_together(forward, backward, optimizers, gradients_stay=gradients_stay)
    return 0 if step is None else of_later_steps(step, forward, torch)


def after_forward(session: Session, device: str) -> Optional[Peaks]:
    """As it could be told when the first backward began, also now; None where it could not."""
    first = session.first_step(device)
    coming = None if first is None or first.step != 0 else backward_to_come(session, device, first)
    return None if coming is None else _peaks(session, device, coming)


def before_optimizer(session: Session, device: str) -> Optional[Peaks]:
    """As it could be told when the first optimizer began, also now; None where it could not."""
    first = session.first_step(device)
    if first is None or first.step != 0 or not first.backward_ended:
        return None
    if first.allocated_bytes is None or first.peak_bytes is None:
        return None
    missing = _gradients_to_come(session, device, first)
    peak, settled = first.peak_bytes + missing, settled_bytes(session, device, first) + missing
    kept = kept_bytes(session, device, first)
    return _peaks(session, device, Coming(peak, settled, first.allocated_bytes + missing, kept_peak_bytes=kept))


def _gradients_to_come(session: Session, device: str, first: FirstStep) -> int:
    """Of what other optimizers train, whose passes are still to come; 0 where that is not known."""
    if session.model is None or len(session.model.optimizers) < 2 or first.gradient_bytes is None:
        return 0
    return max(0, _gradients(session.model, device) - first.gradient_bytes)


def _gradients(model: Model, device: str) -> int:
    return sum(optimizer.trainable_bytes.get(device, 0) for optimizer in model.optimizers)


def settled_bytes(session: Session, device: str, first: FirstStep) -> int:
    """The first forward's and backward's peak as it would be with the workspaces that the backward came to make."""
    found, peak = _by_graph(session, device, first), first.peak_bytes or 0
    if found is None:
        return peak
    return max(peak + found.settled_peak_bytes - found.peak_bytes, _later_forward_bytes(first, found))


def kept_bytes(session: Session, device: str, first: FirstStep) -> Optional[int]:
    """The same of a pass that finds the gradients of the one before; None where the first step had such passes."""
    if session.model is None or first.passes > 1:
        return None
    found = _by_graph(session, device, first)
    gradients, peak = _gradients(session.model, device), first.peak_bytes or 0
    if found is None:
        return peak + gradients
    return max(peak + found.adding_peak_bytes - found.peak_bytes, _later_forward_bytes(first, found)) + gradients


def _peaks(session: Session, device: str, backward: Coming) -> Optional[Peaks]:
    """On top of the state, which is that of before the first step, also where it can be measured by now."""
    optimizers = () if session.model is None else session.model.optimizers
    states = [first_state_bytes(session, optimizer, device) for optimizer in optimizers]
    if not states or None in states:
        return None
    first_step = session.first_step(device)
    held = 0 if first_step is None else first_step.state_bytes
    state = max(0, sum(size or 0 for size in states) - held)
    temporaries = [
        max(temporary_bytes(session, optimizer, device, first=first) for optimizer in optimizers)
        for first in (True, False)
    ]
    kept = backward.kept_peak_bytes
    if kept is not None and first_step is not None:
        kept += state + slack_bytes(session, device, first_step, gradients_stay=True)
    slack = 0 if first_step is None else slack_bytes(session, device, first_step)
    return Peaks(
        max(backward.peak_bytes, backward.end_bytes + state + temporaries[0]),
        max(backward.later_peak_bytes, backward.end_bytes + temporaries[1]) + state + slack,
        kept,
    )
