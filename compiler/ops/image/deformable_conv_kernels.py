"""Device kernels of deformable convolution: implicit matrix products with data-dependent taps.

The image gradient is accumulated with atomic adds, in any order; those of offsets and masks are
gathered. Both start from the gradient of the sampled columns, as large as all windows together.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.windows import ConvGeometry
from compiler.ops.image.conv_geometry import plus
from compiler.ops.math.bilinear_sampling_kernels import Corner, corners, looked, moved
from compiler.ops.shared_kernels import fill
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Deformed:
    """A convolution whose taps are shifted by `offset` and weighted by `mask`, if there is one.

    Each of `parts` groups of channels has separate offsets.
    """

    conv: ConvGeometry
    images: DeviceOperand
    offset: DeviceOperand
    mask: DeviceOperand | None
    parts: int

    def part(self, k: KernelBuilder, channel: Number) -> Number:
        """Return the offset group of a channel."""
        return k.div(channel, k.size(self.images.shape[1] // self.parts))

    def position(
        self, k: KernelBuilder, n: Number, part: Number, tap: Sequence[Number], y: Sequence[Number]
    ) -> tuple[Number, Number]:
        """Return the row and the column that a tap of a window samples."""
        offsets = self.offset.reshaped(
            (self.offset.shape[0], self.parts, *self.conv.taps, 2, *self.conv.counts)
        )
        coordinates: list[Number] = []
        for number, (window, at, i) in enumerate(zip(self.conv.windows, y, tap, strict=True)):
            start = at * window.stride + i * window.dilation - k.size(window.before)
            moved_by = offsets[(n, part, *tap, number, *y)]
            coordinates.append(k.astype(start, moved_by.dtype) + moved_by)
        return coordinates[0], coordinates[1]

    def corners(
        self, k: KernelBuilder, n: Number, part: Number, tap: Sequence[Number], y: Sequence[Number]
    ) -> list[Corner]:
        """Return the elements around that position."""
        return corners(k, *self.position(k, n, part, tap, y), self.images.shape[2:])

    def at(self, n: Number, c: Number, corner: Corner) -> Number:
        """Load an element of an image; 0 outside."""
        return self.images.at(n, c, corner.row, corner.column, where=corner.inside, other=0)

    def weight(
        self, n: Number, part: Number, tap: Sequence[Number], y: Sequence[Number]
    ) -> Number | None:
        """Return the weight of a tap; None for 1."""
        if self.mask is None:
            return None
        masks = self.mask.reshaped(
            (self.mask.shape[0], self.parts, *self.conv.taps, *self.conv.counts)
        )
        return masks[(n, part, *tap, *y)]

    def sample(
        self, k: KernelBuilder, n: Number, c: Number, tap: Sequence[Number], y: Sequence[Number]
    ) -> Number:
        """Return the weighted sample of a tap in a channel."""
        part = self.part(k, c)
        value = looked(self.corners(k, n, part, tap, y), lambda corner: self.at(n, c, corner))
        weight = self.weight(n, part, tap, y)
        return value if weight is None else value * weight


def sampled(k: KernelBuilder, d: Deformed) -> DeviceOperand:
    """Emit a kernel for the weighted samples of all taps: [N, C, taps, …positions]."""
    batch, channels = d.images.shape[:2]
    taps, per_group = product(d.conv.taps), channels // d.parts
    result = k.scratch((batch, channels, taps, *d.conv.counts), d.images.type.dtype)
    n, part, iteration, *y = k.grid(batch, d.parts, taps, *d.conv.counts)
    r, tap = k.loop(per_group), k.unravel(iteration, d.conv.taps)
    c = part * k.size(per_group) + r
    value = looked(d.corners(k, n, part, tap, y), lambda corner: d.at(n, c, corner))
    weight = d.weight(n, part, tap, y)
    k.store(result, (n, c, iteration, *y), value if weight is None else value * weight)
    return result


def forward(k: KernelBuilder, d: Deformed, filters: DeviceOperand, outputs: DeviceOperand) -> None:
    """Emit kernels for outputs[n, f, y] = Σ filters[f, c, i] samples[n, c, i, y]."""
    g, batch, (count, depth, *_) = d.conv, d.images.shape[0], filters.shape
    per_group, reduction = count // g.groups, [depth, *g.taps]
    samples = None if k.on_gpu else sampled(k, d)
    columns = product([batch, *g.counts])
    stack, i, j, left, right = k.tiles(g.stack, per_group, columns, product(reduction))
    f, first = (stack[0] * k.size(per_group) + i, stack[0] * k.size(depth)) if stack else (i, 0)
    (n, *y), (c, *tap) = k.unravel(j, [batch, *g.counts]), k.unravel(left, reduction)
    a = filters[(f, c, *tap)]
    c, *tap = k.unravel(right, reduction)
    total = k.contract(a, _sample_of(k, d, samples, n, plus(first, c), tap, y))
    k.store(outputs, (n, f, *y), total)


def _sample_of(
    k: KernelBuilder, d: Deformed, samples: DeviceOperand | None, n: Number, c: Number,
    tap: Sequence[Number], y: Sequence[Number],
) -> Number:  # fmt: skip
    """Load a sample of a tap in a channel, or compute it if `samples` is None."""
    if samples is None:
        return d.sample(k, n, c, tap, y)
    return samples.reshaped((*samples.shape[:2], *d.conv.taps, *d.conv.counts))[(n, c, *tap, *y)]


def filter_gradient(
    k: KernelBuilder, d: Deformed, upstream: DeviceOperand, filters: DeviceOperand
) -> None:
    """Emit kernels for filters[f, c, i] = Σ upstream[n, f, y] samples[n, c, i, y]."""
    g, batch, (count, depth, *_) = d.conv, d.images.shape[0], filters.shape
    per_group, reduction, columns = (
        count // g.groups,
        [batch, *g.counts],
        [depth, *g.taps],
    )
    samples = None if k.on_gpu else sampled(k, d)
    stack, i, j, left, right = k.tiles(g.stack, per_group, product(columns), product(reduction))
    f, first = (stack[0] * k.size(per_group) + i, stack[0] * k.size(depth)) if stack else (i, 0)
    n, *y = k.unravel(left, reduction)
    a = upstream[(n, f, *y)]
    (n, *y), (c, *tap) = k.unravel(right, reduction), k.unravel(j, columns)
    total = k.contract(a, _sample_of(k, d, samples, n, plus(first, c), tap, y))
    k.store(filters.reshaped((count, product(columns))), (f, j), total)


def sample_gradient_kernel(
    k: KernelBuilder, d: Deformed, filters: DeviceOperand, upstream: DeviceOperand
) -> DeviceOperand:
    """Emit a kernel for the gradient of the sampled columns: [N, C, taps, …positions]."""
    g, batch, (count, depth, *_) = d.conv, d.images.shape[0], filters.shape
    per_group, rows, columns = (
        count // g.groups,
        [depth, *g.taps],
        [batch, *g.counts],
    )
    result = k.scratch((batch, d.images.shape[1], product(g.taps), *g.counts), upstream.type.dtype)
    stack, i, j, left, right = k.tiles(g.stack, product(rows), product(columns), per_group)
    first, start = (stack[0] * k.size(per_group), stack[0] * k.size(depth)) if stack else (0, 0)
    (c, *tap), (n, *y) = k.unravel(i, rows), k.unravel(j, columns)
    a, b = filters[(plus(first, left), c, *tap)], upstream[(n, plus(first, right), *y)]
    position = k.unravel(i, (depth, product(g.taps)))[1]
    k.store(result, (n, plus(start, c), position, *y), k.contract(a, b))
    return result


def image_gradient(
    k: KernelBuilder, d: Deformed, samples: DeviceOperand, images: DeviceOperand
) -> None:
    """Emit kernels that add the gradient of each sample to the elements it interpolates."""
    fill(k, images, 0)
    n, c, iteration, *y = k.grid(*samples.shape)
    tap, part = k.unravel(iteration, d.conv.taps), d.part(k, c)
    upstream, weight = samples[(n, c, iteration, *y)], d.weight(n, part, tap, y)
    upstream = upstream if weight is None else upstream * weight
    for corner in d.corners(k, n, part, tap, y):
        k.add(images, (n, c, corner.row, corner.column), upstream * corner.share, corner.inside)


def offset_gradient(
    k: KernelBuilder, d: Deformed, samples: DeviceOperand, offset: DeviceOperand | None,
    mask: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit a kernel for the gradients of offsets and masks, summed over their channels.

    An offset that points a whole element or more outside the image has gradient 0.
    """
    batch, taps, per_group = samples.shape[0], samples.shape[2], d.images.shape[1] // d.parts
    n, part, iteration, *y = k.grid(batch, d.parts, taps, *d.conv.counts)
    r, tap = k.loop(per_group), k.unravel(iteration, d.conv.taps)
    c = part * k.size(per_group) + r
    upstream, neighbours = samples[(n, c, iteration, *y)], d.corners(k, n, part, tap, y)
    if mask is not None:
        value = looked(neighbours, lambda corner: d.at(n, c, corner))
        whole = mask.reshaped((batch, d.parts, taps, *d.conv.counts))
        k.store(whole, (n, part, iteration, *y), k.sum(upstream * value, r))
    if offset is None:
        return
    in_range = _is_in_range(k, d, d.position(k, n, part, tap, y))
    weight = d.weight(n, part, tap, y)
    upstream = upstream if weight is None else upstream * weight
    whole = offset.reshaped((batch, d.parts, taps, 2, *d.conv.counts))
    for axis, slope in enumerate(moved(neighbours, lambda corner: d.at(n, c, corner))):
        total = k.sum(upstream * slope, r)
        k.store(whole, (n, part, iteration, axis, *y), k.where(in_range, total, 0))


def _is_in_range(k: KernelBuilder, d: Deformed, position: Sequence[Number]) -> Number:
    """Test if a position is less than one element outside an image."""
    (row, column), (height, width) = position, (k.size(size) for size in d.conv.sizes)
    return (row > -1.0) & (row < height) & (column > -1.0) & (column < width)
