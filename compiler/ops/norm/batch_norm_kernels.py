"""Device kernels of batch normalisation.

In training, a channel whose positions fit into a tile has one single-pass kernel; others are read
once for their statistics and once more to be normalised, and likewise in the gradient.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.norm.channel_kernels import Channels, compute_dtype, moments, sums
from compiler.support.dataclass import dataclass

Store = Callable[[Number, Number, Number], None]


@dataclass(frozen=True)
class Statistics:
    """Running statistics of training: [C] each; outputs that are not used are None.

    `tensor` [1], if passed, overrides `momentum`.
    """

    before: tuple[DeviceOperand, DeviceOperand]
    after: tuple[DeviceOperand | None, DeviceOperand | None]
    momentum: float
    epsilon: float
    tensor: DeviceOperand | None = None

    def keep(
        self, k: KernelBuilder, positions: Size, c: Number, mean: Number, variance: Number
    ) -> None:
        """Update the running statistics by those of the batch; not for channels of one element."""
        keep: Number = self.momentum if self.tensor is None else self.tensor.reshaped((1,))[0]
        for old, new, batch in zip(self.before, self.after, (mean, variance), strict=True):
            if new is not None:
                moved = old[c] * keep + batch * (1.0 - keep)
                k.store(new, (c,), unless_single(k, positions, moved, old[c]))


def unless_single(k: KernelBuilder, positions: Size, value: Number, alone: Number) -> Number:
    """Return `value`, or `alone` for channels of one element or none."""
    if isinstance(positions, int):
        return alone if positions <= 1 else value
    return k.where(k.less(k.size(positions), 2), alone, value)


def normalise_by_batch(
    k: KernelBuilder, s: Channels, X: DeviceOperand, factors: tuple[DeviceOperand, DeviceOperand],
    Y: DeviceOperand | None, saved: tuple[DeviceOperand, DeviceOperand], kept: Statistics,
) -> None:  # fmt: skip
    """Normalise X by the batch statistics; `saved` receives the mean and 1/deviation."""

    def store(c: Number, mean: Number, variance: Number) -> None:
        inverse = 1.0 / k.sqrt(variance + kept.epsilon)
        for out, value in zip(saved, (mean, inverse), strict=True):
            k.store(out, (c,), unless_single(k, s.places, value, 0.0))
        kept.keep(k, s.places, c, mean, variance)

    if not s.fits:
        moments(k, s, X, store)
        if Y is not None:
            again(k, s, X, factors, saved, Y, False)
        return
    (c,) = k.grid(s.count)
    r = k.loop(s.places)
    x = s.read(k, X, c, r)
    mean, variance = k.moments(x, r)
    store(c, mean, variance)
    if Y is not None:
        inverse = 1.0 / k.sqrt(variance + kept.epsilon)
        y = (x - mean) * (inverse * factors[0][c]) + factors[1][c]
        k.store(Y.reshaped(s.view), s.index(k, c, r), unless_single(k, s.places, y, x))


def normalise_by_running(
    k: KernelBuilder, s: Channels, X: DeviceOperand, factors: tuple[DeviceOperand, DeviceOperand],
    given: tuple[DeviceOperand, DeviceOperand], epsilon: float, Y: DeviceOperand | None,
) -> None:  # fmt: skip
    """Normalise X by the mean and variance passed in."""
    if Y is None:
        return
    indices = k.grid(*s.view)
    c, view = indices[1], X.reshaped(s.view)
    factor = factors[0][c] / k.sqrt(given[1][c] + epsilon)
    k.store(Y.reshaped(s.view), indices, (view[indices] - given[0][c]) * factor + factors[1][c])


def store_running(
    k: KernelBuilder, given: tuple[DeviceOperand, DeviceOperand], epsilon: float,
    saved: tuple[DeviceOperand | None, DeviceOperand | None],
    outs: tuple[DeviceOperand | None, DeviceOperand | None],
) -> None:  # fmt: skip
    """Emit the outputs of frozen statistics: the statistics themselves, and 1/deviation."""
    (c,) = k.grid(*given[0].shape)
    mean, variance = given[0][c], given[1][c]
    pairs = zip(
        (*saved, *outs), (mean, 1.0 / k.sqrt(variance + epsilon), mean, variance), strict=True
    )
    for out, value in pairs:
        if out is not None:
            k.store(out, (c,), value)


def again(
    k: KernelBuilder, s: Channels, X: DeviceOperand, factors: tuple[DeviceOperand, DeviceOperand],
    saved: tuple[DeviceOperand, DeviceOperand], Y: DeviceOperand, frozen: bool,
) -> None:  # fmt: skip
    """Normalise X by a mean and 1/deviation."""
    indices = k.grid(*s.view)
    c, x = indices[1], X.reshaped(s.view)[indices]
    y = (x - saved[0][c]) * (saved[1][c] * factors[0][c]) + factors[1][c]
    k.store(Y.reshaped(s.view), indices, y if frozen else unless_single(k, s.places, y, x))


def gradient(
    k: KernelBuilder, s: Channels, given: tuple[DeviceOperand, ...],
    outputs: tuple[DeviceOperand | None, DeviceOperand | None, DeviceOperand | None], frozen: bool,
) -> None:  # fmt: skip
    """Emit the gradients of images, scale and bias from X, d_Y, scale, mean and 1/deviation."""
    X, d_Y, scale, mean, inverse = given
    d_X, *sum_outputs = outputs
    dtype = X.type.dtype
    d_scale, d_bias = (out or k.scratch(scale.shape, scale.type.dtype) for out in sum_outputs)

    def values(c: Number, position: Number) -> tuple[Number, Number]:
        upstream = s.read(k, d_Y, c, position)
        normal = (s.read(k, X, c, position) - mean[c]) * inverse[c]
        if not frozen:
            upstream = unless_single(k, s.places, upstream, upstream * 0)
        return upstream * normal, upstream

    sums(k, s, values, (d_scale, d_bias))
    if d_X is None:
        return
    indices = k.grid(*s.view)
    c, upstream = indices[1], d_Y.reshaped(s.view)[indices]
    if frozen:
        k.store(d_X.reshaped(s.view), indices, upstream * (scale[c] * inverse[c]))
        return
    normal = (X.reshaped(s.view)[indices] - mean[c]) * inverse[c]
    total = k.astype(k.size(s.places), compute_dtype(dtype))
    share = (upstream - (d_bias[c] + normal * d_scale[c]) / total) * (scale[c] * inverse[c])
    k.store(d_X.reshaped(s.view), indices, unless_single(k, s.places, share, upstream))
