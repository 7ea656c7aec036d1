"""What each way to train in low precision stores, and in which width."""

from __future__ import annotations

from dataclasses import dataclass

AUTOCAST = "torch docs, autocast"
ZERO = "Rajbhandari et al. 2020, 3.1"
OPTIM = "torch docs, torch.optim"


@dataclass(frozen=True)
class Precision:
    """Bytes an element: of weights, gradients, a torch optimizer's state, what a layer computes, and the residual."""

    name: str
    words: str
    weight: int
    gradient: int
    state: int
    compute: int
    residual: int
    source: str
    autocast: bool = False
    master: int = 0  # bytes of a further copy of the weights that the optimizer keeps


_FP32 = Precision("fp32", "fp32", 4, 4, 4, 4, 4, OPTIM)
_BF16 = Precision("bf16", "bf16 throughout, no master copy", 2, 2, 2, 2, 2, OPTIM)
_AUTOCAST = "autocast: weights stay fp32"
_MASTER = "16-bit weights and gradients, fp32 master copy and state"

PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        _FP32,
        Precision("tf32", "tf32: stored as fp32", 4, 4, 4, 4, 4, "torch docs, CUDA semantics"),
        Precision("amp-bf16", f"bf16 {_AUTOCAST}", 4, 4, 4, 2, 4, AUTOCAST, autocast=True),
        Precision("amp-fp16", f"fp16 {_AUTOCAST}", 4, 4, 4, 2, 4, AUTOCAST, autocast=True),
        _BF16,
        Precision("fp16", "fp16 throughout, no master copy", 2, 2, 2, 2, 2, OPTIM),
        Precision("bf16-mixed", f"bf16-mixed: {_MASTER}", 2, 2, 4, 2, 2, ZERO, master=4),
        Precision("fp16-mixed", f"fp16-mixed: {_MASTER}", 2, 2, 4, 2, 2, ZERO, master=4),
        Precision("fp8", "fp8 matrix products, counted as bf16 autocast", 4, 4, 4, 2, 4, AUTOCAST, autocast=True),
    )
}
