"""Attention of ops: operands as strides of a stack of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.kernel.builder import KernelOperand
from compiler.codegen.native.attention.description import Attention
from compiler.codegen.native.attention.forward import attention
from compiler.codegen.native.element_types import COMPUTED, TYPES
from compiler.codegen.native.image_ops import ImageKernelBuilder
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.products.axes import contiguous
from compiler.codegen.native.step_draft import ExpectedShape, StepDraft
from compiler.ir.attention import AttentionLayout, ordered
from compiler.ir.dims import Size
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
    element = TYPES[dtypes.pop()]
    spec, shapes = _description(layout, factors, operands, mask, out)
    steps = k.made(attention, k.machine, element, spec)
    arrays = {
        name: operand.operand
        for name, operand in zip(("q", "k", "v", "out", "mask"), everything, strict=False)
    }
    return StepDraft(steps, element, arrays, shapes=shapes)


def _description(
    layout: AttentionLayout, factors: tuple[float, float],
    operands: tuple[KernelOperand, KernelOperand, KernelOperand], mask: KernelOperand | None,
    out: KernelOperand,
) -> tuple[Attention, tuple[ExpectedShape, ...]]:  # fmt: skip
    """The attention of operands, and the shapes of them that it reads."""
    orders = (layout.q, layout.k, layout.v, layout.from_out)
    q, key, v = (ordered(x.shape, order) for x, order in zip(operands, orders, strict=False))
    widths = q[-1], v[-1]
    if not isinstance(widths[0], int) or not isinstance(widths[1], int):
        raise NotLowered("its queries or values have an open width")
    q_strides, k_strides, v_strides, out_strides = (
        ordered(contiguous(x.shape), order)
        for x, order in zip((*operands, out), orders, strict=True)
    )
    if v_strides[-1] != 1 or out_strides[-1] != 1:
        raise NotLowered("the columns of its values are not neighbours")
    scores = (*q[:-1], key[-2])
    spec = Attention(
        q[:-2], q[-2], key[-2], widths[0], widths[1], q_strides, k_strides, v_strides, out_strides,
        _broadcast(mask, scores), *factors,
    )  # fmt: skip
    views = (q, (*q[:-2], key[-2], q[-1]), (*q[:-2], key[-2], v[-1]), (*q[:-1], v[-1]))
    expected = [
        ExpectedShape(x.operand.name, ordered(x.shape, order), view)
        for x, order, view in zip((*operands, out), orders, views, strict=True)
    ]
    if mask is not None:
        expected.append(ExpectedShape.of(mask, _repeated(mask.shape, scores)))
    return spec, tuple(expected)


def _broadcast(mask: KernelOperand | None, scores: Shape) -> tuple[Size, ...]:
    """The strides of a mask over the axes of the scores, 0 where it is repeated."""
    if mask is None:
        return ()
    strides: Sequence[Size] = contiguous(mask.shape)
    own = [0 if size == 1 else s for size, s in zip(mask.shape, strides, strict=True)]
    return (*[0] * (len(scores) - len(own)), *own)


def _repeated(mask: Shape, scores: Shape) -> Shape:
    """The shape that a mask has if it fits the scores."""
    own = scores[len(scores) - len(mask) :]
    return tuple(1 if size == 1 else full for size, full in zip(mask, own, strict=True))
