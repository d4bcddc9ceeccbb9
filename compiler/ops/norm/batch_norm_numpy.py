"""Batch normalisation, as functions that generated modules carry.

`normalised` and `rows_gradient` are the reference implementation; the `normalize` ones write to
arrays that are passed in.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from compiler.ir.windows import is_channels_last

Vectors = tuple[Array, Array]
"""Two arrays [C]."""


def channel_rows(X: Array, layout: str) -> Array:
    """Return X as [N·positions, C]."""
    channels = X if is_channels_last(layout) else np.moveaxis(X, 1, -1)
    return channels.reshape(-1, channels.shape[-1])


def rows_like(rows: Array, X: Array, layout: str) -> Array:
    """Return rows [N·positions, C] in the shape of X."""
    if is_channels_last(layout):
        return rows.reshape(X.shape)
    shape = (*X.shape[:1], *X.shape[2:], X.shape[1])
    return np.ascontiguousarray(np.moveaxis(rows.reshape(shape), -1, 1))


def normalised(
    X: Array,
    Scale: Array,
    Bias: Array,
    Mean: Array,
    Variance: Array,
    keep: float,
    epsilon: float,
    frozen: bool,
    layout: str,
) -> dict[str, Array]:
    """Return the outputs of `batch_norm`; `keep` is the momentum, `frozen` skips updates."""
    x, statistics = channel_rows(X, layout), {"MeanOut": Mean, "VarianceOut": Variance}
    statistics["ReserveSpace"] = np.empty(0, X.dtype)
    mean, variance = Mean, Variance
    if len(x) <= 1 and not frozen:
        saved = dict.fromkeys(("SavedMean", "SavedVariance"), np.zeros_like(Mean))
        return {"Y": X, **statistics, **saved}
    if not frozen:
        mean, variance = x.mean(axis=0), x.var(axis=0)
        statistics["MeanOut"] = keep * Mean + (1.0 - keep) * mean
        statistics["VarianceOut"] = keep * Variance + (1.0 - keep) * variance
    inverse = 1.0 / np.sqrt(variance + epsilon)
    y = rows_like((x - mean) * inverse * Scale + Bias, X, layout)
    return {"Y": y, **statistics, "SavedMean": mean, "SavedVariance": inverse}


def rows_gradient(
    normal: Array, upstream: Array, factor: Array, frozen: bool
) -> tuple[Array, Array, Array]:
    """Return gradients of rows, scale and bias; `normal` are the normalised rows, y = normal*scale.

    `factor` is scale/deviation. `frozen` statistics do not depend on the rows.
    """
    d_scale, d_bias = (upstream * normal).sum(axis=0), upstream.sum(axis=0)
    if not frozen:
        upstream = upstream - (normal * d_scale + d_bias) / len(normal)
    return upstream * factor, d_scale, d_bias


def normalize_by_batch(
    x: Array,
    y: Array,
    scale: Array,
    bias: Array,
    saved: Vectors,
    kept: tuple[Vectors, Vectors],
    momentum: float,
    epsilon: float,
    spare: Array,
) -> None:
    """Normalise x [N, positions, C] to y by its mean and variance.

    `saved` receives the mean and 1/deviation; `kept` has running mean and variance, before and
    after. A channel of one value, or none, has no variance: it is copied, and the statistics are
    not updated.
    """
    mean, inverse = saved
    count = x.size // mean.size
    if count <= 1:
        for source, target in ((x, y), (0, mean), (0, inverse), *kept):
            np.copyto(target, source)
        return
    np.einsum("npc->c", x, out=mean)
    np.divide(mean, count, out=mean)
    np.subtract(x, mean, out=y)
    np.einsum("npc,npc->c", y, y, out=inverse)
    np.divide(inverse, count, out=inverse)
    finish_batch(y, (scale, bias), saved, kept, (momentum, epsilon), spare)


def finish_batch(
    y: Array,
    affine: Vectors,
    saved: Vectors,
    kept: tuple[Vectors, Vectors],
    rates: tuple[float, float],
    spare: Array,
) -> None:
    """Normalise centred values y [N, positions, C], with mean and variance of the batch in `saved`.

    `affine` is scale and bias, `rates` momentum and epsilon. `kept` is updated by the statistics of
    the batch, then the variance is replaced by 1/deviation.
    """
    inverse, (momentum, epsilon) = saved[1], rates
    for (before, after), batch in zip(kept, saved, strict=True):
        np.multiply(batch, 1.0 - momentum, out=spare)
        np.multiply(before, momentum, out=after)
        np.add(after, spare, out=after)
    np.add(inverse, epsilon, out=inverse)
    np.reciprocal(np.sqrt(inverse, out=inverse), out=inverse)
    np.multiply(y, np.multiply(inverse, affine[0], out=spare), out=y)
    np.add(y, affine[1], out=y)


def normalize_by_running(
    x: Array,
    y: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    saved: tuple[Array, Array],
    spare: Array,
) -> None:
    """Normalise x [N, positions, C] to y by statistics passed in: y = x*factor + shift."""
    inverse, shift = saved[1], saved[0]
    np.add(variance, epsilon, out=inverse)
    np.reciprocal(np.sqrt(inverse, out=inverse), out=inverse)
    factor = np.multiply(inverse, scale, out=spare)
    np.subtract(bias, np.multiply(mean, factor, out=shift), out=shift)
    np.multiply(x, factor, out=y)
    np.add(y, shift, out=y)
    np.copyto(saved[0], mean)


def renormalize(
    x: Array,
    y: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    inverse: Array,
    factor: Array,
    shift: Array,
    frozen: bool,
) -> None:
    """Recompute the normalised y of x [N, positions, C] from mean and 1/deviation.

    `factor` and `shift` are scratch. The order of operations is that of the forward pass, so that
    results are bit-identical.
    """
    np.multiply(inverse, scale, out=factor)
    if frozen:
        np.subtract(bias, np.multiply(mean, factor, out=shift), out=shift)
        np.multiply(x, factor, out=y)
        np.add(y, shift, out=y)
    elif x.size == mean.size:
        np.copyto(y, x)
    else:
        np.subtract(x, mean, out=y)
        np.multiply(y, factor, out=y)
        np.add(y, bias, out=y)


def normalize_gradient(
    x: Array,
    d_y: Array,
    d_x: Array,
    scale: Array,
    mean: Array,
    inverse: Array,
    d_scale: Array,
    d_bias: Array,
    spare: Array,
    frozen: bool,
) -> None:
    """d_x = scale*inverse*(d_y - (d_bias + (x - mean)*inverse*d_scale)/count), x [N, positions, C].

    With `frozen` statistics, the bracket is d_y alone.
    """
    count = x.size // mean.size
    centred = np.subtract(x, mean, out=d_x)
    np.einsum("npc->c", d_y, out=d_bias)
    np.einsum("npc,npc->c", d_y, centred, out=d_scale)
    np.multiply(d_scale, inverse, out=d_scale)
    if frozen:
        np.multiply(d_y, np.multiply(scale, inverse, out=spare), out=d_x)
    elif count <= 1:
        for source, target in ((d_y, d_x), (0, d_scale), (0, d_bias)):
            np.copyto(target, source)
    else:
        np.divide(np.multiply(d_scale, inverse, out=spare), -count, out=spare)
        np.add(np.multiply(centred, spare, out=d_x), d_y, out=d_x)
        np.subtract(d_x, np.divide(d_bias, count, out=spare), out=d_x)
        np.multiply(d_x, np.multiply(scale, inverse, out=spare), out=d_x)
