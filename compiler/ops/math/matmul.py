"""Matrix products: `mul` flattens its operands to matrices, `matmul` accepts batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.libraries import Factor, MatrixProduct
from compiler.ir.opdef import (
    OpDef,
    Slots,
    Types,
    attr,
    attr_list,
    broadcast,
    reads,
    reduced_axes,
    writes,
)
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import known_to_differ
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.reduce import sum_axes, sum_to_shape
from compiler.ops.type_checks import differ, require_same_dtype, shown

Views: TypeAlias = "dict[str, Shape]"
"""View shape of each slot in the product: a matrix, or a batch of matrices with one leading axis.
"""


class Product(OpDef):
    """Out = alpha * X @ Y, with X and Y viewed as matrices or as batches of matrices."""

    linear_in = (("X",), ("Y",))

    epilogue = "Out"
    epilogue_grad = "X"

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        raise NotImplementedError(self.kind)

    def views(self, X: Shape, Y: Shape) -> Views:
        """Return the view shapes of X, Y and Out for operands of these shapes."""
        raise NotImplementedError(self.kind)

    def options(self) -> tuple[bool, bool, float]:
        """Return whether X is transposed, whether Y is transposed, and alpha."""
        return False, False, 1.0

    def products(self) -> dict[str, tuple[Factor, Factor]]:
        """Return the factors of Out."""
        transpose_x, transpose_y, _ = self.options()
        return {"Out": (("X", transpose_x), ("Y", transpose_y))}

    def gradients(self) -> dict[str, tuple[Factor, Factor]]:
        """Return the factors of X's and Y's gradients; `Out` denotes the gradient of Out."""
        transpose_x, transpose_y, _ = self.options()
        plain_x, plain_y = (
            (("Out", False), ("Y", not transpose_y)),
            (("X", not transpose_x), ("Out", False)),
        )
        return {
            "X": (("Y", transpose_y), ("Out", True)) if transpose_x else plain_x,
            "Y": (("Out", True), ("X", transpose_x)) if transpose_y else plain_y,
        }

    def matrix_products(self, types: Types) -> dict[str, MatrixProduct]:
        """Return Out, if it is a product of two matrices."""
        return self._of_matrices(types, self.products())

    def gradient_products(self, types: Types) -> dict[str, MatrixProduct]:
        """Return the gradients of X and Y, if they are products of two matrices."""
        return self._of_matrices(types, self.gradients())

    def _of_matrices(
        self, types: Types, products: Mapping[str, tuple[Factor, Factor]]
    ) -> dict[str, MatrixProduct]:
        views = self.views(types["X"][0].shape, types["Y"][0].shape)
        if self.options()[2] != 1.0 or any(len(shape) != 2 for shape in views.values()):
            return {}
        return {slot: MatrixProduct(*factors, views) for slot, factors in products.items()}

    def multiplications(self, shapes: Mapping[str, Shape]) -> Size:
        """Return the number of multiplications for Out, from the shapes of X and Y."""
        views = self.views(shapes["X"], shapes["Y"])
        stack = broadcast(self.kind, [views["X"][:-2], views["Y"][:-2]])
        return product((*stack, *views["Out"][-2:])) * self.depth(views)

    def depth(self, views: Views) -> Size:
        """Return the length of the K (reduction) dimension."""
        rows, columns = views["X"][-2:]
        return rows if self.options()[0] else columns

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        self.write(k, self.products()["Out"], {"X": s.X, "Y": s.Y}, "Out", s.Out)

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        operands, pairs = {"X": s.X, "Y": s.Y, "Out": s.d_Out}, self.gradients()
        if (d_X := s.get("d_X")) is not None:
            self.write(k, pairs["X"], operands, "X", d_X)
        if (d_Y := s.get("d_Y")) is not None:
            self.write(k, pairs["Y"], operands, "Y", d_Y)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.launch(k, self.products()["Out"], {"X": s.X, "Y": s.Y}, "Out", s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        operands, pairs = {"X": s.X, "Y": s.Y, "Out": s.d_Out}, self.gradients()
        for slot, result in (("X", s.get("d_X")), ("Y", s.get("d_Y"))):
            if result is not None:
                self.launch(k, pairs[slot], operands, slot, result)

    def launch(
        self,
        k: KernelBuilder,
        factors: tuple[Factor, Factor],
        operands: Mapping[str, DeviceOperand],
        slot: str,
        result: DeviceOperand,
    ) -> None:
        """Launch one product on the device into `result`; the device version of `write`."""
        views = self.views(operands["X"].shape, operands["Y"].shape)
        a, b = (operands[name].reshaped(views[name]) for name, _ in factors)
        transposed = (factors[0][1], factors[1][1])
        stack = broadcast(self.kind, [views[name][:-2] for name, _ in factors])
        axes = reduced_axes(stack, views[slot][:-2])
        scale = self.options()[2]
        if not axes:
            k.matmul(result.reshaped(views[slot]), a, b, transposed=transposed, scale=scale)
            return
        partial = k.scratch((*stack, *views[slot][-2:]), result.type.dtype)
        k.matmul(partial, a, b, transposed=transposed, scale=scale)
        sum_axes(k, partial, axes, result)

    def write(
        self,
        k: SourceBuilder,
        factors: tuple[Factor, Factor],
        operands: Mapping[str, Operand],
        slot: str,
        result: Operand,
    ) -> None:
        """Write one product into `result`, viewed as `slot`, summed over broadcast batch axes."""
        views = self.views(operands["X"].shape, operands["Y"].shape)
        left, right = (
            _factor_text(k, operands[name], views[name], transpose) for name, transpose in factors
        )
        stack = broadcast(self.kind, [views[name][:-2] for name, _ in factors])
        rows, columns = views[slot][-2:]
        axes = reduced_axes(stack, views[slot][:-2])
        if axes:
            partial = k.scratch((*stack, rows, columns), result.type.dtype)
            stack_shape = [1 if axis in axes else size for axis, size in enumerate(stack)]
            target = result.view((*stack_shape, rows, columns))
            k.line(f"np.matmul({left}, {right}, out={partial})")
            k.line(f"np.add.reduce({partial}, axis={axes}, keepdims=True, out={target})")
        else:
            call = "matmul" if stack else "dot"
            k.line(f"np.{call}({left}, {right}, out={result.view(views[slot])})")
        if self.options()[2] != 1.0:
            k.line(f"np.multiply({result}, {self.options()[2]!r}, out={result})")


def transpose_if(array: Array, transpose: bool) -> Array:
    """Swap the last two axes of a matrix or batch if `transpose` is true."""
    return array.swapaxes(-1, -2) if transpose else array


def product_gradients(
    x: Array, y: Array, d_out: Array, transpose_x: bool, transpose_y: bool
) -> tuple[Array, Array]:
    """Return the gradients of both factors, in their shapes, from the product's gradient."""
    a, b = transpose_if(x, transpose_x), transpose_if(y, transpose_y)
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    upstream = d_out.reshape(*stack, a.shape[-2], b.shape[-1])
    by_x = transpose_if(np.matmul(upstream, b.swapaxes(-1, -2)), transpose_x)
    by_y = transpose_if(np.matmul(a.swapaxes(-1, -2), upstream), transpose_y)
    return sum_to_shape(by_x, x.shape), sum_to_shape(by_y, y.shape)


def as_matrix(array: Array, split: int) -> Array:
    """Reshape to a matrix: the axes before `split` are rows, the others columns."""
    if array.ndim == 2 and split == 1:
        return array
    rows, columns = 1, 1
    for axis, size in enumerate(array.shape):
        rows, columns = (rows * size, columns) if axis < split else (rows, columns * size)
    return array.reshape(rows, columns)


def flat_product(X: Array, Y: Array, split: int, cut: int) -> Array:
    """Return the product of X and Y, flattened after `split` and `cut` axes, in Out's shape."""
    out, shape = np.matmul(as_matrix(X, split), as_matrix(Y, cut)), X.shape[:split] + Y.shape[cut:]
    return out if out.shape == shape else out.reshape(shape)


def flat_gradients(X: Array, Y: Array, d_Out: Array, split: int, cut: int) -> dict[str, Array]:
    """Return the gradients of both factors of `flat_product`."""
    x, y = as_matrix(X, split), as_matrix(Y, cut)
    by_x, by_y = product_gradients(x, y, d_Out, False, False)
    return {"X": by_x.reshape(X.shape), "Y": by_y.reshape(Y.shape)}


class FlatProduct(Product):
    """Out = X @ Y; X is flattened to a matrix after its first `x_num_col_dims` axes, Y likewise.

    Out has those axes of X and the remaining axes of Y.
    """

    x_num_col_dims = attr(1)
    y_num_col_dims = attr(1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_same_dtype(self.kind, X=X, Y=Y)
        split, cut = self.x_num_col_dims, self.y_num_col_dims
        if not (0 < split < X.rank and 0 < cut < Y.rank):
            actual = f"{self.kind}: {shown(X=X, Y=Y)}"
            raise ShapeError(f"{actual} have too few axes to split after {split} and {cut}")
        inner, depth = product(X.shape[split:]), product(Y.shape[:cut])
        if differ(inner, depth):
            actual = f"{self.kind}: {shown(X=X, Y=Y)}"
            raise ShapeError(f"{actual} do not fit: {inner} columns, {depth} rows")
        return X.with_shape(X.shape[:split] + Y.shape[cut:])

    def views(self, X: Shape, Y: Shape) -> Views:
        """Return both shapes flattened to matrices."""
        split, cut = self.x_num_col_dims, self.y_num_col_dims
        x = product(X[:split]), product(X[split:])
        y = product(Y[:cut]), product(Y[cut:])
        return {"X": x, "Y": y, "Out": (x[0], y[1])}


class Mul(FlatProduct, op="mul"):
    """Out = X @ Y; X is flattened to a matrix after its first `x_num_col_dims` axes, Y likewise.

    Out has those axes of X and the remaining axes of Y. Reference: mul_op.cc.
    """

    def numpy(self, X: Array, Y: Array) -> Array:
        return flat_product(X, Y, self.x_num_col_dims, self.y_num_col_dims)

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        return flat_gradients(X, Y, d_Out, self.x_num_col_dims, self.y_num_col_dims)


class Matmul(Product, op="matmul"):
    """Out = alpha * X @ Y over the last two axes, with optional transposes of X and Y.

    Leading axes are batch axes, which one operand may lack. A vector is a row on the left and a
    column on the right; its extra axis is removed from Out. A `head_number` above 1 becomes the op
    `matmul_heads` in the graph. The oneDNN fusion attributes must have their defaults. Reference:
    matmul_op.cc.
    """

    transpose_X = attr(False)
    transpose_Y = attr(False)
    alpha = attr(1.0)
    head_number = attr(1, at_least(1))
    fused_reshape_Out = attr_list(int)
    fused_transpose_Out = attr_list(int)

    def options(self) -> tuple[bool, bool, float]:
        """Return the options from the attributes; raise ValueError if `head_number` is above 1."""
        require_one_head(self.head_number)
        return self.transpose_X, self.transpose_Y, self.alpha

    def attribute_variant(self) -> str:
        """Return the multi-head op if there are several heads."""
        return "matmul_heads" if self.head_number > 1 else ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_same_dtype("matmul", X=X, Y=Y)
        if self.fused_reshape_Out or self.fused_transpose_Out:
            raise BadAttribute("matmul: 'fused_…' attributes must be left at their defaults")
        if self.head_number > 1:
            return self.infer_heads(X, Y)
        x, y = _row(X.shape), _column(Y.shape)
        rows, inner = x[-2:][::-1] if self.transpose_X else x[-2:]
        depth, columns = y[-2:][::-1] if self.transpose_Y else y[-2:]
        if differ(inner, depth) or self.stacks_differ(x, y):
            raise self.unfit(X, Y)
        matrix_shape = () if X.rank == 1 and rows == 1 else (rows,)
        matrix_shape += () if Y.rank == 1 and columns == 1 else (columns,)
        return X.with_shape((*(x[:-2] or y[:-2]), *matrix_shape) or (1,))

    def stacks_differ(self, x: Shape, y: Shape) -> bool:
        """Return whether both operands are batches of different sizes."""
        stacks = [product(shape[:-2]) for shape in (x, y) if len(shape) > 2]
        return len(stacks) == 2 and differ(*stacks)

    def unfit(self, X: TensorType, Y: TensorType) -> ShapeError:
        """Return the error for incompatible operand shapes."""
        asked = f"transpose_X={self.transpose_X}, transpose_Y={self.transpose_Y}"
        heads = f", head_number={self.head_number}" if self.head_number > 1 else ""
        return ShapeError(f"matmul: {shown(X=X, Y=Y)} do not fit with {asked}{heads}")

    def infer_heads(self, X: TensorType, Y: TensorType) -> TensorType:
        """Infer the type of Out of a multi-head product; both operands have rank 2 or more."""
        if X.rank < 2 or Y.rank < 2 or self.stacks_differ(X.shape, Y.shape):
            raise self.unfit(X, Y)
        rows, inner = X.shape[-2:][::-1] if self.transpose_X else X.shape[-2:]
        depth, columns = Y.shape[-2:][::-1] if self.transpose_Y else Y.shape[-2:]
        heads, cut = self.head_number, columns if self.cuts_columns(X.shape, Y.shape) else depth
        divided = all(not isinstance(size, int) or size % heads == 0 for size in (inner, cut))
        if not divided or (cut is columns and differ(inner, depth * heads)):
            raise self.unfit(X, Y)
        across = columns if cut is columns else columns * heads
        return X.with_shape((*(X.shape[:-2] or Y.shape[:-2]), rows, across))

    def cuts_columns(self, X: Shape, Y: Shape) -> bool:
        """Return whether heads split the columns of Y instead of its rows: the K sizes differ."""
        return known_to_differ(X[-2 if self.transpose_X else -1], Y[-1 if self.transpose_Y else -2])

    def views(self, X: Shape, Y: Shape) -> Views:
        """Return matrix or batch shapes; a vector becomes a row or a column."""
        return flatten_batches(_row(X), _column(Y), self.transpose_X, self.transpose_Y)

    def numpy(self, X: Array, Y: Array) -> Array:
        require_one_head(self.head_number)
        x, y = as_batch(X, 0), as_batch(Y, -1)
        out = (
            np.matmul(transpose_if(x, self.transpose_X), transpose_if(y, self.transpose_Y))
            * self.alpha
        )
        stack = X.shape[:-2] or Y.shape[:-2]
        rows = () if X.ndim == 1 and out.shape[-2] == 1 else out.shape[-2:-1]
        columns = () if Y.ndim == 1 and out.shape[-1] == 1 else out.shape[-1:]
        return out.reshape((*stack, *rows, *columns) or (1,))

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        require_one_head(self.head_number)
        x, y = as_batch(X, 0), as_batch(Y, -1)
        by_x, by_y = product_gradients(x, y, d_Out * self.alpha, self.transpose_X, self.transpose_Y)
        return {"X": by_x.reshape(X.shape), "Y": by_y.reshape(Y.shape)}


def require_one_head(heads: int) -> None:
    """Raise ValueError if `heads` > 1, which a graph represents as `matmul_heads`."""
    if heads > 1:
        raise ValueError(f"matmul with 'head_number' {heads} must be 'matmul_heads' in a graph")


def as_batch(array: Array, single: int) -> Array:
    """Flatten to a matrix or to one batch axis; a vector gets its new axis at `single`."""
    if array.ndim == 1:
        return np.expand_dims(array, single)
    return array.reshape(-1, *array.shape[-2:]) if array.ndim > 3 else array


def _row(shape: Shape) -> Shape:
    return (1, *shape) if len(shape) == 1 else shape


def _column(shape: Shape) -> Shape:
    return (*shape, 1) if len(shape) == 1 else shape


def flatten_batches(x: Shape, y: Shape, transpose_x: bool, transpose_y: bool) -> Views:
    """Flatten batch axes to one; a batch times a single matrix becomes one tall matrix."""
    x, y = _batched(x), _batched(y)
    if len(y) == 2 and not transpose_x:
        x = (product(x[:-1]), x[-1])
    rows = x[-1] if transpose_x else x[-2]
    columns = y[-2] if transpose_y else y[-1]
    return {"X": x, "Y": y, "Out": (*(x[:-2] or y[:-2]), rows, columns)}


def _batched(shape: Shape) -> Shape:
    return (product(shape[:-2]), *shape[-2:]) if len(shape) > 2 else shape


def _factor_text(k: SourceBuilder, operand: Operand, view: Shape, transpose: bool) -> str:
    """Return a factor as source text, with its transposed view made once at bind time."""
    if not transpose:
        return operand.view(view)
    way = ".T" if len(view) == 2 else ".mT"
    return k.at_bind(operand.view(view) + way, [operand], "transposed")
