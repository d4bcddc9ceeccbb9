"""Kernels of pointwise and rowwise ops: their bodies, traced over shapes, lowered to scalars.

Adjacent axes that the same operands have are merged. A result that sums over broadcast axes, or a
row reduction, gets an element per remaining index and a loop over the reduced axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias, cast

from compiler.codegen.kernel.body import KernelBody, Ref
from compiler.codegen.kernel.random import random_element
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.pointwise import Root, trace
from compiler.codegen.trace import BY_KEY, Expr, Term, all_parts, ordered
from compiler.errors import CompileError
from compiler.ir.dims import Size, product
from compiler.ir.types import Shape
from compiler.plan import PlannedValue, Step, Storage

Group: TypeAlias = "tuple[tuple[Shape, tuple[int, ...]], list[Root]]"
"""Roots over one iteration space that reduce the same axes."""


class Operands(Protocol):
    """Maps values to operands: usually a writer."""

    def operand(self, value: PlannedValue) -> NumpyOperand:
        """The operand for a value."""
        ...


def kernels_of(step: Step, name: str, writer: Operands) -> list[KernelBody]:
    """Lower a step of pointwise ops to kernels, ordered so that none overwrites an input of a
    later one.
    """
    groups: dict[tuple[Shape, tuple[int, ...]], list[Root]] = {}
    for root in (root for root in trace(step) if not _is_unchanged(root)):
        groups.setdefault((_space(root), _axes(root.expr)), []).append(root)
    return [
        _Kernel(name, *space, group, writer).kernel
        for space, group in _without_overwrites(list(groups.items()))
    ]


def _is_unchanged(root: Root) -> bool:
    """True for a root that is its input, in the same memory."""
    leaf = root.expr
    return leaf.is_leaf and cast(PlannedValue, leaf.extra).storage == root.value.storage


def _without_overwrites(groups: list[Group]) -> list[Group]:
    """Order groups of roots so that each precedes those that overwrite its inputs."""
    remaining, order = list(groups), list[Group]()
    while remaining:
        reads = [_storages(roots) for _, roots in remaining]
        writes = [{root.value.storage for root in roots} for _, roots in remaining]
        unblocked = (
            i
            for i, mine in enumerate(writes)
            if not any(mine & theirs for j, theirs in enumerate(reads) if j != i)
        )
        chosen = next(unblocked, None)
        if chosen is None:
            raise CompileError("two kernels of one op each overwrite an input of the other")
        order.append(remaining.pop(chosen))
    return order


def _storages(roots: Sequence[Root]) -> set[Storage]:
    """The storage of the roots' inputs."""
    leaves = (part for part in all_parts(root.expr for root in roots) if part.is_leaf)
    return {cast(PlannedValue, leaf.extra).storage for leaf in leaves}


def _space(root: Root) -> Shape:
    """The iteration space of a root: its broadcast shape, or its value's if that is larger."""
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
    axes = {
        axis - len(part.shape)
        for part in ordered(expr)
        if part.fn.startswith("reduce_")
        for axis in cast("tuple[int, ...]", part.extra)
    }
    return tuple(sorted(axes))


class _Kernel:
    """One kernel: elements over the axes that remain, a loop over the reduced ones."""

    def __init__(
        self,
        name: str,
        space: Shape,
        axes: tuple[int, ...],
        roots: Sequence[Root],
        writer: Operands,
    ) -> None:
        self.writer = writer
        self.space, self.reduced = space, {axis + len(space) for axis in axes}
        self.groups = _merged(space, self.reduced, _shapes(roots))
        grid = [
            product(space[a] for a in group) for group, is_reduced in self.groups if not is_reduced
        ]
        self.kernel = KernelBody(name, grid)
        self.indices = self._indices()
        self.known: dict[Expr, Term] = {}
        for root in roots:
            self._store(root)

    def _indices(self) -> list[Term]:
        """The index of each group of axes: an element's, or the loop's."""
        indices = iter(self.kernel.indices)
        sizes = [product(self.space[a] for a in g) for g, is_reduced in self.groups if is_reduced]
        if not sizes:
            return list(indices)
        self.loop = self.kernel.loop(product(sizes))
        looped = iter(self.kernel.unravel(self.loop, sizes))
        return [next(looped) if reduced else next(indices) for _, reduced in self.groups]

    def _store(self, root: Root) -> None:
        out = self.writer.operand(root.value)
        shape = root.expr.shape
        if product(shape) != out.type.numel:
            shape = out.type.shape
        sizes, indices = self._access(shape)
        value = self._lower(root.expr)
        self.kernel.store(Ref(self.kernel, out, sizes), indices, value)

    def _access(self, shape: Shape) -> tuple[Shape, list[Term]]:
        """A shape with merged axes, and the indices of the current element in it."""
        padded = (1,) * (len(self.space) - len(shape)) + tuple(shape)
        sizes = [product(padded[axis] for axis in group) for group, _ in self.groups]
        pairs = zip(sizes, self.groups, self.indices, strict=True)
        merged = [
            (size, index)
            for size, (_, is_reduced), index in pairs
            if not (is_reduced and size == 1)
        ]
        return tuple(s for s, _ in merged), [0 if s == 1 else i for s, i in merged]

    def _lower(self, root: Expr) -> Term:
        """Lower an expression over shapes to scalars."""
        for part in ordered(root):
            if part not in self.known:
                self.known[part] = self._part(part)
        return self.known[root]

    def _part(self, part: Expr) -> Term:
        args = tuple(self.known[a] if isinstance(a, Expr) else a for a in part.args)
        if part.is_leaf:
            operand = self.writer.operand(cast(PlannedValue, part.extra))
            sizes, indices = self._access(part.shape)
            return Ref(self.kernel, operand, sizes).at(*indices)
        if part.fn == "full":
            return self.kernel.node("full", args, part.dtype)
        if part.fn == "astype":
            return self.kernel.astype(args[0], part.dtype)
        if part.fn == BY_KEY:
            keys = self.writer.operand(cast(PlannedValue, part.parts()[0].extra))
            return random_element(self.kernel, part, keys, *self._access(part.shape))
        if part.fn.startswith("reduce_"):
            return self._reduced(part, args[0])
        return self.kernel.node(part.fn, args, part.dtype)

    def _reduced(self, part: Expr, value: Term) -> Term:
        """A reduction; nested ones by the same function are one loop over the axes of both."""
        inner = part.args[0]
        if isinstance(inner, Expr) and inner.fn == part.fn:
            return value
        return getattr(self.kernel, part.fn.removeprefix("reduce_"))(value, self.loop)


def _shapes(roots: Iterable[Root]) -> list[Shape]:
    """The shapes of all operands and intermediates of a kernel."""
    parts = all_parts(root.expr for root in roots)
    return [part.shape for part in parts] + [root.value.type.shape for root in roots]


def _merged(
    space: Shape, reduced: set[int], shapes: Sequence[Shape]
) -> list[tuple[list[int], bool]]:
    """Merge adjacent axes that the same shapes have, with a flag for groups that are reduced."""
    rank = len(space)
    padded = {(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes if len(shape) <= rank}
    in_order = sorted(padded, key=str)
    varies = [tuple(shape[axis] == space[axis] for shape in in_order) for axis in range(rank)]
    groups: list[tuple[list[int], bool]] = []
    for axis in range(rank):
        same = groups and varies[groups[-1][0][0]] == varies[axis]
        if same and groups[-1][1] == (axis in reduced):
            groups[-1][0].append(axis)
        else:
            groups.append(([axis], axis in reduced))
    return groups
