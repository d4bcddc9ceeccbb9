"""Helpers for device kernels of norms: images as channels x positions, and sums over positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import HALVES, DType, Shape
from compiler.ir.windows import is_channels_last
from compiler.ops.image.layouts import channels_first
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

TILE = threshold(
    "norm_positions", 4096, "positions of a channel",
    "channels with more are not normalized by a kernel that holds all of them", small=12,
)  # fmt: skip

Values: TypeAlias = Callable[[Number, Number], Sequence[Number]]
"""The summands for a channel and a position."""


@dataclass(frozen=True)
class Channels:
    """A batch viewed as channels and the positions of each: [N, C, P], or [N·P, C]."""

    view: Shape

    @classmethod
    def of(cls, layout: str, shape: Shape) -> Channels:
        """Return the view of images in a layout."""
        batch, channels, *image = channels_first(layout, shape)
        last = is_channels_last(layout) or not image
        return cls(
            (product([batch, *image]), channels) if last else (batch, channels, product(image))
        )

    @property
    def count(self) -> Size:
        """Number of channels."""
        return self.view[1]

    @property
    def places(self) -> Size:
        """Number of elements per channel."""
        return product([self.view[0], *self.view[2:]])

    @property
    def fits(self) -> bool:
        """True if a kernel can hold all positions of a channel at once."""
        return isinstance(self.places, int) and self.places <= TILE.value

    def expect(self, k: KernelBuilder, *vectors: DeviceOperand | None) -> None:
        """Require vectors to have an element for each channel, once sizes are known."""
        for vector in filter(None, vectors):
            k.expect_size("channels", self.count, product(vector.shape))

    def index(self, k: KernelBuilder, c: Number, position: Number) -> tuple[Number, ...]:
        """Return the indices of an element in the view."""
        if len(self.view) == 2:
            return (position, c)
        inner = k.size(self.view[2])
        return (k.div(position, inner), c, k.mod(position, inner))

    def read(self, k: KernelBuilder, X: DeviceOperand, c: Number, position: Number) -> Number:
        """Load an element, upcast to at least 32 bits."""
        return upcast(k, X.reshaped(self.view)[self.index(k, c, position)])


def compute_dtype(dtype: DType) -> DType:
    """Return the compute dtype of norms for an element dtype."""
    return DType.FP32 if dtype in HALVES else dtype


def upcast(k: KernelBuilder, value: Number) -> Number:
    """Upcast a number to at least 32 bits."""
    return k.astype(value, compute_dtype(value.dtype))


def masked(k: KernelBuilder, inside: Number | None, value: Number) -> Number:
    """Return `value` where `inside` is true, else 0."""
    return value if inside is None else k.where(inside, value, 0)


def sums(k: KernelBuilder, s: Channels, values: Values, outs: Sequence[DeviceOperand]) -> None:
    """Emit a kernel for outs[i][c] = the sum of values(c, place)[i] over all positions."""
    (c,) = k.grid(s.count)
    r = k.loop(s.places)
    for out, value in zip(outs, values(c, r), strict=True):
        k.store(out, (c,), k.sum(value, r))


def moments(
    k: KernelBuilder, s: Channels, X: DeviceOperand, store: Callable[[Number, Number, Number], None]
) -> None:
    """Emit a kernel for each channel's mean and (biased) variance, passed to `store`."""
    (c,) = k.grid(s.count)
    r = k.loop(s.places)
    store(c, *k.moments(s.read(k, X, c, r), r))


def row_gradient(
    k: KernelBuilder, r: Number, count: Number, scaled: Number, normal: Number, inverse: Number
) -> Number:
    """Return the gradient of a row's element from that of its normalised value."""
    along, level = k.sum(scaled * normal, r) / count, k.sum(scaled, r) / count
    return (scaled - level - normal * along) * inverse
