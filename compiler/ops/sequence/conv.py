"""Sequence convolution: each output row is computed from a window of rows of its own sequence.

Windows are gathered, and one matrix product computes all rows. The gradient of the rows is the
convolution of the output gradient with the mirrored filter; the same gathered windows yield the
filter's gradient.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, required, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence import conv_kernels
from compiler.ops.sequence.offsets import require_one_level, row_places, window_values
from compiler.ops.sequence.windows import lower_index, lower_windows, padding_index
from compiler.ops.shared_kernels import fill
from compiler.ops.type_checks import differ, require_same_dtype, shown


def trained_gradients(
    X: Array, places: tuple[Array, Array], start: int, padding: Array, Filter: Array, d_Out: Array
) -> tuple[Array, Array, Array]:
    """The gradients of X, of the trainable padding below it, and of the filter."""
    index = padding_index(places, start, len(Filter) // X.shape[1])
    below = np.concatenate([X, padding])
    d_below = np.zeros_like(below)
    np.add.at(d_below, index, (d_Out @ Filter.T).reshape(*index.shape, X.shape[1]))
    seen = below.take(index, axis=0).reshape(len(X), len(Filter))
    return d_below[: len(X)], d_below[len(X) :], seen.T @ d_Out


class SequenceConv(OpDef, op="sequence_conv"):
    """Out[t] = concat(X[t + contextStart], …, contextLength rows) @ Filter.

    X is [rows, size], Filter [contextLength · size, filters], Out [rows, filters]. Rows outside of
    the sequence are zeros, or with `paddingTrainable` those of PaddingData [before + after, size].
    Reference: sequence_conv_op.h.
    """

    X = reads()
    X_lod = reads_lod("X")
    PaddingData = reads(optional=True)
    Filter = reads()
    Out = writes()
    contextLength = required(int)
    contextStart = attr(0)
    contextStride = attr(1)
    paddingTrainable = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Filter = s.X, s.Filter
        require_one_level("sequence_conv", "X", s.all("X_lod"))
        require_same_dtype("sequence_conv", X=X, Filter=Filter)
        if self.contextStride != 1 or self.contextLength < 1:
            raise BadAttribute(
                f"sequence_conv: 'contextStride' is {self.contextStride} and 'contextLength' "
                f"{self.contextLength}, expected 1, and 1 or more"
            )
        if X.rank != 2 or Filter.rank != 2 or self.misfits(X, Filter):
            raise ShapeError(
                f"sequence_conv: {shown(X=X, Filter=Filter)} do not go together, expected X "
                f"[rows, size] and Filter [{self.contextLength} · size, filters]"
            )
        if self.paddingTrainable:
            self.require_padding(X, s.get("PaddingData"))
        return X.with_shape((X.shape[0], Filter.shape[1]))

    def misfits(self, X: TensorType, Filter: TensorType) -> bool:
        """True if the filter's rows differ from the number of elements in a window."""
        return differ(X.shape[1] * self.contextLength, Filter.shape[0])

    def require_padding(self, X: TensorType, PaddingData: TensorType | None) -> None:
        """Raise ShapeError unless PaddingData has a row per window position outside a sequence."""
        shape = self.padding_shape(X.shape)
        if (
            PaddingData is None
            or PaddingData.rank != 2
            or any(map(differ, PaddingData.shape, shape))
        ):
            raise ShapeError(
                f"sequence_conv: PaddingData is {PaddingData}, expected {X.with_shape(shape)}"
            )

    def padding_shape(self, X: Shape) -> Shape:
        """The shape of PaddingData: [before + after, size]."""
        before, after = max(0, -self.contextStart), self.contextStart + self.contextLength - 1
        return before + max(0, after), X[1]

    def trained_padding(
        self, k: KernelBuilder, X: DeviceOperand, PaddingData: DeviceOperand | None
    ) -> DeviceOperand | None:
        """PaddingData if it is used, whose shape is compared when it is known."""
        if PaddingData is None or not self.paddingTrainable:
            return None
        for size, expected in zip(PaddingData.shape, self.padding_shape(X.shape), strict=True):
            k.expect_size("sequence_conv: PaddingData", size, expected)
        return PaddingData

    def numpy(
        self, X: Array, X_lod: list[Array], PaddingData: Array | None, Filter: Array
    ) -> Array:
        start, length = self.contextStart, self.contextLength
        if PaddingData is None or not self.paddingTrainable:
            seen = window_values(X, X_lod[0], start, length, 0.0)
        else:
            index = padding_index(row_places(X_lod[0]), start, length)
            seen = np.concatenate([X, PaddingData]).take(index, axis=0)
        return seen.reshape(len(X), len(Filter)) @ Filter

    def grad(
        self, X: Array, X_lod: list[Array], PaddingData: Array | None, Filter: Array, d_Out: Array
    ) -> dict[str, Array]:
        start, length, size = self.contextStart, self.contextLength, X.shape[1]
        if PaddingData is not None and self.paddingTrainable:
            places = row_places(X_lod[0])
            gradients = trained_gradients(X, places, start, PaddingData, Filter, d_Out)
            return dict(zip(("X", "PaddingData", "Filter"), gradients, strict=True))
        above = window_values(d_Out, X_lod[0], 1 - start - length, length, 0.0)
        above = above.reshape(len(X), length * Filter.shape[1])
        mirrored = Filter.reshape(length, size, -1)[::-1].transpose(0, 2, 1)
        d_mirrored = (X.T @ above).reshape(size, length, -1).transpose(1, 0, 2)
        gradients = {
            "X": above @ mirrored.reshape(-1, size),
            "Filter": d_mirrored[::-1].reshape(Filter.shape),
        }
        if PaddingData is not None:
            gradients["PaddingData"] = np.zeros_like(PaddingData)
        return gradients

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        padding = self.trained_padding(k, X, s.get("PaddingData"))
        window = conv_kernels.Window(
            k, s.host.all("X_lod")[0], X.shape, self.contextStart, self.contextLength
        )
        conv_kernels.convolve(k, window, X, padding, s.Filter, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, d_Out = s.X, s.d_Out
        d_PaddingData = s.get("d_PaddingData")
        padding = self.trained_padding(k, X, s.get("PaddingData"))
        window = conv_kernels.Window(
            k, s.host.all("X_lod")[0], X.shape, self.contextStart, self.contextLength
        )
        if (d_X := s.get("d_X")) is not None:
            conv_kernels.rows_gradient(k, window, s.Filter, d_Out, d_X)
        if (d_Filter := s.get("d_Filter")) is not None:
            conv_kernels.filter_gradient(k, window, X, padding, d_Out, d_Filter)
        if d_PaddingData is not None:
            fill(k, d_PaddingData, 0.0)
        if d_PaddingData is not None and self.paddingTrainable:
            conv_kernels.padding_gradient(k, window, s.Filter, d_Out, d_PaddingData)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Filter, Out = s.X, s.Filter, s.Out
        start, length, padded = self.contextStart, self.contextLength, self.paddingTrainable
        index = lower_index(k, s.all("X_lod")[0], start, length, padded)
        seen = lower_windows(k, X, index, length, s.get("PaddingData") if padded else None)
        k.line(f"np.matmul({seen.view((X.shape[0], Filter.shape[0]))}, {Filter}, out={Out})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Filter, d_Out = s.X, s.Filter, s.d_Out
        X_lod, PaddingData, d_X = s.all("X_lod"), s.get("PaddingData"), s.get("d_X")
        d_PaddingData, d_Filter = s.get("d_PaddingData"), s.get("d_Filter")
        start, length = self.contextStart, self.contextLength
        if PaddingData is not None and self.paddingTrainable:
            places = f"{k.function(row_places)}({X_lod[0]})"
            arguments = f"{X}, {places}, {start}, {PaddingData}, {Filter}, {d_Out}"
            k.line(f"result = {k.function(trained_gradients)}({arguments})")
            for place, wanted in enumerate((d_X, d_PaddingData, d_Filter)):
                if wanted is not None:
                    k.line(f"np.copyto({wanted}, result[{place}])")
            return
        index = lower_index(k, X_lod[0], 1 - start - length, length, padded=False)
        above = lower_windows(k, d_Out, index, length, None)
        if d_X is not None:
            self.lower_rows(k, above, Filter, d_X)
        if d_Filter is not None:
            self.lower_filter(k, above, X, d_Filter)
        if d_PaddingData is not None:
            k.line(f"{d_PaddingData}.fill(0.0)")

    def lower_rows(self, k: SourceBuilder, above: Operand, Filter: Operand, d_X: Operand) -> None:
        """Lower d_X: the windows of the output gradient times the mirrored filter."""
        rows, length, filters = above.shape
        size = d_X.shape[1]
        mirrored = k.scratch((length, filters, size), d_X.type.dtype)
        reversed_taps = f"{Filter.view((length, size, filters))}[::-1].transpose(0, 2, 1)"
        k.line(f"np.copyto({mirrored}, {k.at_bind(reversed_taps, [Filter], 'turned')})")
        factors = above.view((rows, length * filters)), mirrored.view((length * filters, size))
        k.line(f"np.matmul({factors[0]}, {factors[1]}, out={d_X})")

    def lower_filter(self, k: SourceBuilder, above: Operand, X: Operand, d_Filter: Operand) -> None:
        """Lower d_Filter: the rows times the mirrored windows of the output gradient."""
        rows, length, filters = above.shape
        size = X.shape[1]
        product = k.scratch((size, length, filters), X.type.dtype)
        factors = k.at_bind(f"{X}.T", [X], "columns"), above.view((rows, length * filters))
        k.line(
            f"np.matmul({factors[0]}, {factors[1]}, out={product.view((size, length * filters))})"
        )
        reversed_taps = f"{d_Filter.view((length, size, filters))}[::-1].transpose(1, 0, 2)"
        k.line(f"np.copyto({k.at_bind(reversed_taps, [d_Filter], 'turned')}, {product})")
