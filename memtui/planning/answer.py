"""The answer of a plan: does it fit, by how much, and how far that is to be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Optional

from memtui.analysis import units
from memtui.analysis.text import phase_words
from memtui.virtual_gpu.report_file import HostRead

from .causes import told_error
from .trial import DeviceTrial, Trial

Confidence = Literal["exact", "close", "estimate"]
_ORDER: tuple[Confidence, ...] = ("exact", "close", "estimate")
#: No context of a known card is larger: with less than this to spare, one that is unknown decides.
_LARGEST_CONTEXT_BYTES = 2 << 30
#: Of a run that was interrupted, so many steps at least: the optimizer's memory comes with the first.
_RISING_STEPS = 20
_LEAST_STEPS = 2
_ON_THE_GPU = 'built under `with torch.device("cuda"):` a model takes none of it'


@dataclass(frozen=True)
class Reason:
    """Why the answer is no better than `confidence`."""

    confidence: Confidence
    text: str


@dataclass(frozen=True)
class Answer:
    """What is answered for one kind of device; sizes in bytes, None where unknown.

    `capped` is the run with the card's own memory, `uncapped` one with more, where the first ran out;
    `expandable` the run with expandable segments. `spare_bytes` is negative where it does not fit: so much is short.
    """

    gpu: str
    capped: Trial
    uncapped: Optional[Trial]
    expandable: Optional[Trial]
    context_known: bool
    context_source: str = ""

    @property
    def fits(self) -> Optional[bool]:
        """Whether it ran in the card's memory; None where nothing was seen that tells."""
        if self.capped.out_of_memory:
            return False
        if not self.capped.used_a_gpu or self.capped.ended in ("failed", "host memory", "rising"):
            return None
        if self.capped.ended == "interrupted" and self.capped.steps < _LEAST_STEPS:
            return None
        return True

    @property
    def told(self) -> Trial:
        """The run whose peaks are those of the program: the capped one, if it came through."""
        return self.uncapped if self.capped.out_of_memory and self.uncapped is not None else self.capped

    @property
    def device(self) -> Optional[DeviceTrial]:
        """The device of that run whose allocator was watched."""
        return self.told.watched

    @property
    def usable_bytes(self) -> Optional[int]:
        """What there is on one such card."""
        device = self.capped.fullest
        return None if device is None else device.usable_bytes

    @property
    def spare_bytes(self) -> Optional[int]:
        """Room left at the peak; negative where it is short."""
        device, usable = self.told.fullest, self.usable_bytes
        if device is None or usable is None or device.peak_device_bytes is None:
            return None
        unseen = self.uncapped is None or self.uncapped.ended in ("out of memory", "host memory")
        if self.fits is False and unseen:
            return None
        return usable - device.peak_device_bytes

    @property
    def expandable_device(self) -> Optional[DeviceTrial]:
        """The watched device with expandable segments; None where that run was not seen to its end."""
        trial = self.expandable
        return None if trial is None or trial.ended in ("host memory", "failed") else trial.watched

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What limits the answer, the worst first."""
        found = [*self._of_values(), *self._of_host(), *self._of_calls(), *self._of_context(), *self._of_length()]
        return tuple(sorted(found, key=lambda reason: -_ORDER.index(reason.confidence)))

    @property
    def confidence(self) -> Confidence:
        """The worst of the reasons; "exact" without any."""
        return self.reasons[0].confidence if self.reasons else "exact"

    def _of_values(self) -> list[Reason]:
        trial = self.told
        shapes = [read for read in trial.host_reads if read.drives_a_shape]
        unknown = [read for read in trial.host_reads if read.drives_a_shape is None]
        found = []
        for read in shapes[:4]:
            text = f"{_place(read)} sizes a tensor by values ({read.what}), which are all 0 here: it is empty"
            found.append(Reason("estimate", text))
        if len(shapes) > 4:
            more = "1 more line sizes tensors" if len(shapes) == 5 else f"{len(shapes) - 4} more lines size tensors"
            found.append(Reason("estimate", f"{more} by values"))
        if unknown:
            found.append(Reason("close", f"{reading_lines(unknown)}, which are all 0 here, for an unknown use"))
        return found

    def _of_host(self) -> list[Reason]:
        # No more than close: kernels compute nothing, so that only what the program does with them on the host differs.
        host = self.told.host
        if host.parameter_bytes is None:
            return []
        built = f"the model is built on the host: {units.size(host.parameter_bytes)} of the "
        built += f"{units.size(host.available_bytes)} available there. Its initial values were left out; "
        return [Reason("close", built + _ON_THE_GPU)]

    def _of_calls(self) -> list[Reason]:
        found = []
        for note in self.told.notes:
            if note.kind == "refused":
                found.append(Reason("estimate", f"{note.name} is not modelled and was refused"))
            else:
                found.append(Reason("close", f"{note.name}: estimated"))
        return found

    def _of_context(self) -> list[Reason]:
        if self.context_known:
            return (
                [Reason("close", f"device: the CUDA context is {self.context_source}")] if self.context_source else []
            )
        spare = self.spare_bytes
        near = spare is not None and 0 <= spare < _LARGEST_CONTEXT_BYTES
        text = "the size of a CUDA context on this card is not known: device figures are without it"
        return [Reason("estimate" if near else "close", text)]

    def _of_length(self) -> list[Reason]:
        trial = self.told
        steps = f"{trial.steps} step" + ("" if trial.steps == 1 else "s")
        cut_short = {
            "interrupted": f"it was interrupted after {steps}",
            "failed": f"the program failed after {steps}",
            "rising": f"{rising(trial)} what it comes to was not seen",
        }.get(trial.ended)
        if cut_short:
            return [Reason("estimate", cut_short)]
        if not trial.steps:
            return [Reason("estimate", "no training step was seen")]
        oom = None if trial.fullest is None else trial.fullest.oom
        if oom is not None and not trial.out_of_memory:
            return [Reason("close", f"it ran out of memory in step {oom.step}, caught the error and went on")]
        if trial.ended in ("steady", "steps"):
            later = "an evaluation, a longer batch or a checkpoint that comes later was not seen"
            return [Reason("close", f"it was ended after {steps}: {later}")]
        return []


def reading_lines(reads: Sequence[HostRead]) -> str:
    """Which lines of the program read values: "train.py:5 (item) reads values"."""
    places = list(dict.fromkeys(f"{_place(read)} ({read.what})" for read in reads))
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f"{', '.join(places[:3])}{more} {'reads' if len(places) == 1 else 'read'} values"


def _place(read: HostRead) -> str:
    return "a line that is not known" if read.file is None else f"{read.file}:{read.line}"


def as_json(answer: Answer) -> dict[str, object]:
    """The answer as plain values, for `--json`."""
    device, trial = answer.device, answer.told
    peak = None if device is None else device.peak
    made_of = None if device is None else device.composition
    expandable = answer.expandable_device
    return {
        "gpu": answer.gpu,
        "fits": answer.fits,
        "confidence": answer.confidence,
        "reasons": [{"confidence": reason.confidence, "text": reason.text} for reason in answer.reasons],
        "usable_bytes": answer.usable_bytes,
        "spare_bytes": answer.spare_bytes,
        "peak_allocated_bytes": _of(device, "peak_allocated_bytes"),
        "peak_reserved_bytes": _of(device, "peak_reserved_bytes"),
        "peak_device_bytes": _of(device, "peak_device_bytes"),
        "context_bytes": _of(device, "context_bytes") if answer.context_known else None,
        "peak_phase": None if peak is None else peak.phase,
        "peak_step": None if peak is None else peak.step,
        "composition": None if made_of is None else {**made_of.__dict__},
        "activations": None
        if device is None or device.activations is None
        else {**device.activations.__dict__, "bytes_each": device.activations.bytes_each},
        "step_peaks_bytes": [] if device is None else [each.bytes_held for each in device.steps],
        "steps": trial.steps,
        "ended": trial.ended,
        "alloc_retries": _of(answer.capped.fullest, "num_alloc_retries"),
        "out_of_memory": _oom_json(answer),
        "expandable_segments": None
        if expandable is None or answer.expandable is None
        else {
            "fits": not answer.expandable.out_of_memory,
            "peak_reserved_bytes": expandable.peak_reserved_bytes,
            "peak_device_bytes": expandable.peak_device_bytes,
        },
        "devices": [
            {
                "device": each.device,
                "peak_allocated_bytes": each.peak_allocated_bytes,
                "peak_reserved_bytes": each.peak_reserved_bytes,
                "peak_device_bytes": each.peak_device_bytes,
            }
            for each in trial.devices
        ],
        "host_reads": [
            {"file": read.file, "line": read.line, "what": read.what, "drives_a_shape": read.drives_a_shape}
            for read in trial.host_reads
        ],
        "host": {**trial.host.__dict__},
        "warnings": list(trial.warnings),
    }


def _of(device: Optional[DeviceTrial], name: str) -> object:
    return None if device is None else getattr(device, name)


def _oom_json(answer: Answer) -> Optional[dict[str, object]]:
    device = answer.capped.fullest
    return None if device is None or device.oom is None else {**device.oom.__dict__}


def verdict(answer: Answer) -> str:
    """One line: whether it fits, and by how much."""
    device, spare = answer.device, answer.spare_bytes
    if answer.fits is None:
        return f"unknown: {_why_unknown(answer)}"
    if answer.fits:
        room = "" if spare is None else f": {units.size(spare)} to spare ({units.percent(spare, answer.usable_bytes)})"
        retries = answer.capped.fullest.num_alloc_retries if answer.capped.fullest else 0
        slow = (
            f", with {retries} allocation retries: torch gives its cache back each time, which is slow"
            if retries
            else ""
        )
        return f"fits {answer.gpu}{room}{slow}"
    where = ""
    oom = None if answer.capped.fullest is None else answer.capped.fullest.oom
    if oom is not None:
        where = f" {place_of(oom.phase, oom.step)}"
    if spare is not None and spare < 0:
        return f"does not fit {answer.gpu}: short by {units.size(-spare)}{where}"
    if spare is not None and device is not None:
        return f"does not fit {answer.gpu}: out of memory{where}, though the same run with more memory used no more"
    return f"does not fit {answer.gpu}: out of memory{where}"


def place_of(phase: str, step: int) -> str:
    """Where in the program something was; "in backward of step 3"."""
    if phase == "startup":
        return f"in {phase_words(phase)}"
    if phase == "between":
        return f"before the forward of step {step}"
    return f"{phase_words(phase, after_in=True)} of step {step}"


def rising(trial: Trial) -> str:
    """What is said of a run that was ended while its peak rose."""
    rise = rise_bytes(trial)
    by = "" if rise is None else f", by some {units.size(rise)} a step"
    return f"the peak still rose after {trial.steps} steps{by}:"


def rise_bytes(trial: Trial) -> Optional[int]:
    """By how much the peak rose in each of the last steps, in the mean; None where it did not."""
    peaks = [] if trial.watched is None else [each.bytes_held for each in trial.watched.steps[-_RISING_STEPS:]]
    rise = (peaks[-1] - peaks[0]) // (len(peaks) - 1) if len(peaks) > 1 else 0
    return rise if rise > 0 else None


def _rising_on(answer: Answer) -> str:
    rise, spare = rise_bytes(answer.capped), answer.spare_bytes
    later = "it may run out of memory later"
    if rise is not None and spare is not None:
        later = f"{answer.gpu} would be full some {spare // rise:,} steps later"
    return f"{rising(answer.capped)} {later}"


def _why_unknown(answer: Answer) -> str:
    trial = answer.capped
    steps = f"{trial.steps} step" + ("" if trial.steps == 1 else "s")
    if trial.ended == "rising":
        return _rising_on(answer)
    if trial.ended == "interrupted":
        return f"it was interrupted {f'after {steps}' if trial.used_a_gpu else 'before it used a GPU'}"
    if trial.ended == "host memory":
        return (
            f"it was ended, as it had taken {units.size(trial.host.taken_bytes)} of this machine's memory, of "
            f"{units.size(trial.host.available_bytes)} available; {_ON_THE_GPU}"
        )
    if not trial.used_a_gpu:
        used = "the program used no GPU" if trial.ended != "failed" else "the program failed before it used a GPU"
        return f"{used}{': ' + told_error(trial.error) if trial.error else ''}"
    when = f"after {steps}" if trial.steps else "before its first step"
    return f"the program failed {when}: {told_error(trial.error) or 'it said no why'}"
