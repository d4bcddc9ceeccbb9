"""Normalisation over a batch: `batch_norm`, in training and with the statistics it keeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.checks import differ, shown


class BatchNorm(OpDef, op="batch_norm"):
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, for each channel.

    X is [N, C, …], or […, C] with data_layout NHWC; all else is [C]. In training, mean and (biased)
    variance are those of the batch, and MeanOut = momentum*Mean + (1 - momentum)*mean, VarianceOut
    likewise, in the storage of Mean and Variance. With is_test (unless trainable_statistics) or
    use_global_stats they are Mean and Variance, which stay. SavedMean is the mean and SavedVariance
    1/sqrt(variance + epsilon), as used for Y. A channel of one value has no variance: in training
    Y = X then, and nothing is learnt of it. Reference: batch_norm_op.cc.
    """

    X = reads()
    Scale = reads()
    Bias = reads()
    Mean = reads(no_grad=True)
    Variance = reads(no_grad=True)
    Y = writes()
    MeanOut = writes(inplace="Mean")
    VarianceOut = writes(inplace="Variance")
    SavedMean = writes(optional=True)
    SavedVariance = writes(optional=True)
    momentum = attr(0.9)
    epsilon = attr(1e-5)
    is_test = attr(False)
    data_layout = attr("NCHW")
    use_global_stats = attr(False)
    trainable_statistics = attr(False)

    def infer(
        self,
        X: TensorType,
        Scale: TensorType,
        Bias: TensorType,
        Mean: TensorType,
        Variance: TensorType,
    ) -> dict[str, TensorType]:
        if X.rank < 2 or not X.dtype.is_float:
            raise ShapeError(f"batch_norm: X is {X}, expected floats with a batch and channels")
        channels = X.shape[self.channel_axis(X.rank)]
        vectors = {"Scale": Scale, "Bias": Bias, "Mean": Mean, "Variance": Variance}
        for slot, vector in vectors.items():
            if vector.rank != 1 or differ(vector.shape[0], channels) or vector.dtype != X.dtype:
                found = shown(X=X, **{slot: vector})
                raise ShapeError(f"batch_norm: {found} do not fit: there are {channels} channels")
        saved = dict.fromkeys(("SavedMean", "SavedVariance"), Mean)
        return {"Y": X, "MeanOut": Mean, "VarianceOut": Variance, **saved}

    def channel_axis(self, rank: int) -> int:
        """The axis of the channels; any layout but NHWC has them behind the batch."""
        return rank - 1 if self.data_layout == "NHWC" else 1

    @property
    def is_frozen(self) -> bool:
        """True where the statistics are those that were kept, not those of the batch."""
        return self.use_global_stats or (self.is_test and not self.trainable_statistics)

    def numpy(
        self, X: Array, Scale: Array, Bias: Array, Mean: Array, Variance: Array
    ) -> dict[str, Array]:
        x, kept = self.rows(X), {"MeanOut": Mean, "VarianceOut": Variance}
        if len(x) == 1 and not self.is_frozen:
            zeros = np.zeros_like(Mean)
            return {"Y": X, **kept, "SavedMean": zeros, "SavedVariance": zeros}
        mean, variance = Mean, Variance
        if not self.is_frozen:
            mean, variance = x.mean(axis=0), x.var(axis=0)
            kept = {
                "MeanOut": self.moved(Mean, mean),
                "VarianceOut": self.moved(Variance, variance),
            }
        inverse = 1.0 / np.sqrt(variance + self.epsilon)
        y = self.like(X, (x - mean) * inverse * Scale + Bias)
        return {"Y": y, **kept, "SavedMean": mean, "SavedVariance": inverse}

    def grad(
        self,
        X: Array,
        Scale: Array,
        Bias: Shape,
        SavedMean: Array,
        SavedVariance: Array,
        d_Y: Array,
    ) -> dict[str, Array]:
        x, above = self.rows(X), self.rows(d_Y)
        if len(x) == 1 and not self.is_frozen:
            return {"X": d_Y, "Scale": np.zeros_like(Scale), "Bias": np.zeros_like(Scale)}
        normal = (x - SavedMean) * SavedVariance
        d_scale, d_bias = (above * normal).sum(axis=0), above.sum(axis=0)
        if not self.is_frozen:
            above = above - (normal * d_scale + d_bias) / len(x)
        return {"X": self.like(X, above * SavedVariance * Scale), "Scale": d_scale, "Bias": d_bias}

    def rows(self, X: Array) -> Array:
        """All vectors of channels in X, one a row."""
        axis = self.channel_axis(X.ndim)
        return np.moveaxis(X, axis, -1).reshape(-1, X.shape[axis])

    def like(self, X: Array, rows: Array) -> Array:
        """Rows in the shape of X."""
        axis = self.channel_axis(X.ndim)
        shape = X.shape[:axis] + X.shape[axis + 1 :] + X.shape[axis : axis + 1]
        return np.ascontiguousarray(np.moveaxis(rows.reshape(shape), -1, axis))

    def moved(self, kept: Array, batch: Array) -> Array:
        """A running statistic after a batch."""
        return self.momentum * kept + (1.0 - self.momentum) * batch

    def lower(
        self,
        k: Kernel,
        X: Operand,
        Scale: Operand,
        Bias: Operand,
        Mean: Operand,
        Variance: Operand,
        Y: Operand | None,
        MeanOut: Operand | None,
        VarianceOut: Operand | None,
        SavedMean: Operand | None,
        SavedVariance: Operand | None,
    ) -> None:
        images = f"{self.seen(k, X)}, {self.seen(k, Y or _like(k, X))}, {Scale}, {Bias}"
        saved = [given or _like(k, Mean) for given in (SavedMean, SavedVariance)]
        kept = [(Mean, MeanOut or _like(k, Mean)), (Variance, VarianceOut or _like(k, Mean))]
        if self.is_frozen:
            vectors = f"{Mean}, {Variance}, {self.epsilon}, {_tuple(saved)}, {_like(k, Mean)}"
            k.line(f"{k.function(normalize_by_kept)}({images}, {vectors})")
            for given, out in kept:
                _copy(k, given, out)
        else:
            vectors = f"{_tuple(saved)}, {_tuple(map(_tuple, kept))}"
            rest = f"{self.momentum}, {self.epsilon}, {_like(k, Mean)}"
            k.line(f"{k.function(normalize_by_batch)}({images}, {vectors}, {rest})")

    def lower_grad(
        self,
        k: Kernel,
        X: Operand,
        Scale: Operand,
        SavedMean: Operand,
        SavedVariance: Operand,
        d_Y: Operand,
        d_X: Operand | None,
        d_Scale: Operand | None,
        d_Bias: Operand | None,
    ) -> None:
        given = [X, d_Y, d_X or _like(k, X)]
        images = ", ".join(self.seen(k, each) for each in given)
        vectors = f"{Scale}, {SavedMean}, {SavedVariance}"
        made = f"{d_Scale or _like(k, Scale)}, {d_Bias or _like(k, Scale)}, {_like(k, Scale)}"
        name = k.function(normalize_gradient)
        k.line(f"{name}({images}, {vectors}, {made}, {self.is_frozen})")

    def seen(self, k: Kernel, X: Operand) -> str:
        """The expression for X as [N, places, C]."""
        axis = self.channel_axis(X.type.rank)
        before, channels, after = (
            product(X.shape[:axis]),
            X.shape[axis],
            product(X.shape[axis + 1 :]),
        )
        if after == 1:
            return X.view((1, before, channels))
        return k.once(f"{X.view((before, channels, after))}.mT", [X], "npc")


def _like(k: Kernel, value: Operand) -> Operand:
    """Scratch of the same type."""
    return k.scratch(value.shape, value.type.dtype)


def _tuple(items: Iterable[object]) -> str:
    return f"({', '.join(map(str, items))})"


def _copy(k: Kernel, given: Operand, out: Operand) -> None:
    if not k.aliased(given, out):
        k.line(f"np.copyto({out}, {given})")


def normalize_by_batch(
    x: Array,
    y: Array,
    scale: Array,
    bias: Array,
    saved: tuple[Array, Array],
    kept: tuple[tuple[Array, Array], tuple[Array, Array]],
    momentum: float,
    epsilon: float,
    spare: Array,
) -> None:
    """Normalise x [N, places, C] to y by its own mean and variance.

    `saved` takes the mean and 1/deviation; `kept` has running mean and variance, before and after.
    A channel of one value has no variance: it passes, and nothing is learnt of it.
    """
    mean, inverse = saved
    count = x.size // mean.size
    if count == 1:
        for source, target in ((x, y), (0, mean), (0, inverse), *kept):
            np.copyto(target, source)
        return
    np.einsum("npc->c", x, out=mean)
    np.divide(mean, count, out=mean)
    np.subtract(x, mean, out=y)
    np.einsum("npc,npc->c", y, y, out=inverse)
    np.divide(inverse, count, out=inverse)  # the variance, until it has been added to `kept`
    for (before, after), batch in zip(kept, saved, strict=True):
        np.multiply(batch, 1.0 - momentum, out=spare)
        np.multiply(before, momentum, out=after)
        np.add(after, spare, out=after)
    np.add(inverse, epsilon, out=inverse)
    np.reciprocal(np.sqrt(inverse, out=inverse), out=inverse)
    np.multiply(y, np.multiply(inverse, scale, out=spare), out=y)
    np.add(y, bias, out=y)


def normalize_by_kept(
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
    """Normalise x [N, places, C] to y by statistics that are given: y = x*factor + shift."""
    inverse, shift = saved[1], saved[0]
    np.add(variance, epsilon, out=inverse)
    np.reciprocal(np.sqrt(inverse, out=inverse), out=inverse)
    factor = np.multiply(inverse, scale, out=spare)
    np.subtract(bias, np.multiply(mean, factor, out=shift), out=shift)
    np.multiply(x, factor, out=y)
    np.add(y, shift, out=y)
    np.copyto(saved[0], mean)


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
    """d_x = scale*inverse*(d_y - (d_bias + (x - mean)*inverse*d_scale)/count), x as [N, places, C].

    Where the statistics are `frozen`, only d_y counts in the bracket.
    """
    count = x.size // mean.size
    centred = np.subtract(x, mean, out=d_x)
    np.einsum("npc->c", d_y, out=d_bias)
    np.einsum("npc,npc->c", d_y, centred, out=d_scale)
    np.multiply(d_scale, inverse, out=d_scale)
    if frozen:
        np.multiply(d_y, np.multiply(scale, inverse, out=spare), out=d_x)
    elif count == 1:
        for source, target in ((d_y, d_x), (0, d_scale), (0, d_bias)):
            np.copyto(target, source)
    else:
        np.divide(np.multiply(d_scale, inverse, out=spare), -count, out=spare)
        np.add(np.multiply(centred, spare, out=d_x), d_y, out=d_x)
        np.subtract(d_x, np.divide(d_bias, count, out=spare), out=d_x)
        np.multiply(d_x, np.multiply(scale, inverse, out=spare), out=d_x)
