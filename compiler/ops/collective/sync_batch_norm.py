"""`sync_batch_norm`: batch normalisation with statistics summed over all ranks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from compiler.ir.opdef import RecomputeRule, attr, reads_token, writes_token
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number, SourceBuilder
from compiler.ir.types import Array, DType, Shape
from compiler.ops.collective.single_rank import SingleRank
from compiler.ops.norm import batch_norm_kernels as kernels
from compiler.ops.norm.batch_norm import BatchNorm
from compiler.ops.norm.batch_norm_numpy import (
    channel_rows,
    finish_batch,
    normalised,
    rows_gradient,
    rows_like,
)
from compiler.ops.norm.channel_kernels import Channels, moments


def global_sums(collective: Any, ring: int, name: str, parts: list[Any], count: int) -> list[Any]:
    """Sum vectors [C] and a count over all ranks, in float64 by one all-reduce."""
    packed = np.concatenate([*(np.asarray(part, np.float64) for part in parts), [float(count)]])
    if collective.has_ring(ring):
        collective.all_reduce(ring, name, "sum", packed)
    return [*np.split(packed[:-1], len(parts)), packed[-1]]


def global_moments(collective: Any, ring: int, name: str, x: Array) -> tuple[Array, Array, float]:
    """Return mean and biased variance over the rows of all ranks, and the number of rows.

    Each rank subtracts its own mean first, and sums are exchanged in float64: no precision is lost
    if the mean is large compared with the deviation.
    """
    count = len(x)
    mean = x.mean(axis=0, dtype=np.float64) if count else np.zeros(x.shape[1])
    square = ((x - mean) ** 2).sum(axis=0) + count * mean**2
    total, squares, rows_total = global_sums(collective, ring, name, [count * mean, square], count)
    mean = total / max(rows_total, 1.0)
    variance = np.maximum(squares / max(rows_total, 1.0) - mean**2, 0.0)
    return mean.astype(x.dtype), variance.astype(x.dtype), float(rows_total)


def normalize_by_all(
    x: Array,
    y: Array,
    scale: Array,
    bias: Array,
    saved: tuple[Array, Array],
    kept: tuple[tuple[Array, Array], tuple[Array, Array]],
    momentum: float,
    epsilon: float,
    spare: Array,
    where: tuple[Any, int, str],
) -> None:
    """Normalise x [N, positions, C] into y, which may alias x, by mean and variance of all ranks.

    `saved` receives the mean and 1/deviation; `kept` has running mean and variance, before and
    after. If all ranks together have one value per channel, y = x, and the running statistics are
    unchanged.
    """
    mean, inverse = saved
    count = x.size // mean.size
    np.einsum("npc->c", x, out=mean)
    np.divide(mean, max(count, 1), out=mean)
    np.subtract(x, mean, out=y)
    np.einsum("npc,npc->c", y, y, out=inverse)
    local = mean.astype(np.float64)
    parts = [count * local, inverse + count * local**2]
    total, squares, rows_total = global_sums(*where, parts, count)
    if rows_total <= 1:
        np.add(y, mean, out=y)
        for source, target in ((0, mean), (0, inverse), *kept):
            np.copyto(target, source)
        return
    centre = total / rows_total
    np.add(y, (local - centre).astype(y.dtype), out=y)
    mean[...] = centre
    inverse[...] = np.maximum(squares / rows_total - centre**2, 0.0)
    finish_batch(y, (scale, bias), saved, kept, (momentum, epsilon), spare)


def gradient_by_all(
    x: Array,
    d_y: Array,
    d_x: Array,
    scale: Array,
    mean: Array,
    inverse: Array,
    d_scale: Array,
    d_bias: Array,
    spare: Array,
    where: tuple[Any, int, str],
) -> None:
    """Compute d_x = scale*inverse*(d_y - (d_bias + (x - mean)*inverse*d_scale)/count).

    x is [N, positions, C]. In the formula, d_bias, d_scale and count are sums over all ranks; the
    d_bias and d_scale written are this rank's.
    """
    centred = np.subtract(x, mean, out=d_x)
    np.einsum("npc->c", d_y, out=d_bias)
    np.einsum("npc,npc->c", d_y, centred, out=d_scale)
    np.multiply(d_scale, inverse, out=d_scale)
    scales, biases, rows_total = global_sums(*where, [d_scale, d_bias], x.size // mean.size)
    if rows_total <= 1:
        for source, target in ((d_y, d_x), (0, d_scale), (0, d_bias)):
            np.copyto(target, source)
        return
    spare[...] = scales / -rows_total * inverse
    np.add(np.multiply(centred, spare, out=d_x), d_y, out=d_x)
    spare[...] = biases / rows_total
    np.subtract(d_x, spare, out=d_x)
    np.multiply(d_x, np.multiply(scale, inverse, out=spare), out=d_x)


class SyncBatchNorm(BatchNorm, op="sync_batch_norm"):
    """`batch_norm` over the batches of all ranks of ring `ring_id`, which may differ in size.

    Mean and variance, and in the gradient of X the sums of gradients, are global, by one all-reduce
    each. The gradients of Scale and Bias are local: they are summed with those of other parameters.
    Without a ring it is `batch_norm`. Reference: sync_batch_norm_op.cu.h, which assumes equal
    sizes.
    """

    ring_id = attr(0)
    variable = attr("")
    Before = reads_token()
    After = writes_token()
    collective: ClassVar[Any] = SingleRank()

    def is_ordered(self) -> bool:
        """Return false for fixed statistics, which need no other rank."""
        return not self.is_frozen

    def again(self) -> RecomputeRule | None:
        """Return None unless frozen: Y is not recomputed, for only all ranks know the count."""
        return super().again() if self.is_frozen else None

    def numpy(
        self,
        X: Array,
        Scale: Array,
        Bias: Array,
        Mean: Array,
        Variance: Array,
        MomentumTensor: Array | None,
    ) -> dict[str, Array]:
        keep = self.momentum if MomentumTensor is None else float(MomentumTensor.ravel()[0])
        if self.use_global_stats or (self.is_test and not self.trainable_statistics):
            settings = (Mean, Variance, keep, self.epsilon, True, self.data_layout)
            return normalised(X, Scale, Bias, *settings)
        x = channel_rows(X, self.data_layout)
        totals = global_moments(self.collective, self.ring_id, self.variable, x)
        outputs = {"MeanOut": Mean, "VarianceOut": Variance, "ReserveSpace": np.empty(0, X.dtype)}
        if totals[2] <= 1:
            saved = dict.fromkeys(("SavedMean", "SavedVariance"), np.zeros_like(Mean))
            return {"Y": X, **outputs, **saved}
        outputs["MeanOut"] = keep * Mean + (1.0 - keep) * totals[0]
        outputs["VarianceOut"] = keep * Variance + (1.0 - keep) * totals[1]
        inverse = 1.0 / np.sqrt(totals[1] + self.epsilon)
        y = rows_like((x - totals[0]) * inverse * Scale + Bias, X, self.data_layout)
        return {"Y": y, **outputs, "SavedMean": totals[0], "SavedVariance": inverse}

    def grad(
        self,
        X: Array,
        Scale: Array,
        Bias: Shape,
        SavedMean: Array,
        SavedVariance: Array,
        d_Y: Array,
    ) -> dict[str, Array]:
        x, upstream = (channel_rows(array, self.data_layout) for array in (X, d_Y))
        normal = (x - SavedMean) * SavedVariance
        frozen = self.use_global_stats or (self.is_test and not self.trainable_statistics)
        if frozen:
            rows, d_scale, d_bias = rows_gradient(normal, upstream, Scale * SavedVariance, True)
            return {"X": rows_like(rows, X, self.data_layout), "Scale": d_scale, "Bias": d_bias}
        d_scale, d_bias = (upstream * normal).sum(axis=0), upstream.sum(axis=0)
        where = (self.collective, self.ring_id, self.variable)
        scales, biases, rows_total = global_sums(*where, [d_scale, d_bias], len(x))
        if rows_total <= 1:
            return {"X": d_Y, "Scale": np.zeros_like(Scale), "Bias": np.zeros_like(Scale)}
        share = (normal * scales + biases) / rows_total
        rows = ((upstream - share) * (Scale * SavedVariance)).astype(X.dtype)
        return {"X": rows_like(rows, X, self.data_layout), "Scale": d_scale, "Bias": d_bias}

    @property
    def where(self) -> str:
        """The arguments of an all-reduce: the object, the ring, the name."""
        return f"(collective, {self.ring_id}, {self.variable!r})"

    def batch_function(self, k: SourceBuilder) -> tuple[str, str]:
        return k.function(normalize_by_all), f", {self.where}"

    def gradient_function(self, k: SourceBuilder) -> tuple[str, str]:
        if self.is_frozen:
            return super().gradient_function(k)
        return k.function(gradient_by_all), self.where

    def triton_batch(
        self,
        k: KernelBuilder,
        s: Channels,
        X: DeviceOperand,
        affine: tuple[DeviceOperand, DeviceOperand],
        Y: DeviceOperand | None,
        saved: tuple[DeviceOperand, DeviceOperand],
        kept: kernels.Statistics,
    ) -> None:
        packed = self._packed_moments(k, s, X)
        self._update_statistics(k, packed, saved, kept)
        if Y is not None:
            indices = k.grid(*s.view)
            c, x = indices[1], X.reshaped(s.view)[indices]
            y = (x - saved[0][c]) * (saved[1][c] * affine[0][c]) + affine[1][c]
            k.store(Y.reshaped(s.view), indices, k.where(_has_single_value(k, packed), x, y))

    def _packed_moments(self, k: KernelBuilder, s: Channels, X: DeviceOperand) -> DeviceOperand:
        """Compute sums, sums of squares, and the count over all ranks, in float64."""
        packed = k.scratch((2 * s.count + 1,), DType.FP64)

        def store_moments(c: Number, mean: Number, variance: Number) -> None:
            count, wide = k.astype(k.size(s.places), DType.FP64), k.astype(mean, DType.FP64)
            square = k.astype(variance, DType.FP64) + wide * wide
            k.store(packed, (c,), wide * count)
            k.store(packed, (c + k.size(s.count),), square * count)

        moments(k, s, X, store_moments)
        return self._all_reduced(k, s, packed)

    def _all_reduced(self, k: KernelBuilder, s: Channels, packed: DeviceOperand) -> DeviceOperand:
        """All-reduce device vectors with the count appended."""
        (i,) = k.grid(1)
        k.store(packed, (i + k.size(2 * s.count),), k.astype(k.size(s.places), DType.FP64))
        arguments = f"{self.ring_id}, {self.variable!r}, 'sum', {packed}"
        k.line(f"if collective.has_ring({self.ring_id}): collective.all_reduce({arguments})")
        return packed

    def _update_statistics(
        self,
        k: KernelBuilder,
        packed: DeviceOperand,
        saved: tuple[DeviceOperand, DeviceOperand],
        keep: kernels.Statistics,
    ) -> None:
        """Compute global mean and 1/deviation, and update the running statistics."""
        (c,) = k.grid(*saved[0].shape)
        count, dtype = packed[packed.shape[0] - 1], saved[0].type.dtype
        mean = packed[c] / count
        variance = k.maximum(packed[c + k.size(saved[0].shape[0])] / count - mean * mean, 0.0)
        batch_moments = k.astype(mean, dtype), k.astype(variance, dtype)
        values = batch_moments[0], 1.0 / k.sqrt(batch_moments[1] + self.epsilon)
        alone = _has_single_value(k, packed)
        for out, value in zip(saved, values, strict=True):
            k.store(out, (c,), k.where(alone, 0.0, value))
        momentum: Number = keep.momentum if keep.tensor is None else keep.tensor.reshaped((1,))[0]
        for old, new, batch in zip(keep.before, keep.after, batch_moments, strict=True):
            if new is not None:
                moved = old[c] * momentum + batch * (1.0 - momentum)
                k.store(new, (c,), k.where(alone, old[c], moved))

    def kernel_gradient(
        self,
        k: KernelBuilder,
        s: Channels,
        given: tuple[DeviceOperand, DeviceOperand, DeviceOperand, DeviceOperand, DeviceOperand],
        outs: tuple[DeviceOperand | None, DeviceOperand | None, DeviceOperand | None],
    ) -> None:
        if self.is_frozen:
            super().kernel_gradient(k, s, given, outs)
            return
        X, d_Y, _, mean, inverse = given
        packed = k.scratch((2 * s.count + 1,), DType.FP64)
        (c,) = k.grid(s.count)
        r = k.loop(s.places)
        upstream = s.read(k, d_Y, c, r)
        normal = (s.read(k, X, c, r) - mean[c]) * inverse[c]
        own = k.sum(upstream * normal, r), k.sum(upstream, r)
        for position, total, out in zip((c, c + k.size(s.count)), own, outs[1:], strict=True):
            k.store(packed, (position,), k.astype(total, DType.FP64))
            if out is not None:
                k.store(out, (c,), total)
        self._all_reduced(k, s, packed)
        if outs[0] is not None:
            self._input_gradient(k, s, given, packed, outs[0])

    def _input_gradient(
        self,
        k: KernelBuilder,
        s: Channels,
        given: tuple[DeviceOperand, ...],
        packed: DeviceOperand,
        d_X: DeviceOperand,
    ) -> None:
        """Compute the gradient of X from the global sums."""
        X, d_Y, scale, mean, inverse = given
        indices = k.grid(*s.view)
        c, upstream = indices[1], d_Y.reshaped(s.view)[indices]
        dtype, count = mean.type.dtype, packed[packed.shape[0] - 1]
        d_scale = k.astype(packed[c] / count, dtype)
        d_bias = k.astype(packed[c + k.size(s.count)] / count, dtype)
        normal = (X.reshaped(s.view)[indices] - mean[c]) * inverse[c]
        share = (upstream - (d_bias + normal * d_scale)) * (scale[c] * inverse[c])
        k.store(
            d_X.reshaped(s.view), indices, k.where(_has_single_value(k, packed), upstream, share)
        )


def _has_single_value(k: KernelBuilder, packed: DeviceOperand) -> Number:
    """Return whether all ranks together have at most one value per channel."""
    return k.less(packed[packed.shape[0] - 1], 2.0)
