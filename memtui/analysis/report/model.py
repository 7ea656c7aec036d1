"""The model and its optimizers: how many parameters, stored how, how many of them are trained."""

from __future__ import annotations

from typing import Optional

from memtui.analysis import units
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
    rows = (_parameters(model), _trained(model), _dtypes(model), _optimizers(model))
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


def _optimizers(model: Optional[Model]) -> Row:
    if model is None:
        return Row("optimizer", "optimizer", (), f"{units.UNKNOWN} as above")
    if not model.optimizers:
        return Row("optimizer", "optimizer", (), "none was found: state that one makes is in no figure here")
    return Row("optimizer", "optimizer", (), "; ".join(map(_optimizer, model.optimizers)))


def _optimizer(optimizer: Optimizer) -> str:
    """ "AdamW (fused): 192.1 MiB of state, 2 x the parameters it steps"."""
    options = [name for name in _OPTIONS if optimizer.options.get(name)]
    name = clean(optimizer.name, 60) + (f" ({', '.join(options)})" if options else "")
    if optimizer.state_bytes is None:
        return f"{name}: has not stepped, so no state yet"
    state, stepped = sum(optimizer.state_bytes.values()), sum(optimizer.trainable_bytes.values())
    if not state:
        return f"{name}: no state"
    times = f", {units.times(state, stepped)} the parameters it steps" if stepped else ""
    return f"{name}: {units.size(state)} of state{times}"


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"
