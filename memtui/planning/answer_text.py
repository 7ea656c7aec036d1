"""The answer of a plan as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from memtui.analysis import units
from memtui.analysis.text import clean

from .answer import Answer, place_of, reading_lines, verdict
from .search import Search
from .trial import Composition, DeviceTrial, Trial

_BAR_CELLS = 24
_STEPS_SHOWN = 8
#: Reads whose use is not known, and that are not there to be shown.
_READS_TOLD = frozenset({"item", "copy"})
_NAMES = {"private_pools": "private pools", "optimizer_state": "optimizer state"}


def answer_lines(answer: Answer, program: str, width: int = 80) -> list[str]:
    """What is to be printed, without colours; nothing in it acts on a terminal."""
    lines = [clean(verdict(answer)), ""]
    device = answer.device
    if device is not None and device.peak_allocated_bytes is not None:
        lines += _peaks(answer, device)
        if device.composition is not None or answer.fits is not None:
            lines += _made_of(device)
        lines += _steps(answer.told, device, width)
        lines += _expandable(answer) if answer.fits is not None else []
        if len(answer.told.devices) > 1:
            lines += _devices(answer.told.devices)
        lines += _trust(answer) if answer.fits is not None else []
    reads = [read for read in answer.told.host_reads if read.what in _READS_TOLD]
    if reads:
        lines.append(f"note: {clean(reading_lines(reads))}: where one decides a size or a branch, it was decided by 0")
    lines += [f"note: {clean(text)}" for text in answer.told.warnings]
    if lines and not lines[-1]:
        lines.pop()
    return [part for line in (f"plan of {clean(program, 200)}", *lines) for part in within(line, width)]


def within(line: str, width: int) -> list[str]:
    """The line, in several where it is too long; columns are not, as a rule."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, max(20, width), subsequent_indent=indent + "  ", break_on_hyphens=False)


def _peaks(answer: Answer, device: DeviceTrial) -> list[str]:
    usable = answer.usable_bytes
    head = "peak" if answer.fits is not None else "peak until then"
    lines = [f"{head:<22}  of {units.size(usable)}"]
    for name, value in (
        ("allocated", device.peak_allocated_bytes),
        ("reserved", device.peak_reserved_bytes),
        ("device", device.peak_device_bytes),
    ):
        lines.append(f"  {name:<10}{units.size(value):>10}  {_bar(value, usable)} {units.percent(value, usable):>5}")
    if answer.context_known and device.context_bytes:
        lines[-1] += f"  with {units.size(device.context_bytes)} of CUDA context"
    return [*lines, ""]


def _bar(value: int | None, whole: int | None) -> str:
    if value is None or not whole:
        return units.UNKNOWN.ljust(_BAR_CELLS)
    filled = min(_BAR_CELLS, round(_BAR_CELLS * value / whole))
    return ("█" * filled + "·" * (_BAR_CELLS - filled)) if value <= whole else "█" * (_BAR_CELLS - 1) + "▶"


def _made_of(device: DeviceTrial) -> list[str]:
    found = device.composition
    if found is None:
        return ["what that is made of is not known: no step was looked at", ""]
    lines = [_where(device, found)]
    for name, size in sorted(found.categories.items(), key=lambda item: -item[1]):
        if size:
            share = units.percent(size, found.allocated_bytes)
            lines.append(f"  {clean(_NAMES.get(name, name), 20):<18}{units.size(size):>10}  {share:>5}")
    each = device.activations
    if each is not None:
        kept = f"a forward pass keeps {units.size(each.kept_bytes)} of activations: {units.size(each.bytes_each)} a "
        lines += ["", f"{kept}{each.unit} ({each.count:,} {each.unit}s: the input is {clean(each.shape, 60)})"]
    return [*lines, ""]


def _where(device: DeviceTrial, found: Composition) -> str:
    place = place_of(found.phase, found.step)
    peak = device.peak
    below = 0 if peak is None else peak.bytes_held - found.allocated_bytes
    if found.at_peak and (peak is None or below <= peak.bytes_held // 1000):
        return f"the peak is {place}, and is made of"
    if peak is None:
        return f"{place} there are"
    where = f" {place_of(peak.phase, peak.step)}" if peak.phase else ""
    return f"{place} there are, {units.size(below)} below the peak{where}"


def _steps(trial: Trial, device: DeviceTrial, width: int) -> list[str]:
    if not device.steps:
        return []
    unit = units.unit_of(max(peak.bytes_held for peak in device.steps))
    shown = device.steps[:_STEPS_SHOWN]
    texts = [f"{peak.step}: {'' if peak.exact else '≥'}{units.number(peak.bytes_held, unit)}" for peak in shown]
    more = f" and {len(device.steps) - len(shown)} more" if len(device.steps) > len(shown) else ""
    lines, line = [], f"step peaks in {unit}: "
    for text in texts:
        if len(line) + len(text) + 3 > width:
            lines.append(line.rstrip())
            line = "  "
        line += f"{text}   "
    lines.append(line.rstrip() + more)
    return [*lines, _seen(trial), ""]


def _seen(trial: Trial) -> str:
    """How much of the program the answer is of."""
    steps = f"{trial.steps} step" + ("s" if trial.steps != 1 else "")
    return {
        "steady": f"it was ended after {steps}, as no peak rose any more",
        "steps": f"it was ended after {steps}",
        "rising": f"it was ended after {steps}, and the peak rose to the last",
        "exit": f"it came to its own end after {steps}",
    }.get(trial.ended, f"seen: {steps}")


def _expandable(answer: Answer) -> list[str]:
    trial, device = answer.expandable, answer.expandable_device
    if trial is None or device is None:
        return []
    fits = "it does not fit either" if trial.out_of_memory and answer.fits is False else ""
    fits = fits or ("it does not fit" if trial.out_of_memory else "it fits" if answer.fits is False else "")
    figures = f"reserved {units.size(device.peak_reserved_bytes)}, device {units.size(device.peak_device_bytes)}"
    return [f"with expandable_segments:True: {figures}{', and ' + fits if fits else ''}", ""]


def _devices(devices: Sequence[DeviceTrial]) -> list[str]:
    lines = [
        f"{'all devices':<14}{'allocated':>11}{'reserved':>11}{'device':>11}   (allocator: of the process watched)"
    ]
    for each in devices:
        figures = (each.peak_allocated_bytes, each.peak_reserved_bytes, each.peak_device_bytes)
        lines.append(f"  {each.device:<12}" + "".join(f"{units.size(figure):>11}" for figure in figures))
    return [*lines, ""]


def _trust(answer: Answer) -> list[str]:
    meanings = {
        "exact": "PyTorch's own allocator ran the program; nothing was estimated",
        "close": "the allocator's figures are PyTorch's own; what is estimated:",
        "estimate": "the program may need another amount on a real device:",
    }
    lines = [f"{answer.confidence}: {meanings[answer.confidence]}"]
    return [*lines, *(f"  {reason.confidence}: {clean(reason.text)}" for reason in answer.reasons)]


def shown(output: str) -> str:
    """What the program wrote, without anything that a terminal acts on."""
    return "".join(f"  {clean(line, 300)}\n" for line in output.splitlines())


def search_lines(search: Search, name: str, gpu: str, width: int = 80) -> list[str]:
    """The largest value that fits, and each that was tried."""
    best = search.best
    if best is None:
        head = f"{clean(name)} {search.low} does not fit {gpu}, and nothing smaller was to be tried"
    elif best == search.high:
        head = f"{clean(name)} {best} fits {gpu}, which is all that was asked for"
    else:
        head = f"the largest {clean(name)} that fits {gpu} is {best}"
    lines = [*within(head, width), ""]
    digits = len(str(search.high))
    for each in sorted(search.tried, key=lambda tried: tried.value):
        if each.fits:
            room = units.percent(each.need_bytes, search.room_bytes)
            text = f"{units.size(each.need_bytes):>10}  {_bar(each.need_bytes, search.room_bytes)} {room:>5}"
        else:
            text = f"{'':>10}  {'█' * (_BAR_CELLS - 1)}▶  out of memory"
        lines.append(f"  {each.value:>{digits}}  {text}")
    if search.changes_nothing:
        nothing = f"{clean(name)} changes nothing: all values take the same memory. Does the program read it?"
        return [*within(nothing, width), *lines]
    several = f"{len(search.tried)} runs; between them memory is taken to grow with the value"
    runs = "1 run" if len(search.tried) == 1 else several
    return [*lines, "", *within(runs, width)]
