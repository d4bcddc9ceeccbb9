"""unpool: the inverse of max pooling, by the indices of its maxima."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import product
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, required, required_list, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image.layouts import (
    flat_image_shape,
    require_images,
)
from compiler.ops.image.max_pool_with_index import take_at
from compiler.ops.math.axes import check_indices
from compiler.ops.shared_kernels import fill, inside
from compiler.ops.type_checks import require_same_shape


class Unpool(OpDef, op="unpool"):
    """Out = 0, except the elements of X at the flat positions in Indices.

    X and Indices are [N, C, h, w]; an image of Out has (h - 1)*stride - 2*padding + ksize rows.
    Reference: unpool_op.cc.
    """

    X = reads()
    Indices = reads(no_grad=True)
    Out = writes(shares_lod=False)
    ksize: Attr[list[int]] = required_list(int)
    strides = attr([1, 1])
    paddings = attr([0, 0])
    unpooling_type: Attr[str] = required(str)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X)
        require_same_shape(self.kind, X=X, Indices=s.Indices)
        if self.unpooling_type != "max":
            actual = f"unpool: unpooling_type is {self.unpooling_type!r}"
            raise BadAttribute(actual, hint="expected 'max'")
        return X.with_shape((*X.shape[:2], *self.image_sizes(X.shape)))

    def image_sizes(self, shape: Shape) -> Shape:
        """The sizes of the images of Out, from the shape of X."""
        specs = zip(shape[2:], self.ksize, self.strides, self.paddings, strict=True)
        return tuple((size - 1) * step - 2 * edge + taps for size, taps, step, edge in specs)

    def numpy(self, X: Array, Indices: Array) -> Array:
        specs = zip(X.shape[2:], self.ksize, self.strides, self.paddings, strict=True)
        result = [(size - 1) * step - 2 * edge + taps for size, taps, step, edge in specs]
        expect_positions(Indices, result[0] * result[1])
        return put_at(X, Indices, (*X.shape[:2], *result))

    def grad(self, X: Array, Indices: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        expect_positions(Indices, d_Out.shape[2] * d_Out.shape[3])
        return {"X": take_at(d_Out, Indices)}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Indices = s.Indices
        size = product(self.image_sizes(s.X.shape))
        k.line(f"{k.function(expect_positions)}({Indices}, {size})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        fill(k, Out, 0)
        table, whole = flat_image_shape(s.X.shape), flat_image_shape(Out.shape)
        n, c, i = k.grid(*table)
        position = s.Indices.reshaped(table)[n, c, i]
        valid = inside(k, position, whole[2])
        k.store(Out.reshaped(whole), (n, c, position), s.X.reshaped(table)[n, c, i], valid)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        table, whole = flat_image_shape(s.d_X.shape), flat_image_shape(s.d_Out.shape)
        n, c, i = k.grid(*table)
        position = s.Indices.reshaped(table)[n, c, i]
        upstream = s.d_Out.reshaped(whole).at(
            n, c, position, where=inside(k, position, whole[2]), other=0
        )
        k.store(s.d_X.reshaped(table), (n, c, i), upstream)


def expect_positions(Indices: Array, size: int) -> None:
    """Raise ValueError unless the flat positions of `unpool` are in images of `size` elements."""
    check_indices(Indices.astype(np.int64), size, "unpool")


def put_at(values: Array, positions: Array, shape: Sequence[int]) -> Array:
    """Return images of a shape with values at flat positions; the last of duplicates remains."""
    images = np.zeros(tuple(shape), values.dtype)
    flat, indices = (
        array.reshape(*array.shape[:2], int(np.prod(array.shape[2:])))
        for array in (images, positions)
    )
    np.put_along_axis(flat, indices.astype(np.int64), values.reshape(indices.shape), axis=2)
    return images
