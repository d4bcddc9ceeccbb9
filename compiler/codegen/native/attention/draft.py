"""Attention of ops: the kernel, and the shapes that its operands must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.codegen.kernel.attention import Attention, described
from compiler.codegen.kernel.random import keys_from
from compiler.codegen.kernel.scalar_kernels import KernelOperand
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.attention.backward import attention_gradient
from compiler.codegen.native.attention.forward import attention
from compiler.codegen.native.element_types import COMPUTED, TYPES
from compiler.codegen.native.image_ops import ImageKernelBuilder
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.step_draft import ExpectedShape, StepDraft
from compiler.ir.attention import AttentionForm, AttentionLayout, ordered
from compiler.ir.types import Shape


def attention_draft(
    k: ImageKernelBuilder, form: AttentionForm, operands: Mapping[str, KernelOperand]
) -> StepDraft:
    """The kernel of an attention; NotLowered for half precision, and widths of open size."""
    if "statistics" in operands:
        raise NotLowered("its kernels of gradients read no statistics")
    spec, element = _described(form, operands)
    if spec.v[-1] != 1 or spec.out[-1] != 1:
        raise NotLowered("the columns of its values are not neighbours")
    steps = k.made(attention, k.machine, element, spec)
    return StepDraft(steps, element, _arrays(form, operands), shapes=_shapes(spec, form, operands))


def gradient_draft(
    k: ImageKernelBuilder, form: AttentionForm, operands: Mapping[str, KernelOperand]
) -> StepDraft:
    """The kernel of the gradients of an attention; NotLowered as `attention_draft`."""
    read = {name: x for name, x in operands.items() if name not in ("out", "statistics")}
    spec, element = _described(form, read)
    if any(spec.strides(name)[-1] != 1 for name in ("q", "k", "v", "out")):
        raise NotLowered("the columns of its operands are not neighbours")
    steps = k.made(attention_gradient, k.machine, element, spec)
    return StepDraft(steps, element, _arrays(form, read), shapes=_shapes(spec, form, read))


def _described(
    form: AttentionForm, operands: Mapping[str, KernelOperand]
) -> tuple[Attention, Type]:
    """The attention of operands, and their element type."""
    dtypes = {x.type.dtype for name, x in operands.items() if name != "rng"}
    if len(dtypes) > 1 or not dtypes <= COMPUTED:
        raise NotLowered("its kernels compute in float32 or float64")
    if form.is_causal:
        raise NotLowered("its kernels compute all scores")
    widths = (
        ordered(operands["q"].shape, form.layout.q)[-1],
        ordered(operands["v"].shape, form.layout.v)[-1],
    )
    if not all(isinstance(size, int) for size in widths):
        raise NotLowered("its queries or values have an open width")
    return described(form, operands), TYPES[dtypes.pop()]


def _arrays(form: AttentionForm, operands: Mapping[str, KernelOperand]) -> dict[str, NumpyOperand]:
    """The arrays of operands, that of RNG keys from the attention's key on."""
    arrays = {name: operand.operand for name, operand in operands.items()}
    if form.dropout:
        arrays["rng"] = keys_from(arrays["rng"], form.place)
    return arrays


def _shapes(
    spec: Attention, form: AttentionForm, operands: Mapping[str, KernelOperand]
) -> tuple[ExpectedShape, ...]:
    """The shapes in which operands are read and written."""
    shapes = [*_expected(spec, form.layout, operands)]
    if (mask := operands.get("mask")) is not None:
        scores = (*spec.stack, spec.queries, spec.keys)
        shapes.append(ExpectedShape.of(mask, _repeated(mask.shape, scores)))
    return tuple(shapes)


def _expected(
    spec: Attention, layout: AttentionLayout, operands: Mapping[str, KernelOperand]
) -> Iterator[ExpectedShape]:
    """The shapes of q, k, v and out, or the gradient of out."""
    matrices = {
        "q": (layout.q, (spec.queries, spec.width)), "k": (layout.k, (spec.keys, spec.width)),
        "v": (layout.v, (spec.keys, spec.value_width)),
        "out" if "out" in operands else "d_out": (
            layout.from_out, (spec.queries, spec.value_width)
        ),
    }  # fmt: skip
    for name, (order, matrix) in matrices.items():
        shape = ordered(operands[name].shape, order)
        yield ExpectedShape(operands[name].operand.name, shape, (*spec.stack, *matrix))


def _repeated(mask: Shape, scores: Shape) -> Shape:
    """The shape that a mask has if it fits the scores."""
    own = scores[len(scores) - len(mask) :]
    return tuple(1 if size == 1 else full for size, full in zip(mask, own, strict=True))
