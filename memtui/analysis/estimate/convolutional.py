"""Residual networks: their parameters and what they keep of an image."""

from __future__ import annotations

from dataclasses import dataclass

from .architecture import Weight

#: Blocks in the four stages, and whether a block is a bottleneck of three convolutions.
_DEPTHS = {
    "resnet-18": ((2, 2, 2, 2), False),
    "resnet-34": ((3, 4, 6, 3), False),
    "resnet-50": ((3, 4, 6, 3), True),
    "resnet-101": ((3, 4, 23, 3), True),
    "resnet-152": ((3, 8, 36, 3), True),
}
_IMAGE = 224
#: Those that are known by name.
CONVNETS = tuple(_DEPTHS)


@dataclass(frozen=True)
class ConvNet:
    """A residual network for ImageNet. Elements kept are those of one image, whichever the width."""

    name: str
    weights: tuple[Weight, ...]
    convolved: int  # outputs of convolutions, which batch norms keep
    activated: int  # outputs of ReLUs in place, which the next convolution keeps
    indices: int  # of the maximum pooling, 8 bytes each
    classes: int = 1000

    @property
    def image_elements(self) -> int:
        """Of the input, which the first convolution keeps."""
        return 3 * _IMAGE**2


def find_convnet(name: str) -> ConvNet | None:
    """The residual network of that name; None if not here."""
    plain = name.lower().replace("-", "").replace("_", "")
    for known, (stages, bottleneck) in _DEPTHS.items():
        if plain == known.replace("-", ""):
            return _build(known, stages, bottleneck)
    return None


class _Walk:
    """Adds up layer by layer."""

    def __init__(self) -> None:
        self.weights: list[Weight] = []
        self.convolved = 0
        self.activated = 0

    def convolution(self, channels_in: int, channels: int, kernel: int, side: int, *, activated: bool = True) -> None:
        """A convolution, its batch norm, and a ReLU where there is one."""
        shape = (channels, channels_in, kernel, kernel)
        self.weights.append(Weight("convolution", shape, "block", matrix=True))
        self.weights.append(Weight("batch norm", (channels,), "block", 2))
        self.convolved += channels * side**2
        self.activated += activated * channels * side**2


def _build(name: str, stages: tuple[int, ...], bottleneck: bool) -> ConvNet:
    walk = _Walk()
    walk.convolution(3, 64, 7, _IMAGE // 2)
    pooled_side = side = _IMAGE // 4
    before, expansion = 64, 4 if bottleneck else 1
    for stage, blocks in enumerate(stages):
        planes = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            _residual(walk, before, planes, expansion, side, stride)
            side, before = side // stride, planes * expansion
    walk.weights += [Weight("head", (1000, before), "head", matrix=True), Weight("head bias", (1000,), "head")]
    pooled = 64 * pooled_side**2
    return ConvNet(name, tuple(walk.weights), walk.convolved, walk.activated + pooled + before, pooled)


def _residual(walk: _Walk, before: int, planes: int, expansion: int, side: int, stride: int) -> None:
    after = side // stride
    if expansion > 1:
        walk.convolution(before, planes, 1, side)
        walk.convolution(planes, planes, 3, after)
        walk.convolution(planes, planes * expansion, 1, after)
    else:
        walk.convolution(before, planes, 3, after)
        walk.convolution(planes, planes, 3, after)
    if stride > 1 or before != planes * expansion:
        walk.convolution(before, planes * expansion, 1, after, activated=False)
