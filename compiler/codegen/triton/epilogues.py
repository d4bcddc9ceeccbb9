"""What follows a product or a convolution in its kernel: pointwise ops on what is summed up there.

A head stores its result element by element, wherever its tiles and lanes have it. With a tail, what
is stored instead is what the tail makes of that element, which never is in memory by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import cast

from compiler.codegen.bind_and_run import Frame
from compiler.codegen.pointwise import Root, trace
from compiler.codegen.trace import BY_KEY, Expr, Term, ordered
from compiler.codegen.triton.kernel_ir import KernelBody, Ref
from compiler.codegen.triton.random import said
from compiler.ir.types import Shape
from compiler.plan import Place, PlannedOp, Step, Value


@dataclass(frozen=True)
class Tail:
    """The ops behind a head, as expressions of what the head has `made`."""

    frame: Frame
    made: Value
    roots: list[Root]

    def takes(self, name: str) -> bool:
        """True for the operand that the head writes its result to."""
        return self.frame.operand(self.made).name == name

    def store(
        self,
        lanes: KernelBody,
        shape: Shape,
        indices: Sequence[Term],
        value: Term,
        where: Term | None,
    ) -> None:
        """Store what becomes of an element; `shape` is that in which the head sees its result."""
        whole = self.made.type.shape
        place = tuple(indices) if shape == whole else _seen_in(lanes, whole, shape, indices)
        known = dict[Expr, Term]()
        for root in self.roots:
            for part in (part for part in ordered(root.expr) if part not in known):
                known[part] = self._part(lanes, part, place, value, known)
        if self.made.place is not Place.INNER:
            own = Ref(lanes, self.frame.operand(self.made), whole)
            lanes.store(own, place, value, where)
        for root in self.roots:
            out = Ref(lanes, self.frame.operand(root.value), whole)
            lanes.store(out, place, known[root.expr], where)

    def _part(
        self,
        lanes: KernelBody,
        part: Expr,
        place: tuple[Term, ...],
        value: Term,
        known: dict[Expr, Term],
    ) -> Term:
        """A part of the tail's expressions for one element."""
        own = zip(part.shape, place[len(place) - len(part.shape) :], strict=True)
        at = [0 if size == 1 else index for size, index in own]
        if part.fn == BY_KEY:
            keys = self.frame.operand(cast(Value, part.parts()[0].extra))
            return said(lanes, part, keys, part.shape, at)
        if part.fn == "astype":
            (inner,) = part.args
            return lanes.astype(known[inner] if isinstance(inner, Expr) else inner, part.dtype)
        if not part.is_leaf:
            args = tuple(known[a] if isinstance(a, Expr) else a for a in part.args)
            return lanes.node(part.fn, args, part.dtype)
        leaf = cast(Value, part.extra)
        if leaf == self.made:
            return lanes.astype(value, part.dtype)
        return Ref(lanes, self.frame.operand(leaf), part.shape).at(*at)


def _seen_in(
    lanes: KernelBody, whole: Shape, shape: Shape, indices: Sequence[Term]
) -> tuple[Term, ...]:
    """The indices of an element in another shape; axes at the ends that both have stay."""
    alike = (a == b for a, b in zip(reversed(whole), reversed(shape), strict=False))
    kept = min(sum(takewhile(bool, alike)), len(whole) - 1, len(shape) - 1)
    middle, own = len(shape) - kept, len(whole) - kept
    alike = (a == b for a, b in zip(whole[: own - 1], shape[: middle - 1], strict=False))
    first = sum(takewhile(bool, alike))
    flat, *others = indices[first:middle]
    for size, index in zip(shape[first + 1 : middle], others, strict=True):
        flat = cast(Term, flat * lanes.size(size) + index)
    inner = lanes.unravel(flat, whole[first:own])
    return (*indices[:first], *inner, *indices[middle:])


def wanted(head: PlannedOp) -> PlannedOp:
    """A head without outputs that nobody reads, and that have no memory in a kernel with a tail."""
    made = head.defn.epilogue_output(head.target)
    outputs = {
        slot: values
        for slot, values in head.outputs.items()
        if slot == made or any(value.place is not Place.INNER for value in values)
    }
    return replace(head, outputs=outputs)


def tail_of(frame: Frame, step: Step) -> Tail | None:
    """The tail of a step's first op; None where it does not go element by element with the head.

    A head reads its inputs wherever it likes: a tail that writes to their memory has to wait.
    """
    head = step.ops[0]
    (made,) = head.outputs[head.defn.epilogue_output(head.target)]
    roots = trace(replace(step, ops=step.ops[1:]))
    read = {(value.place, value.home) for values in head.inputs.values() for value in values}
    apart = all((root.value.place, root.value.home) not in read for root in roots)
    return Tail(frame, made, roots) if apart and all(_goes_along(r, made) for r in roots) else None


def _goes_along(root: Root, made: Value) -> bool:
    """True where a result has an element for each of the head's, and needs no other of them."""
    parts = ordered(root.expr)
    if root.expr.shape != made.type.shape or root.value.type.numel != made.type.numel:
        return False
    if any(part.fn.startswith("reduce_") for part in parts):
        return False
    leaves = (part for part in parts if part.is_leaf)
    return all(part.shape == made.type.shape for part in leaves if part.extra == made)


def fused_name(ops: Sequence[PlannedOp]) -> str:
    """What a kernel of several ops is called."""
    return "_".join(dict.fromkeys(op.kind for op in ops))[:60]
