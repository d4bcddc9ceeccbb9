"""Pointwise and rowwise ops as kernels: their bodies, traced over shapes, said again for a lane.

Axes that every operand has, or lacks, alike become one. A result that sums what was broadcast, or a
row that is reduced, gets a lane for each element that is left and a loop over the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias, cast

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.pointwise import Root, trace
from compiler.codegen.trace import BY_KEY, Expr, Term, all_parts, ordered
from compiler.codegen.triton.kernel_ir import KernelBody, Ref
from compiler.codegen.triton.random import said
from compiler.errors import CompileError
from compiler.ir.dims import Size, product
from compiler.ir.types import Shape
from compiler.plan import Step, Storage, Value

Group: TypeAlias = "tuple[tuple[Shape, tuple[int, ...]], list[Root]]"
"""Roots over one space that reduce the same axes."""


class Operands(Protocol):
    """Who knows the operand for a value: a frame, above all."""

    def operand(self, value: Value) -> NumpyOperand:
        """The operand for a value."""
        ...


def kernels_of(step: Step, name: str, frame: Operands) -> list[KernelBody]:
    """The kernels of a step whose ops are pointwise, in an order in which none overwrites what a
    later one reads.
    """
    groups: dict[tuple[Shape, tuple[int, ...]], list[Root]] = {}
    for root in (root for root in trace(step) if not _stays(root)):
        groups.setdefault((_space(root), _axes(root.expr)), []).append(root)
    return [
        _Kernel(name, *space, group, frame).lanes
        for space, group in _in_order(list(groups.items()))
    ]


def _stays(root: Root) -> bool:
    """True for what is written where it is read, as it is."""
    leaf = root.expr
    return leaf.is_leaf and cast(Value, leaf.extra).storage == root.value.storage


def _in_order(groups: list[Group]) -> list[Group]:
    """Groups of roots, each before those that write over what it reads."""
    left, order = list(groups), list[Group]()
    while left:
        reads = [_storages(roots) for _, roots in left]
        writes = [{root.value.storage for root in roots} for _, roots in left]
        free = (
            i
            for i, mine in enumerate(writes)
            if not any(mine & theirs for j, theirs in enumerate(reads) if j != i)
        )
        chosen = next(free, None)
        if chosen is None:
            raise CompileError("two kernels of one op write over what the other one reads")
        order.append(left.pop(chosen))
    return order


def _storages(roots: Sequence[Root]) -> set[Storage]:
    """Where what roots read is stored."""
    leaves = (part for part in all_parts(root.expr for root in roots) if part.is_leaf)
    return {cast(Value, leaf.extra).storage for leaf in leaves}


def _space(root: Root) -> Shape:
    """The shape that a root is computed over: its own, or its value's where that is larger."""
    shapes = [part.shape for part in ordered(root.expr) if part.shape]
    widest = max(shapes, key=len, default=())
    full = [1] * len(widest)
    sizes: list[Size] = list(full)
    for shape in shapes:
        for axis, size in enumerate(reversed(shape)):
            if size != 1:
                sizes[-1 - axis] = size
    own = root.value.type
    return tuple(sizes) if product(sizes) == own.numel or _axes(root.expr) else own.shape


def _axes(expr: Expr) -> tuple[int, ...]:
    """The axes that an expression reduces, counted from the last one: -1, -2, …"""
    found = {
        axis - len(part.shape)
        for part in ordered(expr)
        if part.fn.startswith("reduce_")
        for axis in cast("tuple[int, ...]", part.extra)
    }
    return tuple(sorted(found))


class _Kernel:
    """One kernel: lanes over the axes that stay, a loop over those that are reduced."""

    def __init__(
        self,
        name: str,
        space: Shape,
        axes: tuple[int, ...],
        roots: Sequence[Root],
        frame: Operands,
    ) -> None:
        self.frame = frame
        self.space, self.reduced = space, {axis + len(space) for axis in axes}
        self.groups = _merged(space, self.reduced, _shapes(roots))
        kept = [product(space[a] for a in group) for group, turns in self.groups if not turns]
        self.lanes = KernelBody(name, kept)
        self.indices = self._indices()
        self.known: dict[Expr, Term] = {}
        for root in roots:
            self._store(root)

    def _indices(self) -> list[Term]:
        """The index of each group of axes: a lane's own, or that of a turn of the loop."""
        lanes = iter(self.lanes.indices)
        turning = [product(self.space[a] for a in g) for g, turns in self.groups if turns]
        if not turning:
            return list(lanes)
        self.loop = self.lanes.loop(product(turning))
        turns = iter(self.lanes.unravel(self.loop, turning))
        return [next(turns) if reduced else next(lanes) for _, reduced in self.groups]

    def _store(self, root: Root) -> None:
        out = self.frame.operand(root.value)
        shape = root.expr.shape
        if product(shape) != out.type.numel:
            shape = out.type.shape
        sizes, indices = self._place(shape)
        value = self._said(root.expr)
        self.lanes.store(Ref(self.lanes, out, sizes), indices, value)

    def _place(self, shape: Shape) -> tuple[Shape, list[Term]]:
        """A shape in groups of axes, and the indices of this lane (and turn) in it."""
        padded = (1,) * (len(self.space) - len(shape)) + tuple(shape)
        sizes = [product(padded[axis] for axis in group) for group, _ in self.groups]
        pairs = zip(sizes, self.groups, self.indices, strict=True)
        kept = [(size, index) for size, (_, turns), index in pairs if not (turns and size == 1)]
        return tuple(s for s, _ in kept), [0 if s == 1 else i for s, i in kept]

    def _said(self, root: Expr) -> Term:
        """An expression over shapes as one over a lane's scalars."""
        for part in ordered(root):
            if part not in self.known:
                self.known[part] = self._part(part)
        return self.known[root]

    def _part(self, part: Expr) -> Term:
        args = tuple(self.known[a] if isinstance(a, Expr) else a for a in part.args)
        if part.is_leaf:
            operand = self.frame.operand(cast(Value, part.extra))
            sizes, indices = self._place(part.shape)
            return Ref(self.lanes, operand, sizes).at(*indices)
        if part.fn == "full":
            return self.lanes.node("full", args, part.dtype)
        if part.fn == "astype":
            return self.lanes.astype(args[0], part.dtype)
        if part.fn == BY_KEY:
            keys = self.frame.operand(cast(Value, part.parts()[0].extra))
            return said(self.lanes, part, keys, *self._place(part.shape))
        if part.fn.startswith("reduce_"):
            return self._reduced(part, args[0])
        return self.lanes.node(part.fn, args, part.dtype)

    def _reduced(self, part: Expr, value: Term) -> Term:
        """A reduction; one of a reduction by the same function is one over the axes of both."""
        inner = part.args[0]
        if isinstance(inner, Expr) and inner.fn == part.fn:
            return value
        return getattr(self.lanes, part.fn.removeprefix("reduce_"))(value, self.loop)


def _shapes(roots: Iterable[Root]) -> list[Shape]:
    """The shapes of all that a kernel reads and writes."""
    parts = all_parts(root.expr for root in roots)
    return [part.shape for part in parts] + [root.value.type.shape for root in roots]


def _merged(
    space: Shape, reduced: set[int], shapes: Sequence[Shape]
) -> list[tuple[list[int], bool]]:
    """Neighbouring axes in groups, in which a shape has all sizes or none; whether they turn."""
    rank = len(space)
    padded = {(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes if len(shape) <= rank}
    each = sorted(padded, key=str)
    spread = [tuple(shape[axis] == space[axis] for shape in each) for axis in range(rank)]
    groups: list[tuple[list[int], bool]] = []
    for axis in range(rank):
        alike = groups and spread[groups[-1][0][0]] == spread[axis]
        if alike and groups[-1][1] == (axis in reduced):
            groups[-1][0].append(axis)
        else:
            groups.append(([axis], axis in reduced))
    return groups
