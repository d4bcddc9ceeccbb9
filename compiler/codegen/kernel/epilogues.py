"""Epilogues: pointwise ops fused into the kernel of a product or a convolution.

The anchor stores its result element by element. With an epilogue, the stored values are what the
epilogue computes from that element, which itself need not be written to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import cast

from compiler.codegen.kernel.body import KernelBody, Ref
from compiler.codegen.kernel.random import random_element
from compiler.codegen.module_writer import ModuleWriter
from compiler.codegen.pointwise import Root, trace
from compiler.codegen.trace import BY_KEY, Expr, Term, ordered
from compiler.ir.types import Shape
from compiler.plan import PlannedOp, PlannedValue, Step, StorageKind
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class FusedEpilogue:
    """The ops fused after an anchor, as expressions of the anchor's `result`."""

    writer: ModuleWriter
    result: PlannedValue
    roots: list[Root]

    def replaces_store(self, name: str) -> bool:
        """True for the operand that the anchor stores its result to."""
        return self.writer.operand(self.result).name == name

    def store(
        self,
        kernel: KernelBody,
        shape: Shape,
        indices: Sequence[Term],
        value: Term,
        where: Term | None,
    ) -> None:
        """Store the epilogue's outputs for an element; `indices` refer to the view `shape`."""
        full = self.result.type.shape
        position = tuple(indices) if shape == full else _reindexed(kernel, full, shape, indices)
        terms = dict[Expr, Term]()
        for root in self.roots:
            for part in (part for part in ordered(root.expr) if part not in terms):
                terms[part] = self._part(kernel, part, position, value, where, terms)
        if self.result.place is not StorageKind.INNER:
            aligned = Ref(kernel, self.writer.operand(self.result), full)
            kernel.store(aligned, position, value, where)
        for root in self.roots:
            out = Ref(kernel, self.writer.operand(root.value), full)
            kernel.store(out, position, terms[root.expr], where)

    def _part(
        self,
        kernel: KernelBody,
        part: Expr,
        position: tuple[Term, ...],
        value: Term,
        where: Term | None,
        known: dict[Expr, Term],
    ) -> Term:
        """Lower a node of the epilogue's expressions for one element."""
        aligned = zip(part.shape, position[len(position) - len(part.shape) :], strict=True)
        at = [0 if size == 1 else index for size, index in aligned]
        if part.fn == BY_KEY:
            keys = self.writer.operand(cast(PlannedValue, part.parts()[0].extra))
            return random_element(kernel, part, keys, part.shape, at)
        if part.fn == "astype":
            (inner,) = part.args
            return kernel.astype(known[inner] if isinstance(inner, Expr) else inner, part.dtype)
        if not part.is_leaf:
            args = tuple(known[a] if isinstance(a, Expr) else a for a in part.args)
            return kernel.node(part.fn, args, part.dtype)
        leaf = cast(PlannedValue, part.extra)
        if leaf == self.result:
            return kernel.astype(value, part.dtype)
        return Ref(kernel, self.writer.operand(leaf), part.shape).at(*at, where=where)


def _reindexed(
    kernel: KernelBody, full: Shape, shape: Shape, indices: Sequence[Term]
) -> tuple[Term, ...]:
    """The indices of an element in another shape; common leading and trailing axes are kept."""
    same = (a == b for a, b in zip(reversed(full), reversed(shape), strict=False))
    common = min(sum(takewhile(bool, same)), len(full) - 1, len(shape) - 1)
    middle, aligned = len(shape) - common, len(full) - common
    same = (a == b for a, b in zip(full[: aligned - 1], shape[: middle - 1], strict=False))
    first = sum(takewhile(bool, same))
    flat, *others = indices[first:middle]
    for size, index in zip(shape[first + 1 : middle], others, strict=True):
        flat = cast(Term, flat * kernel.size(size) + index)
    inner = kernel.unravel(flat, full[first:aligned])
    return (*indices[:first], *inner, *indices[middle:])


def without_unread_outputs(anchor: PlannedOp) -> PlannedOp:
    """The anchor without outputs that are never read, and so have no memory."""
    result = anchor.defn.epilogue_output(anchor.target)
    outputs = {
        slot: values
        for slot, values in anchor.outputs.items()
        if slot == result or any(value.place is not StorageKind.INNER for value in values)
    }
    return replace(anchor, outputs=outputs)


def fusible_epilogue(writer: ModuleWriter, step: Step) -> FusedEpilogue | None:
    """The epilogue of a step's first op; None unless it is elementwise in the anchor's result.

    The anchor reads its inputs in any order, so an epilogue that overwrites one is not fused.
    """
    anchor = step.ops[0]
    (result,) = anchor.outputs[anchor.defn.epilogue_output(anchor.target)]
    roots = trace(replace(step, ops=step.ops[1:]))
    read = {(value.place, value.home) for values in anchor.inputs.values() for value in values}
    separate = all((root.value.place, root.value.home) not in read for root in roots)
    return (
        FusedEpilogue(writer, result, roots)
        if separate and all(_is_elementwise(r, result) for r in roots)
        else None
    )


def _is_elementwise(root: Root, result: PlannedValue) -> bool:
    """True if each element of the root depends on just that element of the anchor's result."""
    parts = ordered(root.expr)
    if root.expr.shape != result.type.shape or root.value.type.numel != result.type.numel:
        return False
    if any(part.fn.startswith("reduce_") for part in parts):
        return False
    leaves = (part for part in parts if part.is_leaf)
    return all(part.shape == result.type.shape for part in leaves if part.extra == result)


def fused_name(ops: Sequence[PlannedOp]) -> str:
    """The name of a kernel of several ops."""
    return "_".join(dict.fromkeys(op.kind for op in ops))[:60]
