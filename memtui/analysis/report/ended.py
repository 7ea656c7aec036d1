"""A run that ended out of memory: its cause by the figures of that instant, and what helps against it."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from memtui.analysis.events import latest_oom
from memtui.analysis.oom.answer import Answer, explain_evidence
from memtui.analysis.oom.cause import Cause, Kind
from memtui.analysis.oom.evidence import Evidence
from memtui.analysis.oom.live import live_evidence
from memtui.analysis.oom.remedies import Remedy, not_helping, remedies
from memtui.analysis.optimizers import first_state_bytes
from memtui.analysis.text import clean, place_words
from memtui.analysis.verdict import end_text
from memtui.analysis.whatif.facts import batch_of
from memtui.session.session import End, Session
from memtui.wire.frames import Event

from .advice import Parts
from .facts import Row, Section, cell

_STILL = "it had not ended when watching did"
_REMEDIES = 3
_FAILING = "when it fails"
_COLUMNS = (("saved_bytes", "up to"),)
#: Categories that a step leaves as they are.
_STAYING = ("parameters", "buffers", "optimizer_state", "workspaces", "communication")
#: What all the rest is, by the phase.
_REST = {"forward": "activations", "evaluation": "activations", "backward": "activations", "optimizer": "temporaries"}


def fatal_oom(session: Session, device: str) -> Optional[Event]:
    """The error that ended the run; None where it ended otherwise, or is not known to have ended."""
    event, end = latest_oom(session, device), session.end
    if event is None or end is None or end.exit_status == 0:
        return None
    if end.exit_status is None and not end.exception and not end.text:
        return None
    return event


def status_text(end: Optional[End]) -> str:
    """How it ended, without what it ended by."""
    if end is None:
        return _STILL
    return end_text(replace(end, exception=None, text="" if end.exception else end.text))


def cause_text(end: Optional[End]) -> str:
    """The exception it ended by; of one of memory no more than its name, for its figures are told by themselves."""
    if end is None or not end.exception:
        return ""
    told = "" if end.exception == "OutOfMemoryError" else end.text
    return clean(": ".join(part for part in (end.exception, told) if part), 300)


def held_at(session: Session, event: Event) -> Optional[Parts]:
    """Who held the memory when a request failed: what stays is known by then, and the rest by its phase. Derived.

    None where the phase does not say what the rest is.
    """
    device, allocated = event.device or "", event.figures.get("allocated_bytes")
    look, model = session.classification(device), session.model
    if allocated is None or (look is None and model is None):
        return None
    held = {} if look is None else {name: look[0].categories.get(name, 0) for name in _STAYING}
    if model is not None:
        held["parameters"] = model.parameter_bytes.get(device, held.get("parameters", 0))
        states = [each.state_bytes or {} for each in model.optimizers]
        held["optimizer_state"] = max(held.get("optimizer_state", 0), sum(state.get(device, 0) for state in states))
        if event.phase in ("backward", "optimizer"):
            trained = sum(each.trainable_bytes.get(device, 0) for each in model.optimizers)
            held["gradients"] = min(trained, max(0, allocated - sum(held.values())))
    rest, kind = allocated - sum(held.values()), _REST.get(event.phase)
    if rest < 0 or kind is None:
        return None
    first = event.phase == "optimizer" and not held.get("optimizer_state")
    kind = "optimizer_state" if first else kind
    held[kind] = held.get(kind, 0) + rest
    parts = sorted(((name, size) for name, size in held.items() if size), key=lambda part: -part[1])
    return Parts(allocated, f"when it failed, {place_words(event.phase, event.step)}", tuple(parts), "derived")


def answer_to(session: Session, event: Event, held: Optional[Parts] = None) -> Answer:
    """The cause and the remedies, from all that is known of that instant: as a viewer told them then."""
    evidence = live_evidence(session, event)
    argv = () if session.hello is None else session.hello.argv
    live = replace(
        evidence.live,
        categories=_needed(session, event, held) or evidence.live.categories,
        batch=batch_of(argv),
        devices=None if session.hello is None else session.hello.world_size,
    )
    if held is not None:
        live = replace(live, categories_step=None)
    return explain_evidence(replace(evidence, live=live))


def _needed(session: Session, event: Event, held: Optional[Parts]) -> dict[str, int]:
    """What was held; of an optimizer's first step with all the state that it would have made."""
    categories = {} if held is None else dict(held.parts)
    if event.phase == "optimizer" and event.step == 0 and session.model is not None:
        sizes = [first_state_bytes(session, each, event.device or "") for each in session.model.optimizers]
        coming = sum(size for size in sizes if size is not None)
        categories["optimizer_state"] = max(categories.get("optimizer_state", 0), coming)
    return categories


def why(answer: Answer) -> str:
    """ "cause: full device; 184.00 MiB were asked for, …": one whose kind is not decided as it is."""
    kind, _, text = answer.sentence.partition(": ")
    if kind != answer.cause.kind:
        return f"cause: {answer.sentence}"
    return f"cause: {'full device' if kind == 'full' else kind}; {text}"


def against(kind: Kind) -> tuple[tuple[Remedy, ...], tuple[str, ...]]:
    """What helps against a cause that was seen before it made anything fail, and what does not."""
    cause, nothing = Cause(kind, (kind,)), Evidence()
    return remedies(cause, nothing), tuple(text for text in not_helping(cause, nothing) if _FAILING not in text)


def remedies_section(helping: tuple[Remedy, ...], useless: tuple[str, ...]) -> Section:
    """What helps, in this order, and what does not."""
    rows = [
        Row(
            f"remedy_{number}",
            f"{number}",
            (cell("saved_bytes", remedy.saves_bytes, "predicted"),),
            f"{remedy.action}; price: {remedy.price}",
        )
        for number, remedy in enumerate(helping[:_REMEDIES], start=1)
    ]
    rows += [Row(f"not_{number}", "not", (), text) for number, text in enumerate(useless, start=1)]
    told = any(remedy.saves_bytes is not None for remedy in helping[:_REMEDIES])
    return Section("remedies", "What helps, in this order", tuple(rows), _COLUMNS if told else (), ("predicted",))
