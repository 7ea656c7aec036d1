"""The options of `memtui estimate`, loaded when that command is asked for."""

from __future__ import annotations

import argparse
import re

from memtui.analysis.estimate.optimizers import ALIASES, IMPLEMENTATIONS, RECIPES, Recipe
from memtui.analysis.estimate.precision import PRECISIONS, Precision
from memtui.analysis.estimate.request import CHECKPOINTING, Freeze
from memtui.analysis.units import parse_size

_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kmbt]?)", re.IGNORECASE)
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_MOST = 10**15
#: A width in words; the wide ones are those of gradients.
_GRADIENTS = {"fp32": 4, "bf16": 2, "fp16": 2}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything that can be said of a training that has no script."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="an architecture, gpt2-medium, or a Hugging Face config.json"
    )
    parser.add_argument("--list", action="store_true", help="list the architectures that are known by name")
    parser.add_argument("--params", type=count, metavar="N", help="instead of a model: its parameters, 7B, 124M")
    _training(parser)
    _memory(parser)
    parser.add_argument("--gpu", metavar="GPU", help="say whether it fits: a100-80g, 4090, 24GiB")
    parser.add_argument(
        "--context", type=size, metavar="SIZE", help="what CUDA and libraries take outside PyTorch; unknown otherwise"
    )
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def _training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=positive, metavar="N", help="samples a micro-batch, on one device")
    parser.add_argument("--seq", type=positive, metavar="N", help="tokens a sample")
    parser.add_argument(
        "--precision",
        type=precision,
        default="fp32",
        metavar="P",
        help=f"{', '.join(PRECISIONS)}; amp is autocast over fp32 weights, mixed 16-bit weights and an fp32 copy",
    )
    parser.add_argument("--grads", choices=_GRADIENTS, help="width of the gradients, where it is not the precision's")
    parser.add_argument("--optimizer", type=recipe, default="adamw", metavar="O", help=", ".join(RECIPES))
    parser.add_argument("--implementation", choices=IMPLEMENTATIONS, help="of the optimizer's step; foreach in torch")
    parser.add_argument("--accumulation", type=positive, default=1, metavar="N", help="micro-batches a step")
    parser.add_argument("--keep-grads", action="store_true", help="gradients are zeroed between steps, not dropped")
    parser.add_argument(
        "--release-logits", action="store_true", help="the program holds no logits in its backward pass"
    )


def _memory(parser: argparse.ArgumentParser) -> None:
    attention = parser.add_mutually_exclusive_group()
    attention.add_argument("--flash", action="store_true", default=True, help="flash attention; the default")
    attention.add_argument("--eager", dest="flash", action="store_false", help="attention written out, with its scores")
    parser.add_argument("--checkpointing", choices=CHECKPOINTING, default="none", help="selective: of the scores alone")
    parser.add_argument("--no-dropout", dest="dropout", action="store_false", help="without the model's dropout")
    sharding = parser.add_mutually_exclusive_group()
    sharding.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0, help="stage; 3 is FSDP's full shard")
    sharding.add_argument("--fsdp", type=positive, metavar="N", help="the same as --zero 3 --gpus N")
    parser.add_argument("--gpus", type=positive, metavar="N", help="devices; without --zero under DDP")
    parser.add_argument("--bucket-view", action="store_true", help="DDP's gradient_as_bucket_view: no copy in buckets")
    parser.add_argument("--lora", type=positive, metavar="RANK", help="train adapters of this rank alone")
    parser.add_argument(
        "--lora-targets",
        type=words,
        default=("q", "v"),
        metavar="T",
        help="layers with an adapter, of q,k,v,o,gate,up,down or qkv; default q,v",
    )
    parser.add_argument(
        "--freeze",
        type=freeze,
        default=Freeze(),
        metavar="WHAT",
        help="embeddings, blocks=N (with the embeddings), or a number of parameters",
    )


def count(text: str) -> int:
    """Parameters of "7B", "1.5b", "124M" or "124439808"."""
    match = _COUNT.fullmatch(text.replace(",", "").replace("_", ""))
    value = float(match[1]) * _SCALES[match[2].lower()] if match else 0
    if not 1 <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of parameters: write 7B or 124M")
    return round(value)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= 10**9 or len(text) > 10:
        raise argparse.ArgumentTypeError(f"{text!r:.40} must be a whole number, at least 1")
    return int(text)


def size(text: str) -> int:
    """Bytes of "24GiB"."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def precision(text: str) -> Precision:
    """One of the table."""
    if text.lower() not in PRECISIONS:
        raise argparse.ArgumentTypeError(f"no precision {text!r:.40}: {', '.join(PRECISIONS)}")
    return PRECISIONS[text.lower()]


def recipe(text: str) -> Recipe:
    """One of the table, or another name of it."""
    plain = text.lower()
    found = RECIPES.get(ALIASES.get(plain, plain))
    if found is None:
        raise argparse.ArgumentTypeError(f"no optimizer {text!r:.40}: {', '.join(RECIPES)}")
    return found


def words(text: str) -> tuple[str, ...]:
    """Names with commas between, at least one."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise argparse.ArgumentTypeError("name at least one layer, as q,v")
    return found


def freeze(text: str) -> Freeze:
    """What gets no gradients."""
    if text == "embeddings":
        return Freeze(embeddings=True)
    name, _, number = text.partition("=")
    if name == "blocks" and number:
        return Freeze(blocks=positive(number))
    return Freeze(parameters=count(text))


def gradient_width(name: str | None) -> int | None:
    """Bytes of a gradient's element; None where it is the precision's."""
    return None if name is None else _GRADIENTS[name]
