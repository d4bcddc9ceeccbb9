"""Attention of ops: the kernel, and the shapes that its operands must have."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.codegen.kernel.attention import Attention, described
from compiler.codegen.kernel.builder import KernelOperand
from compiler.codegen.native.attention.forward import attention
from compiler.codegen.native.element_types import COMPUTED, TYPES
from compiler.codegen.native.image_ops import ImageKernelBuilder
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
    everything = [*operands, out, *([mask] if mask is not None else [])]
    dtypes = {operand.type.dtype for operand in everything}
    if len(dtypes) > 1 or not dtypes <= COMPUTED:
        raise NotLowered("its kernels compute in float32 or float64")
    if not all(isinstance(size, int) for size in _widths(layout, operands)):
        raise NotLowered("its queries or values have an open width")
    spec = described(layout, factors, operands, mask)
    if spec.v[-1] != 1 or spec.out[-1] != 1:
        raise NotLowered("the columns of its values are not neighbours")
    element = TYPES[dtypes.pop()]
    steps = k.made(attention, k.machine, element, spec)
    arrays = {
        name: operand.operand
        for name, operand in zip(("q", "k", "v", "out", "mask"), everything, strict=False)
    }
    shapes = tuple(_expected(spec, layout, [*operands, out]))
    if mask is not None:
        scores = (*spec.stack, spec.queries, spec.keys)
        shapes = (*shapes, ExpectedShape.of(mask, _repeated(mask.shape, scores)))
    return StepDraft(steps, element, arrays, shapes=shapes)


def _widths(layout: AttentionLayout, operands: tuple[KernelOperand, ...]) -> Shape:
    q, _, v = operands
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
