"""`memtui estimate`: the memory of a training that has no script yet, in closed form."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict
from typing import Any, Optional

from memtui.analysis.estimate.architecture import Transformer
from memtui.analysis.estimate.build import estimate
from memtui.analysis.estimate.configs import UnknownArchitecture, read_config
from memtui.analysis.estimate.convolutional import CONVNETS, find_convnet
from memtui.analysis.estimate.device import Device, Fit, fit
from memtui.analysis.estimate.levers import Lever, levers
from memtui.analysis.estimate.named import CONFIGS, find_named
from memtui.analysis.estimate.request import Contradiction, Model, Request
from memtui.analysis.estimate.table import lines
from memtui.analysis.estimate.terms import Estimate
from memtui.analysis.text import clean
from memtui.cli import CommandError

from .estimate_options import gradient_width
from .ownline import writable

#: As `memtui plan` has it.
_STATUS = {"fits": 0, "does not fit": 3, "cannot be told": 4}
#: What a pipe or a file is given.
_PLAIN_WIDTH = 120
#: A configuration is some kilobytes; what is larger is another file.
_MOST_BYTES = 4_000_000


def run_estimate(options: argparse.Namespace) -> int:
    """Prints an estimate as a table or as JSON; raises CommandError, with one line, for what cannot be.

    The status is 0, but with a device 3 where it does not fit and 4 where that cannot be told.
    """
    if options.list:
        print("\n".join((*CONFIGS, *CONVNETS)))
        return 0
    device = _device(options.gpu, options.context)
    try:
        request = _request(options)
        found, helpful = estimate(request), levers(request)
    except (Contradiction, UnknownArchitecture) as error:
        raise CommandError(str(error), 2) from None
    fits = fit(found.peak.bytes, found.least_bytes, device, found.error, complete=found.complete)
    status = 0 if fits is None else _STATUS[fits.answer]
    if options.json:
        print(json.dumps(_document(found, device, fits, helpful), indent=2))
        return status
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH
    for line in lines(found, columns, device, helpful):
        print(writable(sys.stdout, line))
    return status


def _request(options: argparse.Namespace) -> Request:
    if (options.model is None) == (options.params is None):
        raise CommandError("name a model (memtui estimate --list), a config.json, or give --params 7B", 2)
    gpus = options.fsdp or options.gpus or 1
    if options.fsdp and options.gpus not in (None, options.fsdp):
        raise CommandError(f"--fsdp {options.fsdp} is over as many devices: leave --gpus out", 2)
    return Request(
        model=None if options.model is None else _model(options.model),
        parameters=options.params or 0,
        batch=options.batch,
        sequence=options.seq,
        precision=options.precision,
        gradient_width=gradient_width(options.grads),
        optimizer=options.optimizer,
        implementation=options.implementation,
        accumulation=options.accumulation,
        kept_gradients=options.keep_grads,
        released_logits=options.release_logits,
        flash=options.flash,
        checkpointing=options.checkpointing,
        dropout=options.dropout,
        zero=3 if options.fsdp else options.zero,
        gpus=gpus,
        bucket_view=options.bucket_view,
        lora_rank=options.lora or 0,
        lora_targets=options.lora_targets,
        freeze=options.freeze,
    )


def _model(name: str) -> Model:
    """An architecture by name, or the one a file describes."""
    known = find_named(name) or find_convnet(name)
    if known is not None and not os.path.isfile(name):
        return known
    path = os.path.join(name, "config.json") if os.path.isdir(name) else name
    if not os.path.exists(path):
        raise CommandError(f"no architecture or file {clean(name, 80)!r}: memtui estimate --list, or --params 7B", 2)
    return _from_file(path)


def _from_file(path: str) -> Transformer:
    shown = clean(path, 200)
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read(_MOST_BYTES + 1)
        config = json.loads(content) if len(content) <= _MOST_BYTES else None
    except OSError as error:
        raise CommandError(f"cannot read {shown}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CommandError(f"{shown} is no JSON: give a config.json") from None
    if config is None:
        raise CommandError(f"{shown} is too large for a config.json")
    try:
        folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
        return read_config(config, clean(folder, 60))
    except UnknownArchitecture as error:
        raise CommandError(f"{shown}: {clean(str(error), 300)}") from None


def _device(gpu: Optional[str], context_bytes: Optional[int]) -> Device:
    """Of a size, or of a card by its name; `context_bytes` goes before the card's own."""
    given = "as given" if context_bytes is not None else ""
    if gpu is None:
        return Device("", None, context_bytes, given)
    from memtui.virtual_gpu.cards import card_for
    from memtui.virtual_gpu.errors import VirtualGpuError

    try:
        card = card_for(gpu)
    except VirtualGpuError as error:
        # The list of cards is that command's.
        words = str(error).replace("--list", "memtui plan --list")
        raise CommandError(f"--gpu: {clean(words, 300)}", 2) from None
    if context_bytes is None and card.context_bytes is not None:
        return Device(card.name, card.total_bytes, card.context_bytes, f"{card.context.kind}: {card.context.source}")
    return Device(card.name, card.total_bytes, context_bytes, given)


def _document(found: Estimate, device: Device, fits: Optional[Fit], helpful: tuple[Lever, ...]) -> dict[str, Any]:
    peak = found.peak
    return {
        "kind": "estimate",
        "title": found.title,
        "setting": found.setting,
        "parameters": found.parameters,
        "trained_parameters": found.trained,
        "known_error": asdict(found.error),
        "terms": [
            {
                "name": term.name,
                "category": term.category,
                "bytes": term.bytes,
                "formula": term.formula,
                "source": term.source,
                "phases": [phase.name for phase in found.phases if phase.name in term.phases],
            }
            for term in found.terms
        ],
        "phases": [
            {
                "name": phase.name,
                "bytes": phase.bytes,
                "lower_bound": not phase.complete,
                "bytes_by_category": phase.bytes_by_category,
            }
            for phase in found.phases
        ],
        "peak": {"bytes": peak.bytes, "phase": peak.name, "lower_bound": not found.complete},
        "outside_pytorch_bytes": device.context_bytes,
        "device_bytes": device.capacity_bytes,
        "fit": None if fits is None else asdict(fits),
        "levers": [asdict(lever) for lever in helpful],
        "assumptions": found.assumptions,
        "disagreements": found.disagreements,
    }
