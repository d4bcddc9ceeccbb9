"""Layer normalisation: `layer_norm`, forward and backward."""

from __future__ import annotations

from typing import cast

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.matmul import as_matrix
from compiler.ops.norm.channel_kernels import Channels, compute_dtype, row_gradient, sums, upcast
from compiler.ops.type_checks import differ, shown


class LayerNorm(OpDef, op="layer_norm"):
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, for each row of X.

    A row spans the axes from `begin_norm_axis` on; Scale and Bias have one entry per element of a
    row, Mean and (biased) Variance one per row. Reference: layer_norm_op.cc.
    """

    is_cheap = True
    device_epilogue = "Y"
    epilogue_grad = "X"

    X = reads()
    Scale = reads(optional=True)
    Bias = reads(optional=True)
    Y = writes()
    Mean = writes(optional=True, shares_lod=False)
    Variance = writes(optional=True, shares_lod=False)
    epsilon = attr(1e-5)
    begin_norm_axis = attr(1)
    is_test = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        if not 0 < self.begin_norm_axis < X.rank:
            actual = f"layer_norm: begin_norm_axis is {self.begin_norm_axis}"
            raise BadAttribute(f"{actual}, expected an axis of X {X} after the first")
        rows, columns = self.table(X.shape)
        if is_less(columns, 1):
            raise ShapeError(f"layer_norm: X is {X}, expected one element or more in a row")
        for slot, vector in (("Scale", s.get("Scale")), ("Bias", s.get("Bias"))):
            if vector is not None and (vector.rank != 1 or differ(vector.shape[0], columns)):
                actual = shown(X=X, **{slot: vector})
                raise ShapeError(f"layer_norm: {actual} do not fit: a row has {columns} elements")
        return {"Y": X, "Mean": X.with_shape((rows,)), "Variance": X.with_shape((rows,))}

    def table(self, X: Shape) -> tuple[Size, Size]:
        """Return the number of rows of X, and of elements per row."""
        return product(X[: self.begin_norm_axis]), product(X[self.begin_norm_axis :])

    def numpy(self, X: Array, Scale: Array | None, Bias: Array | None) -> dict[str, Array]:
        rows = as_matrix(X, self.begin_norm_axis)
        mean, variance = rows.mean(axis=1), rows.var(axis=1)
        y = (rows - mean[:, None]) / np.sqrt(variance + self.epsilon)[:, None]
        y = y if Scale is None else y * Scale
        y = y if Bias is None else y + Bias
        return {"Y": y.reshape(X.shape), "Mean": mean, "Variance": variance}

    def grad(
        self,
        X: Array,
        Scale: Array | None,
        Bias: Shape,
        Mean: Array,
        Variance: Array,
        d_Y: Array,
    ) -> dict[str, Array]:
        x, upstream = as_matrix(X, self.begin_norm_axis), as_matrix(d_Y, self.begin_norm_axis)
        inverse = 1 / np.sqrt(Variance + self.epsilon)[:, None]
        normal = (x - Mean[:, None]) * inverse
        scaled = upstream if Scale is None else upstream * Scale
        along = (scaled * normal).mean(axis=1, keepdims=True)
        d_x = (scaled - scaled.mean(axis=1, keepdims=True) - normal * along) * inverse
        d_scale, d_bias = (upstream * normal).sum(axis=0), upstream.sum(axis=0)
        return {"X": d_x.reshape(X.shape), "Scale": d_scale, "Bias": d_bias}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        Scale, Bias, Y = s.get("Scale"), s.get("Bias"), s.get("Y")
        table = self.table(X.shape)
        rows, columns = table
        dtype = X.type.dtype
        mean, variance = (
            output or k.scratch((rows,), dtype) for output in (s.get("Mean"), s.get("Variance"))
        )
        x, y = X.view(table), (Y or k.scratch(table, dtype)).view(table)
        deviation = k.scratch((rows,), dtype)
        k.line(f"np.matmul({x}, {_share(k, columns, X)}, out={mean})")
        k.line(f"np.subtract({x}, {mean.view((rows, 1))}, out={y})")
        k.line(f"np.vecdot({y}, {y}, out={variance})")
        k.line(f"np.divide({variance}, {columns}, out={variance})")
        if Y is None:
            return
        k.line(f"np.add({variance}, {self.epsilon}, out={deviation})")
        k.line(f"np.sqrt({deviation}, out={deviation})")
        k.line(f"np.divide({y}, {deviation.view((rows, 1))}, out={y})")
        if Scale is not None:
            k.line(f"np.multiply({y}, {Scale}, out={y})")
        if Bias is not None:
            k.line(f"np.add({y}, {Bias}, out={y})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        """Emit sums over rows and columns as products with a vector; both use d_Y * normal."""
        X, Mean, Variance = s.X, s.Mean, s.Variance
        Scale, d_X, d_Scale = s.get("Scale"), s.get("d_X"), s.get("d_Scale")
        d_Bias = s.get("d_Bias")
        table = self.table(X.shape)
        rows, columns = table
        dtype, upstream = X.type.dtype, s.d_Y.view(table)
        ones = k.at_bind(f"np.ones({rows}, np.{dtype.numpy.name})", [], "ones")
        if d_Bias is not None:
            k.line(f"np.matmul({ones}, {upstream}, out={d_Bias})")
        if d_X is None and d_Scale is None:
            return
        inverse, normal, part = (k.scratch(shape, dtype) for shape in ((rows,), table, table))
        k.line(f"np.add({Variance}, {self.epsilon}, out={inverse})")
        k.line(f"np.sqrt({inverse}, out={inverse})")
        k.line(f"np.reciprocal({inverse}, out={inverse})")
        k.line(f"np.subtract({X.view(table)}, {Mean.view((rows, 1))}, out={normal})")
        k.line(f"np.multiply({normal}, {inverse.view((rows, 1))}, out={normal})")
        k.line(f"np.multiply({upstream}, {normal}, out={part})")
        if d_Scale is not None:
            k.line(f"np.matmul({ones}, {part}, out={d_Scale})")
        if d_X is not None:
            share = self.share(k, columns, X, Scale)
            self.lower_image(k, [s.d_Y, d_X], Scale, share, [inverse, normal, part])

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        """Emit one program per row, which is read once if it fits into a tile."""
        Scale, Bias = s.get("Scale"), s.get("Bias")
        rows, columns = self.table(s.X.shape)
        Channels((rows, columns)).expect(k, Scale, Bias)
        (i,) = k.grid(rows)
        r = k.loop(columns)
        x = upcast(k, s.X.reshaped((rows, columns))[i, r])
        mean, variance = k.moments(x, r)
        for out, value in ((s.get("Mean"), mean), (s.get("Variance"), variance)):
            if out is not None:
                k.store(out, (i,), value)
        if (Y := s.get("Y")) is not None:
            y = (x - mean) / k.sqrt(variance + self.epsilon)
            y = y if Scale is None else y * Scale[r]
            y = y if Bias is None else y + Bias[r]
            k.store(Y.reshaped((rows, columns)), (i, r), y)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        """Emit sums over columns for X, and sums over rows for Scale and Bias."""
        Scale, d_X = s.get("Scale"), s.get("d_X")
        d_Scale, d_Bias = s.get("d_Scale"), s.get("d_Bias")
        table = self.table(s.X.shape)
        x, upstream = s.X.reshaped(table), s.d_Y.reshaped(table)

        def normal(i: Number, j: Number) -> Number:
            centred = upcast(k, x[i, j]) - upcast(k, s.Mean[i])
            return centred / k.sqrt(upcast(k, s.Variance[i]) + self.epsilon)

        def values(i: Number, j: Number) -> list[Number]:
            share = upcast(k, upstream[i, j])
            by_scale = [share * normal(i, j)] if d_Scale is not None else []
            return [*by_scale, *([share] if d_Bias is not None else [])]

        def row(i: Number, j: Number) -> None:
            inverse = 1.0 / k.sqrt(upcast(k, s.Variance[i]) + self.epsilon)
            share = upcast(k, upstream[i, j])
            scaled = share if Scale is None else share * Scale[j]
            count = k.astype(k.size(table[1]), compute_dtype(s.X.type.dtype))
            result = row_gradient(k, j, count, scaled, normal(i, j), inverse)
            k.store(cast(DeviceOperand, d_X).reshaped(table), (i, j), result)

        outs = [out for out in (d_Scale, d_Bias) if out is not None]
        if d_X is not None:
            k.rows_and_sums(table, row, values, outs)
        elif outs:
            sums(k, Channels(table), lambda j, i: values(i, j), outs)

    def share(self, k: SourceBuilder, columns: Size, X: Operand, Scale: Operand | None) -> str:
        """Return the vector whose product with a row is the mean of the row times Scale."""
        even = _share(k, columns, X)
        if Scale is None:
            return even
        scaled = k.scratch((columns,), X.type.dtype)
        k.line(f"np.multiply({Scale}, {even}, out={scaled})")
        return str(scaled)

    def lower_image(
        self,
        k: SourceBuilder,
        gradients: list[Operand],
        Scale: Operand | None,
        share: str,
        work: list[Operand],
    ) -> None:
        """d_X = (scaled - mean(scaled) - normal * mean(scaled * normal)) * inverse."""
        (d_Y, d_X), (inverse, normal, part) = gradients, work
        rows, columns = normal.shape
        means = k.scratch((rows,), normal.type.dtype)
        upstream, result, column = d_Y.view((rows, columns)), d_X.view((rows, columns)), (rows, 1)
        k.line(f"np.matmul({part}, {share}, out={means})")
        k.line(f"np.multiply({normal}, {means.view(column)}, out={normal})")
        k.line(f"np.matmul({upstream}, {share}, out={means})")
        if Scale is not None:
            k.line(f"np.multiply({upstream}, {Scale}, out={part})")
            upstream = str(part)
        k.line(f"np.subtract({upstream}, {means.view(column)}, out={result})")
        k.line(f"np.subtract({result}, {normal}, out={result})")
        k.line(f"np.multiply({result}, {inverse.view(column)}, out={result})")


def _share(k: SourceBuilder, columns: Size, X: Operand) -> str:
    """Return the vector whose product with a row is the row's mean."""
    dtype = X.type.dtype.numpy.name
    return k.at_bind(f"np.full({columns}, 1 / ({columns}), np.{dtype})", [], "share")
