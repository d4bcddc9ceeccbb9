"""Regions: which bytes of a slot a value occupies; contiguous, or strided rows.

The parts of a concat or split need not be copied: they may be views of the whole. A part along the
outermost axes is one contiguous range of bytes; along other axes it is a range in every row of the
whole, with gaps between. Sizes may be symbolic, so the predicates here are conservative: they are
True only if they hold for all values of the symbols.
"""

from __future__ import annotations

from compiler.ir.dims import Size, product
from compiler.ir.opdef.slots import Share
from compiler.ir.types import Shape, TensorType
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Region:
    """Bytes of a slot: contiguous from `offset`, or `row` bytes of every `pitch`.

    >>> print(Region(), Region(128), Region(128, 64, 256))
     [128] [128, 64, 256]
    """

    offset: Size = 0
    row: Size = 0
    pitch: Size = 0

    @property
    def is_strided(self) -> bool:
        """True for strided rows, with gaps between them."""
        return self.pitch != 0

    def __str__(self) -> str:
        if self == WHOLE:
            return ""
        sizes = (self.offset, self.row, self.pitch) if self.is_strided else (self.offset,)
        return f"[{', '.join(map(str, sizes))}]"


WHOLE = Region()
"""A contiguous region at offset 0."""


def region_from_sizes(sizes: Shape) -> Region | None:
    """Return the region for `[offset]` or `[offset, row, pitch]`; None for any other length."""
    return Region(*sizes) if len(sizes) in (1, 3) else None


def subregion(outer: Region, whole: TensorType, part: TensorType, share: Share) -> Region | None:
    """Return the region of a part of a value in region `outer`; None if it is not a region, or has
    another number of elements than the share for some sizes.
    """
    if share.size is None:
        region = outer
    else:
        others = (*whole.shape[: share.axis], *whole.shape[share.axis + 1 :])
        if part.numel != product(others) * share.size:
            return None
        inner = product(whole.shape[share.axis + 1 :]) * whole.dtype.itemsize
        offset = outer.offset + share.start * inner
        region = _rows(outer, offset, share.size * inner, whole, share.axis)
    return region if region is not None and _fits(part, region) else None


def _rows(outer: Region, offset: Size, row: Size, whole: TensorType, axis: int) -> Region | None:
    pitch = product(whole.shape[axis:]) * whole.dtype.itemsize
    if product(whole.shape[:axis]) == 1:
        return None if outer.is_strided else Region(offset)
    if outer.is_strided:
        return Region(offset, row, outer.pitch) if outer.row == pitch else None
    return Region(offset, row, pitch)


def _fits(type: TensorType, region: Region) -> bool:
    return not region.is_strided or leading_axes(type, region.row) is not None


def leading_axes(type: TensorType, row: Size) -> int | None:
    """Return how many leading axes index rows of `row` bytes; None if no number does."""
    for axis in range(type.rank + 1):
        if product(type.shape[axis:]) * type.dtype.itemsize == row:
            return axis
    return None


def strides(type: TensorType, region: Region) -> tuple[Size, ...]:
    """Return the strides of a type in a region, in bytes; empty for a contiguous region."""
    axes = leading_axes(type, region.row) if region.is_strided else None
    if axes is None:
        return ()
    outside = [product(type.shape[i + 1 : axes]) * region.pitch for i in range(axes)]
    inside = [product(type.shape[i + 1 :]) * type.dtype.itemsize for i in range(axes, type.rank)]
    return (*outside, *inside)


def end(type: TensorType, region: Region) -> Size:
    """Return the end offset of a region, exclusive."""
    if not region.is_strided:
        return region.offset + type.nbytes
    rows = product(type.shape[: leading_axes(type, region.row) or 0])
    return region.offset + (rows - 1) * region.pitch + region.row


def are_disjoint(a: TensorType, one: Region, b: TensorType, other: Region) -> bool:
    """Return whether two regions of a slot are disjoint for all sizes.

    >>> from compiler.ir.types import DType
    >>> ten = TensorType(DType.FP32, (10,))
    >>> are_disjoint(ten, Region(), ten, Region(40)), are_disjoint(ten, Region(), ten, Region(36))
    (True, False)
    """
    if one.pitch == other.pitch and one.is_strided:
        first, last = one, other
        if at_most(other.offset, one.offset):
            first, last = other, one
        behind = at_most(first.offset + first.row, last.offset)
        if behind and at_most(last.offset + last.row, first.offset + first.pitch):
            return True
    return at_most(end(a, one), other.offset) or at_most(end(b, other), one.offset)


def at_most(a: Size, b: Size) -> bool:
    """Return whether a ≤ b for all symbol values, as far as the signs of terms prove it.

    >>> from compiler.ir.dims import Dim
    >>> N = Dim.named("N")
    >>> at_most(3 * N, 4 * N), at_most(4 * N, 3 * N), at_most(3, N)
    (True, False, False)
    """
    rest = b - a
    if isinstance(rest, int):
        return rest >= 0
    return rest.known and all(factor >= 0 for _, factor in rest.terms)
