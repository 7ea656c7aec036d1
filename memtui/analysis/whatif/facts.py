"""What is known of a training that a change is reckoned from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from memtui.analysis import units
from memtui.analysis.composition import Proportion, proportion
from memtui.analysis.forecast import Forecast, build_forecast
from memtui.analysis.ladder import Ladder, build_ladder
from memtui.analysis.optimizers import optimizer_state, temporary_bytes
from memtui.analysis.policy import Policy
from memtui.analysis.recorded import StepTimeline
from memtui.analysis.view import Kind
from memtui.session.session import Session
from memtui.session.steps import step_number
from memtui.wire.frames import Classification, Optimizer

from .checkpointing import NOT_RECORDED, Checkpointed, checkpointed, container
from .moments import Moment, grown, highest, lives, moment, of_lives, parts

#: Steps that were higher than the recorded one by more than this share are worth reckoning with.
_HIGHER = 0.002
_BATCH = re.compile(r"--?(?:\w+[-_])*batch(?:[-_]?size)?|-bs?|-b")
#: Of a peak by looks alone, as much may be of no known owner. In a first step gradients are, until its optimizer.
_UNKNOWN_SHARE = 0.1
#: Another batch than the training's.
_OTHER_BATCH = re.compile(r"eval|val(?:id(?:ation)?)?|test|infer(?:ence)?|predict")
_TRAINS = frozenset(("forward", "backward", "optimizer", "between"))


@dataclass(frozen=True)
class Facts:
    """Bytes on one device; None is unknown.

    `moments` are where the peak can be. `outside_bytes` is what the device holds beside the allocator's tensors, and
    `reach_bytes` what all of it has to fit into.
    """

    moments: tuple[Moment, ...]
    basis: str
    recorded: bool  # every instant of a step was seen; else boundaries and the peaks of phases
    kind: Kind  # of the present peak: predicted, lower_bound
    parameter_bytes: int
    trained_bytes: int
    trained: int
    dtypes: dict[str, int]
    optimizers: tuple[Optimizer, ...]
    roots: tuple[str, ...] = ()
    outside_bytes: Optional[int] = None
    reach_bytes: Optional[int] = None
    batch: Optional[int] = None
    holes_bytes: Optional[int] = None  # reserved and of no use to a tensor, at worst
    growth: str = ""  # whether activations were seen to follow the inputs
    checkpointed: Checkpointed = NOT_RECORDED
    largest_gradient_bytes: Optional[int] = None
    gathered_bytes: Optional[int] = None  # of other devices' parameters at once, where they are sharded
    block_bytes: Optional[int] = None  # parameters of the largest block

    @property
    def present(self) -> Moment:
        """The highest of the moments."""
        return max(self.moments, key=lambda each: each.total)


def gather(session: Session, device: str, now_ns: int, policy: Policy) -> tuple[Optional[Facts], str]:
    """The facts of a device, or why there are none."""
    model = session.model
    if session.device_frame(device) is None:
        return None, "no figures of PyTorch's yet"
    if device == "host":
        return None, "for a GPU only: on the host it is not told apart what grows with the batch"
    ladder = build_ladder(session, device, now_ns, policy)
    forecast = build_forecast(session, device, ladder)
    if model is None or not model.parameter_bytes.get(device):
        return None, "the model's parameters on this device are not known yet"
    if forecast.allocated_bytes is None:
        return None, forecast.basis
    steps = session.recorded(device)
    timeline = StepTimeline(steps[-1]) if steps else None
    found = _looked_at(session, device) if timeline is None else of_lives(lives(timeline), timeline)
    if not _tells(found, timeline):
        return None, "much of it has no known owner yet: ask again after a step, or d records one"
    optimizers = tuple(each for each in model.optimizers if each.trainable_bytes.get(device))
    state = _state_bytes(session, device)
    outside = None if forecast.device_bytes is None else forecast.device_bytes - forecast.allocated_bytes
    facts = Facts(
        moments=found,
        basis=_basis(timeline),
        recorded=timeline is not None,
        kind=forecast.kind,
        parameter_bytes=model.parameter_bytes[device],
        trained_bytes=sum(each.trainable_bytes[device] for each in optimizers),
        trained=sum(each.trainable_parameters for each in optimizers),
        dtypes=model.dtypes,
        optimizers=optimizers,
        roots=model.roots,
        outside_bytes=outside,
        reach_bytes=_reach_bytes(ladder, outside),
        holes_bytes=_holes_bytes(session, device),
        growth=_growth(proportion(session, device)),
        batch=batch_of(() if session.hello is None else session.hello.argv),
    )
    if timeline is not None:
        facts = _with_timeline(facts, timeline)
    return _as_high(_with_state(facts, state), session, device, forecast), ""


def _reach_bytes(ladder: Ladder, outside: Optional[int]) -> Optional[int]:
    """What there is on the device, or less where the process has set a limit to its allocator."""
    if ladder.reach_bytes is None or ladder.allowed_bytes is None or outside is None:
        return ladder.reach_bytes
    return min(ladder.reach_bytes, ladder.allowed_bytes + outside)


def _tells(found: tuple[Moment, ...], timeline: Optional[StepTimeline]) -> bool:
    present = max(found, key=lambda each: each.total, default=None)
    if present is None or timeline is not None:
        return present is not None
    return present.size("unattributed") <= _UNKNOWN_SHARE * present.total


def batch_of(argv: Sequence[str]) -> Optional[int]:
    """The batch size that a command line names, where it names one."""
    for word, following in zip(argv, (*argv[1:], "")):
        name, _, value = word.partition("=")
        other = any(map(_OTHER_BATCH.fullmatch, re.split("[-_]", name)))
        if not other and _BATCH.fullmatch(name) and (value or following).isdigit():
            return int(value or following) or None
    return None


def _basis(timeline: Optional[StepTimeline]) -> str:
    if timeline is None:
        return "boundaries and peaks by phase; d records a step, which tells more"
    return f"step {step_number(timeline.recorded.step):,}, recorded"


def _holes_bytes(session: Session, device: str) -> Optional[int]:
    """What was reserved beside the peak, all of it, and at least one block of the largest activation's size."""
    frame = session.device_frame(device)
    if frame is None or frame.reserved_peak_bytes is None or frame.allocated_peak_bytes is None:
        return None
    largest = max((look.largest_activation_bytes or 0 for look, _ in session.looks(device)), default=0)
    return max(frame.reserved_peak_bytes - frame.allocated_peak_bytes, largest)


def _growth(seen: Optional[Proportion]) -> str:
    if seen is None:
        return "no steps of unlike sizes were looked at, so this was not seen here"
    first, last = step_number(seen.least_step), step_number(seen.most_step)
    return (
        f"seen in steps {first:,} and {last:,}: inputs ×{seen.inputs_times:.2f}, "
        f"activations ×{seen.activations_times:.2f}"
    )


def _state_bytes(session: Session, device: str) -> int:
    state = optimizer_state(session, device)
    return 0 if state is None else state.state_bytes


def _with_state(facts: Facts, state_bytes: int) -> Facts:
    """Every step to come stands on top of the optimizer's state, also where those seen did not yet."""

    def raised(moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
        return highest(
            each.with_sizes(optimizer_state=max(each.size("optimizer_state"), state_bytes)) for each in moments
        )

    again = replace(facts.checkpointed, moments=raised(facts.checkpointed.moments))
    return replace(facts, moments=raised(facts.moments), checkpointed=again)


def _as_high(facts: Facts, session: Session, device: str, forecast: Forecast) -> Facts:
    """As high as the forecast: a step with a longer batch, or an instant that nobody looked at."""
    expected = forecast.allocated_bytes or 0
    present = facts.present
    if expected - present.total <= _HIGHER * expected:
        return facts
    missing = expected - present.total
    seen = session.steps.highest(device)
    phase = seen.phase if seen is not None and seen.phase else "backward"
    base = max((each for each in facts.moments if each.phase == phase), key=lambda each: each.total, default=present)
    if not facts.recorded:
        higher = base.with_sizes(temporaries=base.size("temporaries") + expected - base.total)
        return replace(facts, moments=highest((*facts.moments, higher)))
    if phase not in _TRAINS:
        return _beside(facts, phase, expected)
    if _leaves_behind(session, device):
        return _on_top(facts, missing)
    grows = parts(present)[1]
    if grows <= 0:
        return facts
    times = 1 + missing / grows
    words = f"{facts.basis}; its batch taken ×{times:.2f}, as another step needed {units.size(expected)}"
    return replace(
        facts,
        basis=words,
        moments=tuple(grown(each, times) for each in facts.moments),
        checkpointed=_grown(facts, times),
    )


def _beside(facts: Facts, phase: str, peak_bytes: int) -> Facts:
    """Another phase than the step's own has the highest peak: no lever of the step's changes what that holds."""
    stays = {key: facts.present.size(key) for key in ("parameters", "buffers", "optimizer_state", "workspaces")}
    rest = max(0, peak_bytes - sum(stays.values()))
    words = f"{facts.basis}; the highest peak so far, {units.size(peak_bytes)}, is in {phase}, which no row changes"
    moments = (*facts.moments, moment(phase, {**stays, "unattributed": rest}))
    return replace(facts, basis=words, moments=moments)


def _on_top(facts: Facts, left_bytes: int) -> Facts:
    """What steps leave behind is there whatever is changed about them."""

    def raised(moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
        return tuple(each.with_sizes(unattributed=each.size("unattributed") + left_bytes) for each in moments)

    words = f"{facts.basis}; with {units.size(left_bytes)} that steps since then have left behind, and more will"
    again = replace(facts.checkpointed, moments=raised(facts.checkpointed.moments))
    return replace(facts, basis=words, moments=raised(facts.moments), checkpointed=again)


def _leaves_behind(session: Session, device: str) -> bool:
    found = session.steady_step(device)
    return found is not None and found.growth_bytes > 0


def _grown(facts: Facts, times: float) -> Checkpointed:
    return replace(facts.checkpointed, moments=tuple(grown(each, times) for each in facts.checkpointed.moments))


# From a recorded step


def _with_timeline(facts: Facts, timeline: StepTimeline) -> Facts:
    gradients = [life.size_bytes for life in lives(timeline) if life.category == "gradients"]
    blocks: defaultdict[Optional[str], int] = defaultdict(int)
    parameters = timeline.categories.index("parameters")
    for block in timeline.blocks:
        if block.category == parameters:
            name = container(timeline.modules[block.module]) if block.module >= 0 else None
            blocks[name] += block.size_bytes
    root = blocks.pop(None, 0)
    largest = max(blocks.values(), default=None)
    return replace(
        facts,
        checkpointed=checkpointed(timeline),
        largest_gradient_bytes=max(gradients, default=None),
        gathered_bytes=None if largest is None else root + 2 * largest,
        block_bytes=largest,
    )


# From looks at boundaries


def _looked_at(session: Session, device: str) -> tuple[Moment, ...]:
    """Boundaries, and for each phase the highest of them raised to the phase's peak by temporaries."""
    looks = [look for look, _ in session.looks(device)]
    if any(look.categories.get("optimizer_state") for look in looks):
        looks = [look for look in looks if look.categories.get("optimizer_state")]
    found = [moment(look.phase, look.categories) for look in looks]
    found += _of_optimizer(session, device, looks)
    found += _at_phase_peaks(session, device, found)
    return highest(found)


def _of_optimizer(session: Session, device: str, looks: list[Classification]) -> Iterator[Moment]:
    """The optimizer's step: every gradient, no activation, and what its class holds for a moment."""
    optimizers = () if session.model is None else session.model.optimizers
    if not looks or not optimizers:
        return
    least = min(looks, key=lambda look: look.allocated_bytes)
    yield moment("optimizer", least.categories).with_sizes(
        gradients=sum(each.trainable_bytes.get(device, 0) for each in optimizers),
        activations=0,
        temporaries=max(temporary_bytes(session, each, device) for each in optimizers),
    )


def _at_phase_peaks(session: Session, device: str, found: list[Moment]) -> list[Moment]:
    raised = []
    for phase, peak in session.phase_peaks(device).items():
        alike = [each for each in found if each.phase == phase]
        if phase == "forward":  # as it ends, backward begins
            alike = [each for each in found if each.phase in ("forward", "backward")]
        base = max(alike, key=lambda each: each.total, default=None)
        if base is not None and phase in ("forward", "backward", "optimizer") and peak.bytes_held > base.total:
            missing = peak.bytes_held - base.total
            raised.append(base._replace(phase=phase).with_sizes(temporaries=base.size("temporaries") + missing))
    return raised
