"""Attention of ops: the kernel, and the shapes that its operands must have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.codegen.kernel.attention import Attention, described
from compiler.codegen.kernel.builder import KernelOperand
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.attention.backward import attention_gradient
from compiler.codegen.native.attention.forward import attention
from compiler.codegen.native.element_types import COMPUTED, TYPES
from compiler.codegen.native.image_ops import ImageKernelBuilder
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.step_draft import ExpectedShape, StepDraft
from compiler.ir.attention import AttentionLayout, ordered
from compiler.ir.types import Shape


def attention_draft(
    k: ImageKernelBuilder, layout: AttentionLayout, factors: tuple[float, float],
    operands: tuple[KernelOperand, KernelOperand, KernelOperand], mask: KernelOperand | None,
    out: KernelOperand,
) -> StepDraft:  # fmt: skip
    """The kernel of an attention; NotLowered for half precision, and widths of open size."""
    spec, element = _described(layout, factors, [*operands, out], mask)
    if spec.v[-1] != 1 or spec.out[-1] != 1:
        raise NotLowered("the columns of its values are not neighbours")
    steps = k.made(attention, k.machine, element, spec)
    names = zip(("q", "k", "v", "out"), (*operands, out), strict=True)
    arrays = {name: operand.operand for name, operand in names}
    shapes = _shapes(spec, layout, [*operands, out], mask)
    return StepDraft(steps, element, _with_mask(arrays, mask), shapes=shapes)


def gradient_draft(
    k: ImageKernelBuilder, layout: AttentionLayout, factors: tuple[float, float],
    operands: tuple[KernelOperand, KernelOperand, KernelOperand], mask: KernelOperand | None,
    d_out: KernelOperand, results: tuple[KernelOperand, ...],
) -> StepDraft:  # fmt: skip
    """The kernel of the gradients of an attention; NotLowered as `attention_draft`."""
    spec, element = _described(layout, factors, [*operands, d_out, *results], mask)
    if any(spec.strides(name)[-1] != 1 for name in ("q", "k", "v", "out")):
        raise NotLowered("the columns of its operands are not neighbours")
    steps = k.made(attention_gradient, k.machine, element, spec)
    names = ("q", "k", "v", "d_out", "d_q", "d_k", "d_v")
    pairs = zip(names, (*operands, d_out, *results), strict=True)
    arrays = {name: operand.operand for name, operand in pairs}
    shapes = _shapes(spec, layout, [*operands, d_out], mask)
    return StepDraft(steps, element, _with_mask(arrays, mask), shapes=shapes)


def _described(
    layout: AttentionLayout, factors: tuple[float, float], operands: Sequence[KernelOperand],
    mask: KernelOperand | None,
) -> tuple[Attention, Type]:  # fmt: skip
    """The attention of operands, q, k and v first, and their element type."""
    dtypes = {x.type.dtype for x in (*operands, *([mask] if mask is not None else []))}
    if len(dtypes) > 1 or not dtypes <= COMPUTED:
        raise NotLowered("its kernels compute in float32 or float64")
    if not all(isinstance(size, int) for size in _widths(layout, operands)):
        raise NotLowered("its queries or values have an open width")
    return described(layout, factors, operands[:3], mask), TYPES[dtypes.pop()]


def _with_mask(
    arrays: dict[str, NumpyOperand], mask: KernelOperand | None
) -> dict[str, NumpyOperand]:
    return arrays if mask is None else {**arrays, "mask": mask.operand}


def _shapes(
    spec: Attention, layout: AttentionLayout, operands: list[KernelOperand],
    mask: KernelOperand | None,
) -> tuple[ExpectedShape, ...]:  # fmt: skip
    """The shapes in which q, k, v, out and the mask are read and written."""
    shapes = tuple(_expected(spec, layout, operands))
    if mask is None:
        return shapes
    scores = (*spec.stack, spec.queries, spec.keys)
    return (*shapes, ExpectedShape.of(mask, _repeated(mask.shape, scores)))


def _widths(layout: AttentionLayout, operands: Sequence[KernelOperand]) -> Shape:
    q, _, v = operands[:3]
    return (ordered(q.shape, layout.q)[-1], ordered(v.shape, layout.v)[-1])


def _expected(
    spec: Attention, layout: AttentionLayout, operands: list[KernelOperand]
) -> Iterator[ExpectedShape]:
    """The shapes in which q, k, v and out are read and written."""
    sizes = (
        (spec.queries, spec.width), (spec.keys, spec.width), (spec.keys, spec.value_width),
        (spec.queries, spec.value_width),
    )  # fmt: skip
    orders = (layout.q, layout.k, layout.v, layout.from_out)
    for operand, order, matrix in zip(operands, orders, sizes, strict=True):
        shape = ordered(operand.shape, order)
        yield ExpectedShape(operand.operand.name, shape, (*spec.stack, *matrix))


def _repeated(mask: Shape, scores: Shape) -> Shape:
    """The shape that a mask has if it fits the scores."""
    own = scores[len(scores) - len(mask) :]
    return tuple(1 if size == 1 else full for size, full in zip(mask, own, strict=True))
