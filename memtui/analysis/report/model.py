"""The model and its optimizers: how many parameters, stored how, how many of them are trained."""

from __future__ import annotations

from typing import Optional

from memtui.analysis import units
from memtui.analysis.optimizers import first_state_bytes
from memtui.analysis.text import clean
from memtui.session.session import Session
from memtui.wire.frames import Model, Optimizer

from .facts import Row, Section, cell

#: Options that decide an optimizer's memory, told where they are set.
_OPTIONS = ("momentum", "amsgrad", "centered", "fused", "foreach")
_COLUMNS = (("parameters", ""),)
_NOT_FOUND = (
    "no model was found: it is searched for as a step's first forward or backward ends, and a training under "
    "memtui run has one"
)


def model_section(session: Session) -> Section:
    """What was found in the process, on all its devices."""
    model = session.model
    rows = (_parameters(model), _trained(model), _dtypes(model), _optimizers(session))
    return Section("model", "Model", rows, _COLUMNS)


def _parameters(model: Optional[Model]) -> Row:
    if model is None:
        return Row("parameters", "parameters", (cell("parameters", None, unit="count"),), _NOT_FOUND)
    held = tuple(cell(f"{device}_bytes", size) for device, size in model.parameter_bytes.items())
    where = ", ".join(f"{units.size(size)} on {clean(device, 40)}" for device, size in model.parameter_bytes.items())
    roots = clean(", ".join(model.roots) or "no root module", 80)
    text = f"{roots}: {where}" if where else roots
    return Row("parameters", "parameters", (cell("parameters", model.parameters, unit="count"), *held), text)


def _trained(model: Optional[Model]) -> Row:
    count = None if model is None else model.trainable_parameters
    figure = cell("parameters", count, unit="count")
    if model is None:
        return Row("trained", "trained", (figure,), "as above")
    stepped = sum(optimizer.trainable_parameters for optimizer in model.optimizers)
    text = "all" if count == model.parameters else f"{_share(model.trainable_parameters, model.parameters)} of them"
    if model.optimizers and stepped != count:
        text += f"; optimizers step {stepped:,}"
    return Row("trained", "trained", (figure, cell("stepped_parameters", stepped, unit="count")), text)


def _dtypes(model: Optional[Model]) -> Row:
    if model is None or not model.dtypes:
        return Row("dtypes", "stored as", (), f"{units.UNKNOWN} {'as above' if model is None else 'not told'}")
    held = sorted(model.dtypes.items(), key=lambda part: -part[1])
    text = ", ".join(f"{clean(name, 20)} {units.size(size)}" for name, size in held)
    return Row("dtypes", "stored as", tuple(cell(f"{clean(name, 20)}_bytes", size) for name, size in held), text)


def _optimizers(session: Session) -> Row:
    model = session.model
    if model is None:
        return Row("optimizer", "optimizer", (), f"{units.UNKNOWN} as above")
    if not model.optimizers:
        return Row("optimizer", "optimizer", (), "none was found: state that one makes is in no figure here")
    known = [each.state_bytes for each in model.optimizers if each.state_bytes is not None]
    state = sum(sum(held.values()) for held in known) if len(known) == len(model.optimizers) else None
    cells = (cell("state_bytes", state), cell("optimizers", len(model.optimizers), unit="count"))
    stepped = session.frame is not None and session.frame.step > 0
    told = "; ".join(_optimizer(session, optimizer, stepped=stepped) for optimizer in model.optimizers)
    return Row("optimizer", "optimizer", cells, told)


def _optimizer(session: Session, optimizer: Optimizer, *, stepped: bool) -> str:
    """ "AdamW (fused): 192.1 MiB of state, 2 x the parameters it steps"."""
    options = [name for name in _OPTIONS if optimizer.options.get(name)]
    name = clean(optimizer.name, 60) + (f" ({', '.join(options)})" if options else "")
    if optimizer.state_bytes is None:
        sizes = [first_state_bytes(session, optimizer, device) for device in optimizer.trainable_bytes]
        if stepped:
            return f"{name}: no state" if sizes and not any(sizes) and None not in sizes else f"{name}: state not told"
        coming = "" if None in sizes or not sizes else f"; {units.size(sum(filter(None, sizes)))} of it predicted"
        return f"{name}: has not stepped, so no state yet{coming}"
    state, trained = sum(optimizer.state_bytes.values()), sum(optimizer.trainable_bytes.values())
    if not state:
        return f"{name}: no state"
    times = f", {units.times(state, trained)} the parameters it steps" if trained else ""
    return f"{name}: {units.size(state)} of state{times}"


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"
