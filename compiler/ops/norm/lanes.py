"""What the kernels of norms share: images as channels times places, and sums over the places.

Few channels and many places would keep few lanes busy, so that long sums go by parts: a kernel
takes every part once from memory, and a small one joins what the parts gave. Where a channel's
places all fit into one tile, one kernel reads them once, sums them and writes what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compiler.ir.dims import Size, product
from compiler.ir.kernel import DeviceOperand, Lanes, Number
from compiler.ir.types import DType, Shape
from compiler.ops.image.windows import channels_first, is_channels_last

TILE = 4096
"""Places that a kernel holds at once."""

PART = 1024
"""Places of a part of a sum where they lie together in memory."""

SHORT_PART = 32
"""Places of a part where channels lie together."""

Values: TypeAlias = Callable[[Number, Number, "Number | None"], Sequence[Number]]
"""What is summed, for a channel and a place; 0 where the third is false."""


@dataclass(frozen=True)
class Channels:
    """A batch seen as channels, and each channel's places: [N, C, P], or [N·P, C]."""

    view: Shape

    @classmethod
    def of(cls, layout: str, shape: Shape) -> Channels:
        """Images in a layout."""
        batch, channels, *image = channels_first(layout, shape)
        last = is_channels_last(layout) or not image
        return cls(
            (product([batch, *image]), channels) if last else (batch, channels, product(image))
        )

    @property
    def count(self) -> Size:
        """How many channels there are."""
        return self.view[1]

    @property
    def places(self) -> Size:
        """How many elements a channel has."""
        return product([self.view[0], *self.view[2:]])

    @property
    def part(self) -> int:
        """How many places a part of a sum has."""
        return PART if len(self.view) == 3 else SHORT_PART

    @property
    def fits(self) -> bool:
        """True where a kernel can hold all places of a channel at once."""
        return isinstance(self.places, int) and self.places <= TILE

    def index(self, k: Lanes, c: Number, place: Number) -> tuple[Number, ...]:
        """The indices of an element in the view."""
        if len(self.view) == 2:
            return (place, c)
        inner = k.size(self.view[2])
        return (k.div(place, inner), c, k.mod(place, inner))

    def read(
        self, k: Lanes, X: DeviceOperand, c: Number, place: Number, inside: Number | None = None
    ) -> Number:
        """An element, in no less than 32 bits; 0 where it is not inside."""
        return wide(k, X.seen_as(self.view).at(*self.index(k, c, place), where=inside, other=0))


def held(dtype: DType) -> DType:
    """What norms compute in for elements of a type."""
    return DType.FP32 if dtype is DType.FP16 else dtype


def wide(k: Lanes, value: Number) -> Number:
    """A number in no less than 32 bits."""
    return k.astype(value, held(value.dtype))


def kept(k: Lanes, inside: Number | None, value: Number) -> Number:
    """A value where it counts, else 0."""
    return value if inside is None else k.where(inside, value, 0)


def sums(
    k: Lanes, s: Channels, values: Values, outs: Sequence[DeviceOperand], dtype: DType
) -> None:
    """Kernels for outs[i][c] = the sum of values(c, place)[i] over all places of a channel."""
    if s.fits:
        (c,) = k.lanes(s.count)
        r = k.loop(s.places)
        for out, value in zip(outs, values(c, r, None), strict=True):
            k.store(out, (c,), k.sum(value, r))
        return
    count = (s.places + s.part - 1) // s.part
    partial = [k.scratch((count, s.count), held(dtype)) for _ in outs]
    part, c = k.lanes(count, s.count)
    r = k.loop(s.part)
    place = part * s.part + r
    for out, value in zip(partial, values(c, place, place < k.size(s.places)), strict=True):
        k.store(out, (part, c), k.sum(value, r))
    (c,) = k.lanes(s.count)
    r = k.loop(count)
    for out, each in zip(outs, partial, strict=True):
        k.store(out, (c,), k.sum(each[r, c], r))


def moments(
    k: Lanes, s: Channels, X: DeviceOperand, tell: Callable[[Number, Number, Number], None]
) -> None:
    """Kernels for each channel's mean and (biased) variance, which `tell` is given to store.

    Parts give mean and squares around it, which join without loss (Chan, Golub, LeVeque 1979).
    """
    dtype = held(X.type.dtype)
    count = (s.places + s.part - 1) // s.part
    means, squares = (k.scratch((count, s.count), dtype) for _ in range(2))
    part, c = k.lanes(count, s.count)
    r = k.loop(s.part)
    place = part * s.part + r
    inside = place < k.size(s.places)
    x = s.read(k, X, c, place, inside)
    mean = k.sum(x, r) / _weight(k, s, part, dtype)
    k.store(means, (part, c), mean)
    k.store(squares, (part, c), k.sum(kept(k, inside, k.square(x - mean)), r))
    (c,) = k.lanes(s.count)
    r = k.loop(count)
    weight, total = _weight(k, s, r, dtype), k.astype(k.size(s.places), dtype)
    mean = k.sum(means[r, c] * weight, r) / total
    around = squares[r, c] + weight * k.square(means[r, c] - mean)
    tell(c, mean, k.sum(around, r) / total)


def _weight(k: Lanes, s: Channels, part: Number, dtype: DType) -> Number:
    """How many places a part has: the last one may have fewer."""
    return k.astype(k.minimum(k.size(s.places) - part * s.part, s.part), dtype)


def row_gradient(
    k: Lanes, r: Number, count: Number, scaled: Number, normal: Number, inverse: Number
) -> Number:
    """The gradient of a row's element, given those of its normalised values."""
    along, level = k.sum(scaled * normal, r) / count, k.sum(scaled, r) / count
    return (scaled - level - normal * along) * inverse
