"""Normalisation within an image: `instance_norm`, per channel, and `group_norm`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, TensorType
from compiler.ops.image.layouts import channels_first, to_layout, view_channels_first
from compiler.ops.norm import group_norm_kernels
from compiler.ops.norm.channel_kernels import Channels, compute_dtype, row_gradient, sums, upcast
from compiler.ops.norm.group_norm_kernels import Groups
from compiler.ops.type_checks import differ, require_same_shape, shown


def require_channels(op: str, X: TensorType, layout: str, **vectors: TensorType | None) -> None:
    """Raise ShapeError unless X is images, and each vector has one element per channel."""
    if X.rank < 2 or not X.dtype.is_float:
        raise ShapeError(f"{op}: X is {X}, expected floats with a batch and channels")
    size = channels_first(layout, X.shape)[1]
    for slot, vector in vectors.items():
        if vector is None:
            continue
        if vector.rank != 1 or differ(vector.shape[0], size) or vector.dtype != X.dtype:
            shapes = shown(X=X, **{slot: vector})
            raise ShapeError(f"{op}: {shapes} do not fit: there are {size} channels")


def require_positions(op: str, X: TensorType, layout: str) -> None:
    """Raise ShapeError for images without positions, whose mean is undefined."""
    if is_less(product(channels_first(layout, X.shape)[2:]), 1):
        raise ShapeError(f"{op}: X is {X}, expected one element or more in each channel")


def normal_gradient(scaled: Array, normal: Array, inverse: Array) -> Array:
    """Return the gradient of rows from that of normalised rows; `inverse` is 1/deviation."""
    along = (scaled * normal).mean(axis=1, keepdims=True)
    return (scaled - scaled.mean(axis=1, keepdims=True) - normal * along) * inverse


class InstanceNorm(OpDef, op="instance_norm"):
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, per channel and image.

    X is [N, C, …], Scale and Bias [C]. SavedMean and SavedVariance are [N·C]; the latter is
    1/sqrt(variance + epsilon). Reference: instance_norm_op.cc.
    """

    is_cheap = True

    X = reads()
    Scale = reads(optional=True)
    Bias = reads(optional=True)
    Y = writes()
    SavedMean = writes(optional=True)
    SavedVariance = writes(optional=True)
    epsilon = attr(1e-5)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        require_channels(self.kind, X, "NCHW", Scale=s.get("Scale"), Bias=s.get("Bias"))
        require_positions(self.kind, X, "NCHW")
        saved = X.with_shape((X.shape[0] * X.shape[1],))
        return {"Y": X, "SavedMean": saved, "SavedVariance": saved}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        vector = X.with_shape(X.shape[1:2])
        return {"X": X, "Scale": vector, "Bias": vector}

    def numpy(self, X: Array, Scale: Array | None, Bias: Array | None) -> dict[str, Array]:
        rows = X.reshape(X.shape[0] * X.shape[1], int(np.prod(X.shape[2:])))
        mean, inverse = rows.mean(axis=1), 1 / np.sqrt(rows.var(axis=1) + self.epsilon)
        normal = (rows - mean[:, None]) * inverse[:, None]
        y, shape = normal.reshape(X.shape), (-1, *[1] * (X.ndim - 2))
        y = y if Scale is None else y * Scale.reshape(shape)
        y = y if Bias is None else y + Bias.reshape(shape)
        return {"Y": y, "SavedMean": mean, "SavedVariance": inverse}

    def grad(
        self, X: Array, Scale: Array | None, SavedMean: Array, SavedVariance: Array, d_Y: Array
    ) -> dict[str, Array]:
        rows = X.reshape(len(SavedMean), int(np.prod(X.shape[2:])))
        inverse = SavedVariance[:, None]
        normal = (rows - SavedMean[:, None]) * inverse
        upstream = d_Y.reshape(rows.shape)
        factor = 1 if Scale is None else np.tile(Scale, X.shape[0])[:, None]
        d_x = normal_gradient(upstream * factor, normal, inverse)
        d_scale = (upstream * normal).sum(axis=1).reshape(X.shape[:2]).sum(axis=0)
        d_bias = upstream.sum(axis=1).reshape(X.shape[:2]).sum(axis=0)
        return {"X": d_x.reshape(X.shape), "Scale": d_scale, "Bias": d_bias}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        Scale, Bias = s.get("Scale"), s.get("Bias")
        images = (X.shape[0], X.shape[1], product(X.shape[2:]))
        Channels(images).expect(k, Scale, Bias)
        n, c = k.grid(*images[:2])
        r = k.loop(images[2])
        x = upcast(k, X.reshaped(images)[n, c, r])
        mean, variance = k.moments(x, r)
        inverse = 1.0 / k.sqrt(variance + self.epsilon)
        for out, value in ((s.get("SavedMean"), mean), (s.get("SavedVariance"), inverse)):
            if out is not None:
                k.store(out.reshaped(images[:2]), (n, c), value)
        if (Y := s.get("Y")) is not None:
            y = (x - mean) * inverse
            y = y if Scale is None else y * Scale[c]
            k.store(Y.reshaped(images), (n, c, r), y if Bias is None else y + Bias[c])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        Scale, d_X, d_Scale = s.get("Scale"), s.get("d_X"), s.get("d_Scale")
        d_Bias = s.get("d_Bias")
        channels = Channels((X.shape[0], X.shape[1], product(X.shape[2:])))
        means, inverses = (
            s.SavedMean.reshaped(channels.view[:2]),
            s.SavedVariance.reshaped(channels.view[:2]),
        )

        def values(c: Number, position: Number) -> list[Number]:
            n = k.div(position, k.size(channels.view[2]))
            upstream = channels.read(k, s.d_Y, c, position)
            mean, inverse = (upcast(k, operand[n, c]) for operand in (means, inverses))
            normal = (channels.read(k, X, c, position) - mean) * inverse
            pairs = ((d_Scale, upstream * normal), (d_Bias, upstream))
            return [value for out, value in pairs if out is not None]

        requested = [out for out in (d_Scale, d_Bias) if out is not None]
        if requested:
            sums(k, channels, values, requested)
        if d_X is None:
            return
        n, c = k.grid(*channels.view[:2])
        r = k.loop(channels.view[2])
        scaled, inverse = (
            upcast(k, s.d_Y.reshaped(channels.view)[n, c, r]),
            upcast(k, inverses[n, c]),
        )
        normal = (upcast(k, X.reshaped(channels.view)[n, c, r]) - means[n, c]) * inverse
        scaled = scaled if Scale is None else scaled * Scale[c]
        result = row_gradient(k, r, _count(k, channels.view[2], X), scaled, normal, inverse)
        k.store(d_X.reshaped(channels.view), (n, c, r), result)


def _count(k: KernelBuilder, size: Size, like: DeviceOperand) -> Number:
    """Return a size in the dtype that means are computed in."""
    return k.astype(k.size(size), compute_dtype(like.type.dtype))


def _image_rows(images: Array) -> Array:
    """Return images [N, …] as rows [N, numbers of an image], also where there are none."""
    return images.reshape(len(images), int(np.prod(images.shape[1:])))


def _row_moments(rows: Array) -> tuple[Array, Array]:
    """Return mean and variance of each row; NaN if rows have no elements."""
    if not rows.shape[1]:
        nothing: Array = np.full(len(rows), np.nan, rows.dtype)
        return nothing, nothing
    return rows.mean(axis=1), rows.var(axis=1)


def channel_groups(channels: int, groups: int) -> list[slice]:
    """Return the channels of each group; the last one is smaller if C is not divisible."""
    size = (channels - 1) // groups + 1
    return [slice(i * size, min((i + 1) * size, channels)) for i in range(groups)]


class GroupNorm(OpDef, op="group_norm"):
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, per group of channels.

    X is [N, C, …], or […, C] with data_layout NHWC; Scale and Bias are [C]. Mean and (biased)
    Variance are those of the groups of each image: [N, groups]. The gradient is computed from Y
    instead of X, as in the reference, and so ignores channels whose Scale is 0.
    Reference: group_norm_op.cc, which is correct only for images with two axes.
    """

    is_cheap = True

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Y"}

    X = reads()
    Scale = reads(optional=True)
    Bias = reads(optional=True)
    Y = writes()
    Mean = writes(optional=True, shares_lod=False)
    Variance = writes(optional=True, shares_lod=False)
    epsilon = attr(1e-5)
    groups = attr(1, at_least(1))
    data_layout = attr("NCHW")

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        require_channels(self.kind, X, self.data_layout, Scale=s.get("Scale"), Bias=s.get("Bias"))
        require_positions(self.kind, X, self.data_layout)
        channels = channels_first(self.data_layout, X.shape)[1]
        if self.groups < 1 or is_less(channels, self.groups):
            actual = f"group_norm: groups is {self.groups}"
            raise BadAttribute(f"{actual}, expected 1 to {channels}, the channels of X {X}")
        statistic = X.with_shape((X.shape[0], self.groups))
        return {"Y": X, "Mean": statistic, "Variance": statistic}

    def numpy(self, X: Array, Scale: Array | None, Bias: Array | None) -> dict[str, Array]:
        images = view_channels_first(self.data_layout, X)
        y, shape = np.empty(images.shape, X.dtype), (-1, *[1] * (X.ndim - 2))
        mean, variance = np.empty((2, len(X), self.groups), X.dtype)
        for group, part in enumerate(channel_groups(images.shape[1], self.groups)):
            rows = _image_rows(images[:, part])
            mean[:, group], variance[:, group] = _row_moments(rows)
            deviation = np.sqrt(variance[:, group] + self.epsilon)[:, None]
            normal = (rows - mean[:, group][:, None]) / deviation
            y[:, part] = normal.reshape(y[:, part].shape)
        y = y if Scale is None else y * Scale.reshape(shape)
        y = y if Bias is None else y + Bias.reshape(shape)
        return {"Y": to_layout(self.data_layout, y), "Mean": mean, "Variance": variance}

    def grad(
        self,
        Y: Array,
        Scale: Array | None,
        Bias: Array | None,
        Variance: Array,
        d_Y: Array,
    ) -> dict[str, Array]:
        y, upstream = (view_channels_first(self.data_layout, array) for array in (Y, d_Y))
        shape = (-1, *[1] * (Y.ndim - 2))
        scale = np.ones(y.shape[1], Y.dtype) if Scale is None else Scale
        normal = y if Bias is None else y - Bias.reshape(shape)
        normal = normal / np.where(scale == 0, 1, scale).reshape(shape)
        normal[:, scale == 0] = 0
        scaled, d_x = upstream * scale.reshape(shape), np.empty(y.shape, Y.dtype)
        inverse = 1 / np.sqrt(Variance + self.epsilon)
        for group, part in enumerate(channel_groups(y.shape[1], self.groups)):
            rows = [_image_rows(array[:, part]) for array in (scaled, normal)]
            result = normal_gradient(rows[0], rows[1], inverse[:, group][:, None])
            d_x[:, part] = result.reshape(d_x[:, part].shape)
        axes = (0, *range(2, Y.ndim))
        sums = {"Scale": (upstream * normal).sum(axis=axes), "Bias": upstream.sum(axis=axes)}
        return {"X": to_layout(self.data_layout, d_x), **sums}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        g, outs = (
            Groups(self.data_layout, s.X.shape, self.groups),
            (s.get("Y"), s.get("Mean"), s.get("Variance")),
        )
        group_norm_kernels.normalise(k, g, s.X, (s.get("Scale"), s.get("Bias")), self.epsilon, outs)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        g, result = (
            Groups(self.data_layout, s.Y.shape, self.groups),
            (s.get("d_X"), s.get("d_Scale"), s.get("d_Bias")),
        )
        group_norm_kernels.gradient(
            k, g, (s.Y, s.d_Y, s.Variance), (s.get("Scale"), s.get("Bias")), self.epsilon, result
        )

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Y = s.Y
        groups = Y.with_shape((Y.shape[0], self.groups))
        require_same_shape(self.kind + "_grad", Variance=s.Variance, groups=groups)
        vector = Y.with_shape(channels_first(self.data_layout, Y.shape)[1:2])
        return {"X": Y, "Scale": vector, "Bias": vector}
