"""What the figures of a screen mean, in sentences for somebody who sees them for the first time.

Each says nothing where one of its figures is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Optional

from memtui.session.steps import step_number

from . import glossary, units
from .bar import band
from .composition import growing
from .leak import Leak, full_text, steps_text
from .policy import DEFAULT
from .text import place_words
from .verdict import of
from .view import Composition, OptimizerState, Spread, View

#: Those whose size the model and its optimizer decide.
_FIXED = ("parameters", "buffers", "gradients", "optimizer_state", "workspaces", "communication")
_ALWAYS_NAMED = ("parameters", "gradients", "optimizer_state")
#: A share of the whole that is worth a word.
_NAMED_FROM = 0.01


class Meaning(NamedTuple):
    """A question of somebody who looks at the screen, and the answer."""

    question: str
    answer: str


def meaning_line(view: View) -> str:
    """The most important of it in one line: which tenant dominates, and what grows with the batch."""
    made_of = view.fullest
    if made_of is None:
        return ""
    lead, size = made_of.parts[0]
    share = of(size, made_of.allocated_bytes)
    if lead == "unattributed":
        parts = [f"most is unattributed: {share}" if _dominates(made_of) else f"unattributed leads: {share}"]
    else:
        many = lead.endswith("s")
        verb = ("dominate" if _dominates(made_of) else "lead") + ("" if many else "s")
        tagged = dict(made_of.tagged).get(lead, 0)
        if tagged:
            way = f", {_part(tagged, size)} tagged, which may not grow with the batch"
            rest = "activations grow with it"
        elif lead in growing(made_of.phase):
            way, rest = (
                f"; {'they grow' if many else 'it grows'} with the batch",
                "parameters, gradients and optimizer state do not",
            )
        else:
            way, rest = ", whatever the batch", "activations grow with it"
        parts = [f"{_name(lead)} {verb}: {share}{way}", rest]
    return " · ".join([*parts, f"fullest moment looked at: {_where(made_of)}"])


def meanings(view: View) -> tuple[Meaning, ...]:
    """All of it; questions without an answer are left out."""
    asked = (
        ("Who holds the memory?", _tenants(view)),
        ("What grows with the batch?", _batch(view)),
        ("What grows from step to step?", _growth(view)),
        ("What does the optimizer's first step bring?", _optimizer(view.optimizer_state)),
        ("Why is more reserved than allocated?", _reserved(view)),
        ("Why does the driver (nvidia-smi) count more than PyTorch?", _driver(view)),
    )
    return tuple(Meaning(question, answer) for question, answer in asked if answer)


def _tenants(view: View) -> str:
    made_of = view.fullest
    if made_of is None:
        return ""
    whole = made_of.allocated_bytes
    lead, size = made_of.parts[0]
    said = f"At the fullest moment that was looked at ({_where(made_of)}), {units.size(whole)} were allocated. "
    share = f"{units.size(size)}, {units.percent(size, whole)}"
    meant = glossary.TERMS.get(lead, ("", ""))[1].partition(";")[0]
    if lead == "unattributed":
        said += f"The largest part is unattributed: {share}. It is {meant}."
    else:
        many = lead.endswith("s")
        verb = (
            ("dominate" if many else "dominates")
            if _dominates(made_of)
            else f"{'are' if many else 'is'} the largest part"
        )
        tagged = dict(made_of.tagged).get(lead, 0)
        if tagged:
            meant = f"{_part(tagged, size)} named by memtui.tag()"
        said += f"{_name(lead).capitalize()} {verb}: {share}" + (f" ({meant})." if meant else ".")
    others = [f"{_name(key)} {units.size(held)}" for key, held in made_of.parts[1:] if held >= _NAMED_FROM * whole]
    return said + (f" Then {_joined(others)}." if others else "")


def _batch(view: View) -> str:
    made_of = view.fullest
    if made_of is None:
        return ""
    tagged = dict(made_of.tagged)
    sizes = {key: held - tagged.get(key, 0) for key, held in made_of.parts}
    grown = [key for key in growing(made_of.phase) if key == "activations" or sizes.get(key)]
    # Of kinds that are not there at that moment it is as true: gradients may be gone as a forward ends.
    fixed = [key for key in _FIXED if key in _ALWAYS_NAMED or sizes.get(key)]
    fixed += ["temporaries"] if sizes.get("temporaries") and "temporaries" not in grown else []
    said = (
        f"{_names(grown)} grow with it: {_sum(sizes, grown)} at that moment. {_names(fixed)} do not, "
        f"{_sum(sizes, fixed)} then: the model and its optimizer decide them."
    )
    rest = sizes.get("unattributed", 0)
    if rest >= _NAMED_FROM * made_of.allocated_bytes:
        said += f" The other {units.size(rest)} are unattributed: it is not known which they do."
    if tagged:
        said += f" Of the {units.size(sum(tagged.values()))} named by memtui.tag() it is not known whether they do."
    return said + _seen(view.spread)


def _seen(seen: Optional[Spread]) -> str:
    if seen is None or seen.most_bytes <= 0:
        return ""
    least, most = units.size(seen.least_bytes), units.size(seen.most_bytes)
    if least == most:
        found = f"{most} of activations each time"
    else:
        lowest, highest = step_number(seen.least_step), step_number(seen.most_step)
        found = f"{least} of activations at least (step {lowest:,}), {most} at most (step {highest:,})"
    first, last = step_number(seen.first_step), step_number(seen.last_step)
    return f" Seen in {seen.looks:,} of the steps {first:,} to {last:,}, as backward began: {found}."


def _growth(view: View) -> str:
    if view.leak is not None:
        blocks = view.leak.blocks_per_step
        more = "" if not blocks else f", in {blocks:,.1f} more blocks a step"
        return (
            f"A leak: what {_risen(view.leak)}{more}, and does not come down again{full_text(view.leak)}. Something "
            "keeps what each step makes: often losses or outputs that are summed up or put into a list with their "
            "graph (.item() and .detach() leave it behind), or a cache that never forgets. The largest live tensors "
            "(5) and a recorded step (d) show what is kept, and from which line."
        )
    if view.larger is not None:
        return (
            f"What {_risen(view.larger)}, but in as many blocks{full_text(view.larger)}. That is what longer "
            "batches do, or a tensor that is made anew and larger each time; which of them, and where it ends, is not "
            "known."
        )
    if not view.growth:
        return ""
    return (
        f"No leak was found so far. It would be one if what is allocated as forwards begin rose evenly over "
        f"{DEFAULT.leak_steps} steps, in more and more blocks: a warm-up does not, nor longer batches, nor what an "
        f"evaluation leaves once, nor holes between blocks. By category: {view.growth}."
    )


def _risen(leak: Leak) -> str:
    """ "is allocated as a forward begins rises by 1.2 MiB a step (1.1 MiB to 1.3 MiB, steps 40 to 260)"."""
    low, high = (units.size(max(0, round(bound))) for bound in (leak.low, leak.high))
    between = "" if low == high else f"{low} to {high}, "
    rate = units.size(round(leak.bytes_per_step))
    steps = steps_text(leak.first_step, leak.last_step)
    return f"is allocated as a forward begins rises by {rate} a step ({between}{steps})"


def _optimizer(state: Optional[OptimizerState]) -> str:
    if state is None:
        return ""
    predicted = state.kind == "predicted"
    if not state.state_bytes:
        return f"Nothing: {state.names} {'will keep' if predicted else 'keeps'} no state beside the parameters."
    size = f"{units.size(state.state_bytes)}, {units.times(state.state_bytes, state.parameter_bytes)} parameters"
    size += f" ({units.size(state.parameter_bytes)})"
    if predicted:
        how = "by its own step, run on tensors without memory" if state.tried else "from its class and options"
        return (
            f"The state of {state.names}, which is still to appear: +{size}, predicted {how}. So "
            "forward and backward may fit, and the optimizer's first step, or the forward after it, run out of memory."
        )
    bound = "at least " if state.kind == "lower_bound" else ""
    return (
        f"The state of {state.names}: {bound}+{size}. It stays once it is made, which most optimizers do in their "
        "first step: every later forward and backward stands on top of it."
    )


def _reserved(view: View) -> str:
    reserved, allocated = _figure(view, "reserved_bytes"), _figure(view, "allocated_bytes")
    if reserved is None or allocated is None or reserved <= allocated:
        return ""
    free = reserved - allocated
    if view.device == "host":
        return (
            f"The C library has {units.size(reserved)} from the system (reserved), and the program has "
            f"{units.size(allocated)} of it (allocated). It keeps the other {units.size(free)} for what comes next: "
            "that is no leak."
        )
    said = (
        f"PyTorch took {units.size(reserved)} from the driver (reserved), and live tensors fill "
        f"{units.size(allocated)} of it (allocated). It keeps the other {units.size(free)} for the tensors to come, "
        "since asking the driver is slow: that is no leak."
    )
    pinned = next((each.figure.value for each in view.bar.bands if each.key == "inactive_split"), None)
    if pinned:
        said += (
            f" {units.size(pinned)} of that is pinned: it lies beside live tensors in the same segment, so that not "
            "even empty_cache() can give it back; tab 6 shows which blocks pin it."
        )
    return said


def _driver(view: View) -> str:
    reserved, outside = _figure(view, "reserved_bytes"), _figure(view, "non_torch_bytes")
    used = _figure(view, "device_used_bytes")
    if reserved is None or used is None:
        return ""
    if view.device == "host":
        if outside is None or outside < 0:
            return ""
        return (
            f"The system counts {units.size(used)} for this process: {units.size(reserved)} of the C library's heap, "
            f"and {units.size(outside)} outside it (programs, libraries, mapped files). Both are right."
        )
    if outside is None:
        more = used - reserved
        if more <= 0:
            return ""
        said = (
            f"It counts {units.size(used)} used on the whole device, {units.size(more)} more than PyTorch reserved "
            "here; whose they are it does not tell: CUDA's context, libraries, other processes."
        )
    elif outside <= 0:
        return ""
    else:
        said = (
            f"It counts {units.size(reserved + outside)} for this process: {units.size(reserved)} that PyTorch "
            f"reserved, tensors or not, and {units.size(outside)} outside its allocator (CUDA's context, NCCL, cuBLAS)."
            " Both are right, and the higher figure is no leak."
        )
        others = _figure(view, "other_process_bytes")
        if others:
            said += f" Another {units.size(others)} on this device are other processes'."
    age_ns = next((row.figure.age_ns for row in view.rows if row.key == "device_used_bytes"), None)
    if age_ns is not None and abs(age_ns) > DEFAULT.stale_driver_ns:
        said += f" The driver's figures are {units.duration(abs(age_ns))} old."
    return said


def _figure(view: View, key: str) -> Optional[int]:
    return next((row.figure.value for row in view.rows if row.key == key), None)


def _sum(sizes: dict[str, int], keys: Iterable[str]) -> str:
    return units.size(sum(sizes.get(key, 0) for key in keys))


def _dominates(made_of: Composition) -> bool:
    return 2 * made_of.parts[0][1] >= made_of.allocated_bytes


def _where(made_of: Composition) -> str:
    return place_words(made_of.phase, made_of.step)


def _name(key: str) -> str:
    return band(key, 0).label


def _part(part: int, whole: int) -> str:
    return f"{'all' if part >= whole else units.size(part)} of it"


def _names(keys: list[str]) -> str:
    """ "Parameters, gradients and optimizer state", at the beginning of a sentence."""
    return _joined([_name(key) for key in keys]).capitalize()


def _joined(words: list[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
