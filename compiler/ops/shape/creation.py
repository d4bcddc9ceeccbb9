"""Tensor creation: constants, and tensors shaped like another one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import (
    OpDef,
    Pointwise,
    Slots,
    Value,
    Xp,
    attr,
    attr_list,
    reads,
    reads_lod,
    writes,
)
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import (
    Sizes,
    element_type,
    int_values,
    positive_or_unknown,
    static_count,
    unknown_shape,
)
from compiler.ops.shared_kernels import fill, number
from compiler.ops.type_checks import literal_shape, require_scalar
from compiler.support.free_memory import expect_memory


def parse_number(text: str, value: float, dtype: Any) -> float:
    """Return the number parsed from `text`, else `value`, converted to what the dtype can hold."""
    stripped = text.strip()
    exact = stripped.lstrip("+-").isdigit()
    value = int(stripped) if exact else float(stripped) if stripped else value
    if dtype.kind == "b":
        return int(bool(value))
    return value if dtype.kind in "fV" else int(value)


def check_number(op: str, text: str, dtype: DType) -> None:
    """Raise BadAttribute unless `text` is empty or a number of the dtype."""
    element = dtype.numpy
    try:
        parse_number(text, 0.0, element)
    except (ValueError, OverflowError):
        raise BadAttribute(
            f"{op}: 'str_value' {text!r} is not a number of type {dtype.text}"
        ) from None


def number_source(number: float) -> str:
    """Return a number as Python source text, including inf and nan."""
    return repr(number) if math.isfinite(number) else f"float('{number}')"


SHAPE_TENSORS = {"ShapeTensor": "shape", "ShapeTensorList": "shape"}
"""The slots of ops that create tensors, for `overridden_sizes`."""


# ---- constants ----------------------------------------------------------------------------------


class FillConstant(Whole, op="fill_constant"):
    """Out = `value` everywhere, in the shape `shape`.

    `str_value` is the same number as text, for values that a float32 attribute cannot hold; it
    takes precedence if present. ValueTensor overrides the value; ShapeTensor, or one tensor per
    size, overrides the shape. Reference: fill_constant_op.h.
    """

    sizing = frozenset({"shape"})
    overridden_sizes: ClassVar[Mapping[str, str]] = SHAPE_TENSORS

    ValueTensor = reads(optional=True, no_grad=True)
    ShapeTensor = reads(optional=True, no_grad=True)
    ShapeTensorList = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    shape = attr_list(int, WIDE)
    dtype = attr(DType.FP32.code)
    value = attr(0.0, WIDE)
    str_value = attr("")
    force_cpu = attr(False)
    place_type = attr(-1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        ValueTensor = s.get("ValueTensor")
        if ValueTensor is not None and ValueTensor.dtype is not DType.of(self.dtype):
            raise ShapeError(
                f"fill_constant: ValueTensor is {ValueTensor}, expected the type of 'dtype'"
            )
        if ValueTensor is not None:
            require_scalar(self.kind, ValueTensor=ValueTensor)
        check_number(self.kind, self.str_value, DType.of(self.dtype))
        shape = shape_from_inputs(
            self.kind, self.shape, s.get("ShapeTensor"), s.all("ShapeTensorList")
        )
        return TensorType(DType.of(self.dtype), shape)

    def numpy(
        self,
        ValueTensor: Array | None,
        ShapeTensor: Array | None,
        ShapeTensorList: list[Array] | None,
    ) -> Array:
        sizes = int_values(ShapeTensor, ShapeTensorList, self.shape)
        dtype = element_type(self.dtype)
        expect_memory(sizes, dtype.itemsize)
        if ValueTensor is not None:
            return np.full(sizes, ValueTensor.reshape(-1)[0], dtype)
        return np.full(sizes, parse_number(self.str_value, self.value, dtype), dtype)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        ValueTensor = s.get("ValueTensor")
        number = parse_number(self.str_value, self.value, element_type(self.dtype))
        if ValueTensor is None:
            k.line(f"{Out}.fill({number_source(number)})")
        else:
            k.line(f"{Out}.fill({ValueTensor.view((1,))}[0])")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        ValueTensor = s.get("ValueTensor")
        if ValueTensor is None:
            fill(k, Out, parse_number(self.str_value, self.value, element_type(self.dtype)))
            return
        indices = k.grid(*Out.shape)
        k.store(Out, indices, number(k, ValueTensor))

    def measure(self, xp: Xp) -> dict[str, Value]:
        return {}

    def compute(self, xp: Xp, ValueTensor: Value | None) -> Value:
        constant = parse_number(self.str_value, self.value, element_type(self.dtype))
        return constant if ValueTensor is None else ValueTensor


def shape_from_inputs(
    op: str, sizes: list[int], listing: TensorType | None, single: list[TensorType]
) -> Shape:
    """Return the shape from the attribute, or the known part of a shape given by tensors."""
    if listing is not None:
        count = static_count(op, "ShapeTensor", listing)
        return positive_or_unknown(sizes) if len(sizes) == count else unknown_shape(count)
    if single:
        return (
            positive_or_unknown(sizes) if len(sizes) == len(single) else unknown_shape(len(single))
        )
    return literal_shape(op, sizes)


# ---- the shape of another tensor ----------------------------------------------------------------


class FillZerosLike(Pointwise, op="fill_zeros_like"):
    """Out = zeros of the type of X."""

    X = reads(shape_only=True)
    Out = writes()

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.zeros_like(X)


class FillZerosLike2(Pointwise, op="fill_zeros_like2"):
    """Out = zeros of the shape of X and the dtype `dtype`."""

    X = reads(shape_only=True)
    Out = writes()
    dtype = attr(DType.FP32.code)

    def result(self, operand: TensorType) -> TensorType:
        """Return the shape of X with the dtype `dtype`."""
        return operand.with_dtype(DType.of(self.dtype))

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.astype(xp.zeros_like(X), element_type(self.dtype))


def limits(dtype: DType) -> tuple[float, float]:
    """Return the smallest and the largest number of a dtype."""
    if dtype.is_float:
        return -math.inf, math.inf
    info = np.iinfo(dtype.numpy) if dtype is not DType.BOOL else None
    return (float(info.min), float(info.max)) if info else (0.0, 1.0)


class FillAnyLike(OpDef, op="fill_any_like"):
    """Out = `value` everywhere, in the shape of X, and in its dtype if `dtype` is -1.

    Reference: fill_any_like_op.h.
    """

    X = reads(no_grad=True)
    Out = writes()
    value = attr(0.0, WIDE)
    dtype = attr(-1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        dtype = s.X.dtype if self.dtype < 0 else DType.of(self.dtype)
        low, high = limits(dtype)
        if not (low <= self.value <= high or (dtype.is_float and math.isnan(self.value))):
            raise BadAttribute(
                f"fill_any_like: 'value' {self.value} is not representable as {dtype.text}"
            )
        return s.X.with_dtype(dtype)

    def numpy(self, X: Array) -> Array:
        dtype = X.dtype if self.dtype < 0 else element_type(self.dtype)
        return np.full(X.shape, self.value, dtype)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        k.line(f"{Out}.fill({number_source(parse_number('', self.value, Out.type.dtype.numpy))})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        fill(k, s.Out, parse_number("", self.value, s.Out.type.dtype.numpy))


def with_size_of(sizes: list[int], target_axis: int, like: Sizes, axis: int) -> list[int]:
    """Return the sizes with the one at `target_axis` replaced by a size of another tensor."""
    return [*sizes[:target_axis], like[axis], *sizes[target_axis + 1 :]]


class BatchSizeLike(OpDef):
    """A new tensor of shape `shape`, with one size copied from Input.

    The size of axis `input_dim_idx` replaces that of axis `output_dim_idx`. Reference:
    batch_size_like.h.
    """

    lod_source = ""

    Input = reads(shape_only=True, no_grad=True)
    Out = writes()
    shape = attr_list(int)
    input_dim_idx = attr(0)
    output_dim_idx = attr(0)
    dtype = attr(DType.FP32.code)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.sized(s.Input.shape[self.source(s.Input)])

    def source(self, Input: TensorType) -> int:
        """Return the source axis of Input; raise BadAttribute if either axis is out of range."""
        source, target = self.input_dim_idx, self.output_dim_idx
        if not (0 <= source < Input.rank and 0 <= target < len(self.shape)):
            raise BadAttribute(
                f"{self.kind}: 'input_dim_idx' is {source} for Input {Input}, 'output_dim_idx' is "
                f"{target} for 'shape' {self.shape}"
            )
        return source

    def sized(self, count: Size) -> TensorType:
        """Return the type of Out; raise BadAttribute if another size is negative."""
        target = self.output_dim_idx
        others = literal_shape(self.kind, [*self.shape[:target], 0, *self.shape[target + 1 :]])
        return TensorType(DType.of(self.dtype), (*others[:target], count, *others[target + 1 :]))


class FillConstantBatchSizeLike(BatchSizeLike, op="fill_constant_batch_size_like"):
    """`BatchSizeLike` filled with `value`, or with the number in the text `str_value`.

    If Input has a LoD, its number of sequences replaces the size of its first axis.
    Reference: fill_constant_batch_size_like_op.h.
    """

    Input_lod = reads_lod("Input", optional=True)
    value = attr(0.0, WIDE)
    str_value = attr("")
    force_cpu = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Input_lod = s.all("Input_lod")
        source = self.source(s.Input)
        if Input_lod and source == 0:
            return self.sized(Input_lod[-1].shape[0] - 1)
        return self.sized(s.Input.shape[source])

    def numpy(self, Input: Shape, Input_lod: list[Array] | None) -> Array:
        dtype = element_type(self.dtype)
        like: Sizes = Input
        if Input_lod and self.input_dim_idx == 0:
            like = (len(Input_lod[-1]) - 1,)
        sizes = with_size_of(self.shape, self.output_dim_idx, like, self.input_dim_idx)
        return np.full(sizes, parse_number(self.str_value, self.value, dtype), dtype)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        number = parse_number(self.str_value, self.value, Out.type.dtype.numpy)
        k.line(f"{Out}.fill({number_source(number)})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        fill(k, s.Out, parse_number(self.str_value, self.value, s.Out.type.dtype.numpy))
