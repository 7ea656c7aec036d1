"""What is asked of an estimate, and which parameters are trained then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional, Union

from .architecture import Transformer, Weight, count, weights
from .convolutional import ConvNet
from .optimizers import RECIPES, Recipe
from .precision import PRECISIONS, Precision

Model = Union[Transformer, ConvNet]
CHECKPOINTING = ("none", "selective", "full")


class Contradiction(ValueError):
    """Options that do not go together; the message says which and what mends it."""


@dataclass(frozen=True)
class Freeze:
    """What gets no gradients: the embeddings, the first blocks (with the embeddings), or so many parameters."""

    embeddings: bool = False
    blocks: int = 0
    parameters: int = 0


@dataclass(frozen=True)
class Request:
    """A training run in a few figures. `parameters` is only looked at without `model`."""

    model: Optional[Model] = None
    parameters: int = 0
    batch: Optional[int] = None  # of one device and one micro-batch
    sequence: Optional[int] = None
    precision: Precision = PRECISIONS["fp32"]
    gradient_width: Optional[int] = None  # bytes, where it is not the precision's
    optimizer: Recipe = RECIPES["adamw"]
    implementation: Optional[str] = None
    accumulation: int = 1
    kept_gradients: bool = False  # zero_grad(set_to_none=False): zeroed, not dropped
    released_logits: bool = False  # the program has let go of the logits before its backward pass
    flash: bool = True
    checkpointing: str = "none"
    dropout: bool = True
    zero: int = 0
    gpus: int = 1
    bucket_view: bool = False
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ("q", "v")
    freeze: Freeze = Freeze()


@dataclass(frozen=True)
class Parameters:
    """All parameters and those that are trained. `shapes` and `trained_shapes` are empty where only numbers are known;
    `layers` names the layers of a block that learn, `learning_blocks` how many blocks need their activations."""

    total: int
    trained: int
    shapes: tuple[Weight, ...] = ()
    trained_shapes: tuple[Weight, ...] = ()
    adapters: tuple[Weight, ...] = ()
    layers: frozenset[str] = frozenset()
    learning_blocks: int = 0


def resolve(request: Request) -> Parameters:
    """Counts and shapes; raises Contradiction."""
    model = request.model
    if model is None:
        return _counted(request)
    if isinstance(model, ConvNet):
        return _convolutional(request, model)
    every = weights(model)
    if request.lora_rank:
        return _adapted(request, model, every)
    freeze = request.freeze
    if freeze.blocks > model.layers:
        raise Contradiction(f"--freeze blocks={freeze.blocks}: {model.name} has {model.layers} blocks")
    learning = model.layers - freeze.blocks
    trained = tuple(_learning(every, model, freeze))
    layers = frozenset(weight.name for weight in every if weight.part == "block")
    return _checked(
        request, Parameters(count(every), count(trained), every, trained, layers=layers, learning_blocks=learning)
    )


def _checked(request: Request, parameters: Parameters) -> Parameters:
    frozen = request.freeze.parameters
    if not frozen:
        return parameters
    if frozen >= parameters.trained:
        raise Contradiction(f"--freeze {frozen:,}: there are {parameters.trained:,} parameters")
    # Which ones is not known, so neither are their shapes.
    return replace(parameters, trained=parameters.trained - frozen, trained_shapes=())


def _counted(request: Request) -> Parameters:
    if request.lora_rank:
        raise Contradiction("--lora needs the shapes: name an architecture or a config.json")
    if request.freeze.embeddings or request.freeze.blocks:
        raise Contradiction("without an architecture --freeze takes a number of parameters")
    return _checked(request, Parameters(request.parameters, request.parameters))


def _convolutional(request: Request, model: ConvNet) -> Parameters:
    if request.lora_rank or request.freeze.embeddings or request.freeze.blocks:
        raise Contradiction(f"--lora and --freeze by name are for transformers, not {model.name}")
    if request.checkpointing != "none":
        raise Contradiction(f"--checkpointing is for transformers, not {model.name}")
    every = model.weights
    return _checked(request, Parameters(count(every), count(every), every, every))


def _learning(every: Sequence[Weight], model: Transformer, freeze: Freeze) -> list[Weight]:
    kept = []
    for weight in every:
        if weight.part == "embeddings" and (freeze.embeddings or freeze.blocks):
            continue
        if weight.part == "block" and freeze.blocks:
            copies = weight.copies * (model.layers - freeze.blocks) // model.layers
            if copies:
                kept.append(replace(weight, copies=copies))
            continue
        kept.append(weight)
    return kept


def _adapted(request: Request, model: Transformer, every: tuple[Weight, ...]) -> Parameters:
    if request.freeze != Freeze():
        raise Contradiction("--lora freezes all but its adapters: leave --freeze out")
    matrices = {weight.name: weight for weight in every if weight.part == "block" and weight.matrix}
    adapters = []
    for target in request.lora_targets:
        name = "qkv" if target in ("q", "k", "v") and model.fused_qkv else target
        if name not in matrices:
            raise Contradiction(f"--lora-targets {target}: {model.name} has {', '.join(matrices)}")
        weight = matrices[name]
        rank = request.lora_rank
        pair = [("A", (rank, weight.shape[1])), ("B", (weight.shape[0], rank))]
        adapters += [Weight(f"{name} {letter}", shape, "block", weight.copies, True) for letter, shape in pair]
    unique = tuple(dict.fromkeys(adapters))
    layers = frozenset(weight.name.split()[0] for weight in unique)
    total, trained = count(every) + count(unique), count(unique)
    return Parameters(total, trained, every, unique, unique, layers, model.layers)
