"""Buffers that distributed training communicates with: the buckets of DDP, the gathered parameters of FSDP."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_GONE = (AttributeError, TypeError, RuntimeError, ValueError)


#: Some models never have their buckets rebuilt: they are asked so often between steps, then only at the ends of steps.
_MOST_ASKED = 64


class Buckets:
    """Sizes of DDP's reduction buckets, as its own logging tells them; asked until they are final.

    DDP makes them with the model and once more in its second forward, and logs the latter's sizes in its third.
    """

    def __init__(self) -> None:
        self._final: weakref.WeakKeyDictionary[Any, Counter[int]] = weakref.WeakKeyDictionary()
        self._asked = 0
        self.pending = True  # whether others may come at any time

    def numbers(self, roots: Iterable[Any]) -> Counter[int]:
        """How many buckets of so many requested bytes the roots have that are DistributedDataParallel.

        0 of sizes that they may not have any more.
        """
        kind = getattr(sys.modules.get("torch.nn.parallel.distributed"), "DistributedDataParallel", None)
        found: Counter[int] = Counter()
        self.pending = False
        for root in roots:
            if kind is not None and isinstance(root, kind):
                found.update(self._final.get(root) or self._ask(root))
        return found

    def _ask(self, root: Any) -> Counter[int]:
        self._asked += 1
        self.pending = self._asked < _MOST_ASKED
        try:
            told = root._get_ddp_logging_data()
            rebuilt = bool(told.get("has_rebuilt_buckets"))
            text = told.get("rebuilt_bucket_sizes" if rebuilt else "bucket_sizes", "")
            sizes = [int(word) for word in str(text).replace(",", " ").split()]
        except _GONE:
            return Counter()
        if not rebuilt:
            return Counter(dict.fromkeys(sizes, 0))
        self._final[root] = numbers = Counter(sizes)
        return numbers


class Gathered(NamedTuple):
    """What FSDP has gathered of one parameter: whose it is, this process's shard of it, and the tensors."""

    module: Any
    key: str
    shard: Any
    tensors: list[Any]


def gathered(modules: list[Any]) -> list[Gathered]:
    """Tensors into which FSDP has gathered the shards of parameters; they come and go within a step."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return []
    kinds = set(map(type, modules))
    found: list[Gathered] = []
    for name, read in (("FSDPModule", _each_parameter), ("FullyShardedDataParallel", _flat_parameter)):
        base = getattr(fsdp, name, None)
        wanted = {kind for kind in kinds if issubclass(kind, base)} if base is not None else ()
        for module in modules if wanted else ():
            if type(module) in wanted:
                try:
                    found += read(module)
                except _GONE:
                    continue
    return found


def _each_parameter(module: Any) -> list[Gathered]:
    group = module._get_fsdp_state()._fsdp_param_group
    return [
        Gathered(each._module_info.module, each._module_info.param_name, each.sharded_param, each.all_gather_outputs[:])
        for each in (group.fsdp_params if group is not None else ())
    ]


#: What is gathered of FSDP's first generation: one parameter flattened from many, and it again in full precision.
_WHOLE = ("_full_param_padded", "_full_prec_full_param_padded")


def _flat_parameter(module: Any) -> list[Gathered]:
    handle = module._handle
    if handle is None or not handle.uses_sharded_strategy:
        return []
    flat = handle.flat_param
    whole = [getattr(flat, name, None) for name in _WHOLE]
    tensors = [each for each in whole if each is not None]
    return [Gathered(handle._fully_sharded_module, "_flat_param", flat._local_shard, tensors)]


#: Where FSDP allocates what it gathers, and what it reduces.
_FSDP_FILES = ("_fsdp_collectives.py", "_fsdp_param.py")
_INNERMOST = 4


def communicates(frames: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a block with this call stack, the innermost frame first, was made for FSDP's communication."""
    return any(frame["filename"].endswith(_FSDP_FILES) for frame in frames[:_INNERMOST])
