"""Ops that need sums over a whole tensor: a kernel for the sums, then one for every element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from compiler.codegen.kernel.analysis import accumulator_type
from compiler.codegen.kernel.body import KernelBody, Ref
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.trace import Expr
from compiler.ir.dims import Size
from compiler.ir.opdef import call, listed
from compiler.ir.opdef.global_reductions import KEY
from compiler.plan import PlannedOp, PlannedValue


def global_reduction(writer: NativeModuleWriter, op: PlannedOp) -> list[KernelBody]:
    """The kernels of an op with global sums, in order."""
    if op.inputs.get(KEY):
        raise NotLowered("it draws one number for all elements")
    width = _width(op)
    sums = KernelBody(f"{op.kind}_sums", (1,))
    over = sums.loop(width)
    terms = cast("dict[str, Expr]", _trace(writer, op, "measure", sums, over, width, {}))
    totals, kernels = dict[str, NumpyOperand](), list[KernelBody]()
    for name, term in terms.items():
        dtype = accumulator_type(term.dtype)
        totals[name] = writer.scratch((1,), dtype)
        total = sums.sum(term.astype(dtype), over)
        sums.store(Ref(sums, totals[name], (1,)), sums.indices, total)
    if terms:
        kernels.append(sums)
    return [*kernels, *_updates(writer, op, width, totals)]


def _updates(
    writer: NativeModuleWriter, op: PlannedOp, width: Size, totals: Mapping[str, NumpyOperand]
) -> list[KernelBody]:
    """The kernels that store each element of the outputs, and their scalars."""
    kernel, scalars = KernelBody(op.kind, (width,)), KernelBody(f"{op.kind}_scalars", (1,))
    kernels = [(kernel, kernel.indices[0], width)]
    kernels += [(scalars, scalars.indices[0], 1)] if width != 1 else []
    for body, index, count in kernels:
        loaded = {name: Ref(body, total, (1,)).at(0) for name, total in totals.items()}
        results = op.defn.named(_trace(writer, op, "compute", body, index, width, loaded))
        for slot, values in op.outputs.items():
            for value, result in zip(values, listed(results[slot]), strict=True):
                if value.type.numel == count:
                    out = Ref(body, writer.operand(value), (count,))
                    body.store(out, body.indices, result)
    return [body for body, _, _ in kernels if body.stores]


def _width(op: PlannedOp) -> Size:
    """The number of elements of the op's tensors; 1 if it has only scalars."""
    counts = (value.type.numel for value in op.values)
    return next((count for count in counts if count != 1), 1)


def _trace(
    writer: NativeModuleWriter, op: PlannedOp, body: str, kernel: KernelBody, index: Expr,
    width: Size, totals: Mapping[str, Expr],
) -> Any:  # fmt: skip
    """Trace a body of the op over the elements at an index."""

    def element(value: PlannedValue) -> Expr:
        operand = writer.operand(value)
        count, at = (1, 0) if value.type.numel == 1 else (width, index)
        loaded = Ref(kernel, operand, (count,)).at(at)
        return loaded.astype(accumulator_type(loaded.dtype))

    slots = {
        slot: op.defn.slots[slot].hold([element(value) for value in values])
        for slot, values in op.inputs.items()
    }
    return call(op.defn, body, {**slots, **totals}, kernel)
