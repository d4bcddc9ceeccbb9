"""Piecewise linear activations, and their variants with an exponential below 0.

At a kink the gradient is the one that the reference's kernel selects (activation_op.h, prelu_op.h,
selu_op.h). Branches are selected by multiplying with 0/1 masks: in NumPy that is much faster than
`where`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import (
    OpDef,
    Pointwise,
    Slots,
    Types,
    Value,
    Xp,
    attr,
    reads,
    required,
    writes,
)
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image.layouts import permuted_layout
from compiler.ops.math.activation import Unary
from compiler.ops.type_checks import differ, shown


class Brelu(Unary, op="brelu"):
    """Out = X clamped to [`t_min`, `t_max`]."""

    t_min = attr(0.0)
    t_max = attr(24.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.minimum(xp.maximum(X, self.t_min), self.t_max)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.logical_and(xp.greater(X, self.t_min), xp.less(X, self.t_max))}


class LeakyRelu(Unary, op="leaky_relu"):
    """Out = max(X, alpha * X).

    The gradient is that of this maximum; for alpha > 1 the reference's gradient differs.
    """

    is_piecewise_linear = True

    alpha = attr(0.02)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.maximum(X, X * self.alpha)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        above, below = max(self.alpha, 1.0), min(self.alpha, 1.0)
        return {"X": d_Out * below + d_Out * (Out > 0.0) * (above - below)}


class ThresholdedRelu(Unary, op="thresholded_relu"):
    """Out = X where it is above `threshold`, else 0."""

    threshold = attr(1.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        return X * xp.greater(X, self.threshold)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.greater(X, self.threshold)}


class HardShrink(Unary, op="hard_shrink"):
    """Out = X where |X| is above `threshold`, else 0."""

    threshold = attr(0.5)

    def compute(self, xp: Xp, X: Value) -> Value:
        return X * (xp.abs(X) > self.threshold)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * (xp.abs(X) > self.threshold)}


class Softshrink(Unary, op="softshrink"):
    """Out = X shrunk towards 0 by the attribute `lambda`; 0 if |X| <= lambda."""

    vars()["lambda"] = attr(0.5)  # a Python keyword

    def compute(self, xp: Xp, X: Value) -> Value:
        by = getattr(self, "lambda")
        return X - xp.minimum(xp.maximum(X, -by), by)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * (xp.abs(X) > getattr(self, "lambda"))}


class HardSigmoid(Unary, op="hard_sigmoid"):
    """Out = slope * X + offset, clamped to [0, 1]."""

    slope = attr(0.2)
    offset = attr(0.5)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.minimum(xp.maximum(X * self.slope + self.offset, 0.0), 1.0)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * self.slope * xp.logical_and(Out > 0.0, Out < 1.0)}


class HardSwish(Unary, op="hard_swish"):
    """Out = X * clamp(X + offset, 0, threshold) / scale.

    Above the threshold the derivative is threshold / scale; the reference assumes 1, the value for
    the defaults.
    """

    threshold = attr(6.0)
    scale = attr(6.0)
    offset = attr(3.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        clipped = xp.minimum(xp.maximum(X + self.offset, 0.0), self.threshold)
        return X * clipped * (1.0 / self.scale)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        shifted = X + self.offset
        clipped = xp.minimum(xp.maximum(shifted, 0.0), self.threshold)
        bent = xp.logical_and(shifted > 0.0, shifted < self.threshold)
        return {"X": d_Out * (clipped + X * bent) * (1.0 / self.scale)}


class Elu(Unary, op="elu"):
    """Out = X if X > 0, else alpha * (e ** X - 1)."""

    alpha = attr(1.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.maximum(X, 0.0) + xp.expm1(xp.minimum(X, 0.0)) * self.alpha

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        slope = d_Out * xp.exp(xp.minimum(X, 0.0)) * self.alpha
        return {"X": slope + d_Out * (X > 0.0) * (1.0 - self.alpha)}


class Selu(Unary, op="selu"):
    """Out = scale * (X if X > 0, else alpha * (e ** X - 1))."""

    scale = attr(1.0507009873554804934193349852946)
    alpha = attr(1.6732632423543772848170429916717)

    def compute(self, xp: Xp, X: Value) -> Value:
        below = xp.expm1(xp.minimum(X, 0.0)) * (self.alpha * self.scale)
        return xp.maximum(X, 0.0) * self.scale + below

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        steepest = self.alpha * self.scale
        slope = d_Out * (xp.minimum(Out, 0.0) + steepest)
        return {"X": slope + d_Out * (Out > 0.0) * (self.scale - steepest)}


class Prelu(Pointwise, op="prelu"):
    """Out = X if X > 0, else Alpha * X.

    Alpha is a scalar (`mode` "all"), one value per channel ("channel"; channels are axis 1, or the
    last for `data_format` NHWC), or one per element of a row ("element").
    """

    X = reads()
    Alpha = reads()
    Out = writes()
    mode = attr("all")
    data_format = attr("NCHW")

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """Return the view shape of Alpha; raise ShapeError if its size does not match."""
        wanted = self.alpha_view(types["X"].shape)
        if differ(product(wanted), types["Alpha"].numel):
            text = shown(X=types["X"], Alpha=types["Alpha"])
            raise ShapeError(f"prelu: {text} do not fit in mode {self.mode!r}")
        return {"Alpha": wanted}

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        permuted = permuted_layout("data_format", self.data_format, order, "X", "Out")
        return None if self.mode == "element" else permuted

    def alpha_view(self, X: Shape) -> Shape:
        """Return the shape Alpha is viewed in, of the rank of X."""
        if self.mode not in ("all", "channel", "element"):
            raise BadAttribute(f"prelu: mode is {self.mode!r}, expected all, channel or element")
        if self.mode == "element":
            return (1, *X[1:])
        view: list[Size] = [1] * len(X)
        if self.mode == "channel" and len(X) > 1:
            axis = 1 if self.data_format == "NCHW" else len(X) - 1
            view[axis] = X[axis]
        return tuple(view)

    def compute(self, xp: Xp, X: Value, Alpha: Value) -> Value:
        return xp.maximum(X, 0.0) + xp.minimum(X, 0.0) * Alpha

    def grad(self, xp: Xp, X: Value, Alpha: Value, d_Out: Value) -> Value:
        above = d_Out * (X > 0.0)
        sloped = d_Out - above
        return {"X": above + sloped * Alpha, "Alpha": sloped * X}


class Maxout(OpDef, op="maxout"):
    """Out = the maximum over each group of `groups` consecutive channels, dividing their number.

    Channels are along `axis`; at ties the first maximum receives the gradient. Reference:
    maxouting.cc.
    """

    lod_source = ""

    X = reads()
    Out = writes()
    groups = required(int)
    axis = attr(1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if not -X.rank <= self.axis < X.rank:
            raise ShapeError(f"maxout: X is {X}, which has no axis {self.axis}")
        axis = self.axis % X.rank
        channels = X.shape[axis]
        if self.groups < 2 or (isinstance(channels, int) and channels % self.groups):
            text = f"groups={self.groups}, expected 2 or more that divide the {channels} channels"
            raise ShapeError(f"maxout: X is {X} and {text}")
        return X.with_shape((*X.shape[:axis], channels // self.groups, *X.shape[axis + 1 :]))

    def numpy(self, X: Array) -> Array:
        axis = self.axis % X.ndim
        return group_channels(X, self.groups, axis).max(axis=axis + 1)

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axis = self.axis % X.ndim
        grouped = group_channels(X, self.groups, axis)
        first = np.expand_dims(grouped.argmax(axis=axis + 1), axis + 1)
        d_X = np.zeros_like(grouped)
        np.put_along_axis(d_X, first, np.expand_dims(d_Out, axis + 1), axis=axis + 1)
        return {"X": d_X.reshape(X.shape)}

    def grouped_shape(self, X: Shape) -> tuple[Size, Size, int, Size]:
        """Return X's shape as (axes before the channels, groups, group size, axes after)."""
        axis = self.axis % len(X)
        groups = X[axis] // self.groups
        return product(X[:axis]), groups, self.groups, product(X[axis + 1 :])

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        outer, groups, group, inner = self.grouped_shape(s.X.shape)
        i, c, j = k.grid(outer, groups, inner)
        r = k.loop(group)
        maximum = k.max(s.X.reshaped((outer, groups, group, inner))[i, c, r, j], r)
        k.store(s.Out.reshaped((outer, groups, inner)), (i, c, j), maximum)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        outer, groups, group, inner = self.grouped_shape(s.X.shape)
        i, c, j = k.grid(outer, groups, inner)
        r = k.loop(group)
        first = k.argmax(s.X.reshaped((outer, groups, group, inner))[i, c, r, j], r)
        share = k.where(k.equal(r, first), s.d_Out.reshaped((outer, groups, inner))[i, c, j], 0)
        k.store(s.d_X.reshaped((outer, groups, group, inner)), (i, c, r, j), share)


def group_channels(X: Array, groups: int, axis: int) -> Array:
    """Split X's channel axis in two, the second of size `groups`."""
    return X.reshape(*X.shape[:axis], X.shape[axis] // groups, groups, *X.shape[axis + 1 :])
