"""The rewrite of pass `layout`: ops over permuted copies of their operands.

A permuted copy is computed by its op directly, or by a transpose before its first reader; the
original is transposed back if an op reads it in the original layout. If only one axis has a size
other than 1, no data moves, and a view suffices.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from compiler.ir.dims import Dim, evaluate, product
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import GradOp
from compiler.ir.opdef.attribute_bounds import MAX_INT
from compiler.ir.opdef.layout_rules import (
    Order,
    PermutedOp,
    Prepermuted,
    back,
    channels_last,
    in_order,
)
from compiler.ir.types import Shape
from compiler.passes.base import Context, role_of

MANY_PIXELS = 256
"""Pixels of a batch from which a filter is transposed in each step: four tiles read it."""

HALF_BYTES = 2
"""Bytes of the types that matrix units multiply, wherever their runs of elements lie."""


def layout_operands(op: Op, permuted: PermutedOp) -> list[Var]:
    """Return the operands of an op that are permuted."""
    slots = {**op.inputs, **op.outputs}
    return [var for slot, vars in slots.items() if slot in permuted.slots for var in vars]


def is_free_transpose(var: Var) -> bool:
    """Whether at most one axis after the batch axis has a size other than 1: transposing is a
    view.
    """
    return sum(size != 1 for size in var.type.shape[1:]) <= 1


def is_reshapable(shape: Shape, other: Shape) -> bool:
    """Whether the attributes of `reshape` can express the change of shape, in both directions."""
    if not shape or not other:
        return False
    return _view_of(shape, other).count(-1) <= 1 and _view_of(other, shape).count(-1) <= 1


def _view_of(shape: Shape, other: Shape) -> list[int]:
    """Return the `shape` attribute of a reshape: 0 keeps the first axis, -1 infers one other."""
    sizes = [-1 if isinstance(size, Dim) or size > MAX_INT else size for size in other]
    return [0 if shape[:1] == other[:1] else sizes[0], *sizes[1:]]


class PermutedCopies:
    """Rewrites ops over permuted copies of their operands."""

    def __init__(
        self, g: Graph, kept: Mapping[Op, PermutedOp], ctx: Context, permutes_filters: bool
    ) -> None:
        self.g = g
        self.permutes_filters = permutes_filters
        self.typical = ctx.typical
        self.kept = kept
        self.constants = _constants(g, ctx)
        self.copies: dict[Var, Var] = {}
        self.filters: dict[tuple[Var, Order], Var] = {}
        self.order: list[Op] = []

    def rewrite(self) -> None:
        """Visit the ops in order; transposes back follow the producer of their input."""
        needed = {var for op in self.g.ops() for var in self._original_reads(op)}
        needed |= {*self.g.results}
        for op in self.g.ops():
            if op in self.kept:
                self._permute_op(op, self.kept[op], needed)
            else:
                self.order.append(op)
        self.g.reorder(self.order)

    def _original_reads(self, op: Op) -> list[Var]:
        """Return the vars that an op reads in their original layout."""
        operands = {*layout_operands(op, self.kept[op])} if op in self.kept else set[Var]()
        return [var for var in op.reads() if var not in operands]

    def _permute_op(self, op: Op, permuted: PermutedOp, needed: set[Var]) -> None:
        """Replace an op by one over permuted copies, after the transposes that create missing
        ones.
        """
        order = channels_last(max(var.type.rank for var in op.reads() + op.writes()))
        for var in _vars_in(op.inputs, permuted.slots):
            if var not in self.copies:
                self._transpose(var, self._add_copy(var, order), order, op)
        outputs = _vars_in(op.outputs, permuted.slots)
        for var in outputs:
            self._add_copy(var, order)
        ahead = self._prepermuted(op, permuted.ahead, outputs)
        views = self._reshaped_views(op, permuted)
        self.g.remove(op)
        others = [
            (permuted.slots, self.copies),
            (permuted.ahead.orders, ahead),
            (permuted.views, views),
        ]
        attrs = {**op.attrs, **permuted.attrs, **(permuted.ahead.attrs if ahead else {})}
        self._add(op, op.kind, _with(op.inputs, others), _with(op.outputs, others), attrs)
        for var in (var for var in outputs if var in needed):
            self._transpose(self.copies[var], var, back(order), op)
        for var in _vars_in(op.outputs, permuted.views):
            self._reshape(views[var], var, op)

    def _prepermuted(self, op: Op, ahead: Prepermuted, made: Sequence[Var]) -> dict[Var, Var]:
        """Return permuted copies of the inputs that an op prefers so: of all of them, or none.

        They are constants, which are transposed at compile time, or filters of training, which are
        in each step. `made` are the images that the op computes.
        """
        if isinstance(op.defn, GradOp) and not self.permutes_filters:
            return {}
        axes_by_var = {v: axes for s, axes in ahead.orders.items() for v in op.inputs.get(s, ())}
        if not all(v in self.constants or self._is_filter(v, made) for v in axes_by_var):
            return {}
        for var, axes in axes_by_var.items():
            if (var, axes) not in self.filters:
                self.filters[var, axes] = self._fresh(var, axes)
                self._transpose_filter(var, self.filters[var, axes], axes, op)
        return {var: self.filters[var, axes] for var, axes in axes_by_var.items()}

    def _is_filter(self, var: Var, made: Sequence[Var]) -> bool:
        """Whether a var is state, or cast from it, that pays to be transposed in each step.

        Matrix units read filters of one tap as fast in either order. For few pixels, transposing
        costs more than it saves.
        """
        if not self.permutes_filters or (var.role != "param" and self._cast(var) is None):
            return False
        one_tap = product(var.type.shape[2:]) == 1
        if one_tap and var.type.dtype.itemsize == HALF_BYTES:
            return False
        return max(_pixels(output, self.typical) for output in made) >= MANY_PIXELS

    def _cast(self, var: Var) -> Op | None:
        """The op that casts a var from state; None if it is computed otherwise."""
        cast = self.g.producer(var)
        is_cast = cast is not None and cast.kind == "cast" and cast.reads()[0].role == "param"
        return cast if is_cast else None

    def _transpose_filter(self, var: Var, out: Var, axes: Order, op: Op) -> None:
        """Insert a transpose, or one of what a var is cast from, which the same kernel casts."""
        cast = None if var in self.constants else self._cast(var)
        if cast is None:
            self._transpose(var, out, axes, op)
            return
        source = cast.reads()[0]
        moved = self._fresh(source, axes)
        self._edge(op, "transpose", source, moved, {"axis": [*axes]})
        self._add(op, "cast", {"X": [moved]}, {"Out": [out]}, cast.attrs)

    def _reshaped_views(self, op: Op, permuted: PermutedOp) -> dict[Var, Var]:
        """Return reshaped views of operands that are not permuted."""
        views = dict[Var, Var]()
        for slot, shape in permuted.views.items():
            for var in (*op.inputs.get(slot, ()), *op.outputs.get(slot, ())):
                views[var] = self.g.fresh(f"{var.label}@view", var.type.with_shape(shape))
        for var in _vars_in(op.inputs, permuted.views):
            self._reshape(var, views[var], op)
        return views

    def _add_copy(self, var: Var, order: Order) -> Var:
        self.copies[var] = self._fresh(var, order)
        return self.copies[var]

    def _fresh(self, var: Var, order: Order) -> Var:
        return self.g.fresh(f"{var.label}@last", in_order(var.type, order))

    def _transpose(self, x: Var, out: Var, order: Order, op: Op) -> None:
        """Insert a transpose, or a reshape if that moves no data."""
        if order[0] == 0 and is_free_transpose(x):
            self._reshape(x, out, op)
        else:
            self._edge(op, "transpose", x, out, {"axis": [*order]})

    def _reshape(self, x: Var, out: Var, op: Op) -> None:
        self._edge(op, "reshape", x, out, {"shape": _view_of(x.type.shape, out.type.shape)})

    def _edge(self, op: Op, kind: str, x: Var, out: Var, attrs: Mapping[str, object]) -> None:
        self._add(op, kind, {"X": [x]}, {"Out": [out]}, {**attrs, **role_of(op)})

    def _add(
        self,
        op: Op,
        kind: str,
        inputs: Mapping[str, Sequence[Var]],
        outputs: Mapping[str, Sequence[Var]],
        attrs: Mapping[str, object],
    ) -> None:
        """Append an op that replaces another one or belongs to it."""
        self.order.append(self.g.op(kind, inputs, outputs, attrs, op.source))


def _pixels(images: Var, typical: int) -> int:
    """The number of pixels of a batch of images, channels first."""
    batch, _, *size = images.type.shape
    return evaluate(product((batch, *size)), dict.fromkeys(images.type.names, typical))


def _constants(g: Graph, ctx: Context) -> set[Var]:
    """Return constant state that was passed in, and values computed from it alone."""
    passed_in, fixed = ctx.params or {}, (v for v in g.params() if g.producer(v) is None)
    constants = {var for var in fixed if var.name in passed_in and g.overwriter(var) is None}
    for op in g.ops():
        pure = op.body is None and not (op.defn.has_effects or op.defn.is_random)
        if pure and op.reads() and all(var in constants for var in op.reads()):
            constants |= {*op.writes()}
    return constants


def _vars_in(slots: Mapping[str, Sequence[Var]], chosen: Container[str]) -> list[Var]:
    """Return the distinct vars of some of the slots."""
    return list(dict.fromkeys(var for s, vars in slots.items() if s in chosen for var in vars))


def _with(
    slots: Mapping[str, Sequence[Var]],
    others: Sequence[tuple[Container[str], Mapping[Var, Var]]],
) -> dict[str, list[Var]]:
    """Replace vars in slots by the mapping of their slot."""
    return {
        slot: [
            next((new[var] for chosen, new in others if slot in chosen and var in new), var)
            for var in vars
        ]
        for slot, vars in slots.items()
    }
