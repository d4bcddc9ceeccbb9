"""The gradient ops of attention, and the one op in place of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import GRAD
from compiler.passes.base import role_of
from compiler.support.dataclass import dataclass

BY_KEY = "dropout_by_key"
"""A dropout whose gradient draws the same numbers, see the pass `draw_keys`."""

MOVES = frozenset({"cast", "reshape", "reshape2"})
"""Ops between the products that compute nothing."""

_GRADIENTS_OF_MOVES = frozenset({"reshape_grad", "reshape2_grad"})


@dataclass(frozen=True)
class AttentionGradient:
    """The gradients of the second product, of the softmax and of the first product.

    `between` are casts, reshapes, and the gradient of a dropout.
    """

    second: Op
    softmax: Op
    first: Op
    between: tuple[Op, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops."""
        return (self.second, self.softmax, self.first, *self.between)


@dataclass(frozen=True)
class TransposedOperand:
    """An operand of a product, what it is a transpose of, and the order of the transpose's axes.

    `order` is None if the operand is read as it is.
    """

    var: Var
    source: Var
    order: Sequence[int] | None


def find_gradient(
    g: Graph, first: Op, softmax: Op, dropout: Op | None, second: Op
) -> AttentionGradient | None:
    """Return the gradient ops of both products, the softmax and the dropout, if there is one.

    All gradients must be computed, and what is between them read by these ops alone.
    """
    weights = second["X"]
    by_second = _reader(g, weights, f"{second.kind}_grad")
    if by_second is None or by_second["X"] is not weights or not _has_both(by_second):
        return None
    by_softmax, between = _following(g, by_second["X" + GRAD], "softmax_grad", dropout)
    if by_softmax is None or by_softmax["Out"] is not softmax["Out"]:
        return None
    by_first, casts = _following(g, by_softmax["X" + GRAD], f"{first.kind}_grad", None)
    if by_first is None or by_first["X"] is not first["X"] or by_first["Y"] is not first["Y"]:
        return None
    if by_second["Y"] is not second["Y"] or not _has_both(by_first):
        return None
    if by_first.attrs.get("alpha", 1.0) != first.attrs.get("alpha", 1.0):
        return None
    return AttentionGradient(by_second, by_softmax, by_first, (*between, *casts))


def _reader(g: Graph, var: Var, kind: str) -> Op | None:
    return next((op for op in g.readers(var) if op.kind == kind), None)


def _following(
    g: Graph, var: Var, kind: str, dropout: Op | None
) -> tuple[Op | None, tuple[Op, ...]]:
    """Return the op of a kind that a var is for, and the casts, reshapes and the gradient of a
    dropout before it; None if a value has other readers, or the gradient is missing.
    """
    readers = g.readers(var)
    if len(readers) != 1 or var in g.results or g.overwriter(var) is not None:
        return None, ()
    op = readers[0]
    if op.kind == kind:
        return (op if dropout is None else None), ()
    if op.kind in MOVES:
        found, between = _following(g, op["Out"], kind, dropout)
    elif op.kind in _GRADIENTS_OF_MOVES:
        found, between = _following(g, op["X" + GRAD], kind, dropout)
    elif dropout is not None and _is_gradient(op, dropout):
        found, between = _following(g, op["Out"], kind, None)
    else:
        return None, ()
    return found, (op, *between)


def _is_gradient(op: Op, dropout: Op) -> bool:
    """Whether an op drops the gradients of what a dropout by key drops."""
    if op.kind != BY_KEY or op["Key"] is not dropout["Key"]:
        return False
    return op.defn.attributes == dropout.defn.attributes and not op.outputs.get("Mask")


def _has_both(product: Op) -> bool:
    """Whether a gradient op computes those of both factors."""
    return all(product.outputs.get(slot + GRAD) for slot in ("X", "Y"))


def fold_scales(g: Graph, first: Op, by_first: Op) -> bool:
    """(a * x) @ y, and its gradients, the one by x times a  =  a * (x @ y), and its gradients.

    Returns whether it changed something: the transposes that compute x can then become an order.
    """
    for slot in ("X", "Y") if "alpha" in first.defn.attributes else ():
        scale, after = g.producer(first[slot]), g.readers(by_first[slot + GRAD])
        if scale is None or len(after) != 1 or not _are_alike(scale, after[0]):
            continue
        if _is_needed(g, first[slot], {first, by_first}) or g.overwriter(scale["X"]) is not None:
            continue
        if _is_needed(g, by_first[slot + GRAD], {*after}):
            continue
        alpha = first.defn.attributes["alpha"] * scale.defn.attributes["scale"]
        gradient = after[0]["Out"]
        g.remove(after[0])
        for op, outputs in ((first, {}), (by_first, {slot + GRAD: [gradient]})):
            inputs = {**op.inputs, slot: [scale["X"]]}
            g.replace(op, op.kind, inputs, {**op.outputs, **outputs}, {**op.attrs, "alpha": alpha})
        g.remove(scale)
        return True
    return False


def _are_alike(scale: Op, gradient: Op) -> bool:
    """Whether both ops multiply by the same number."""
    if scale.kind != "scale" or gradient.kind != "scale":
        return False
    own, other = scale.defn.attributes, gradient.defn.attributes
    is_computed = scale.inputs.get("ScaleTensor") or gradient.inputs.get("ScaleTensor")
    return not is_computed and own["scale"] == other["scale"] and own["bias"] == other["bias"] == 0


def _is_needed(g: Graph, var: Var, readers: set[Op]) -> bool:
    """Whether anything but these ops needs a var."""
    others = not {*g.readers(var)} <= readers
    return others or var in g.results or g.overwriter(var) is not None


def expand_transpose_gradients(g: Graph, values: Sequence[Var]) -> None:
    """Make gradients of the transposes that compute or read values transposes themselves.

    Their shapes are then read no more, so that the transposes can become orders of axes.
    """
    around = [op for var in values for op in (g.producer(var), *g.readers(var)) if op is not None]
    shapes = [var for op in dict.fromkeys(around) for var in op.outputs.get("XShape", ())]
    for op in [op for var in shapes for op in g.readers(var) if op.kind == "transpose2_grad"]:
        axis = _inverse(op.defn.attributes["axis"])
        inputs, outputs = {"X": [op["Out" + GRAD]]}, {"Out": [op["X" + GRAD]]}
        g.replace(op, "transpose", inputs, outputs, {"axis": axis} | role_of(op))


def replace_gradient(
    g: Graph, kind: str, gradient: AttentionGradient, inputs: Mapping[str, list[Var]],
    operands: Sequence[TransposedOperand], result: TransposedOperand, attrs: Mapping[str, object],
) -> None:  # fmt: skip
    """Replace gradient ops by one; `operands` are q, k and v, `result` is that of the attention."""
    first, second = gradient.first, gradient.second
    by_product = (first["X" + GRAD], first["Y" + GRAD], second["Y" + GRAD])
    upstream, place, source = second["Out" + GRAD], second.position, gradient.softmax.source
    g.remove(*gradient.ops)
    d_out = _transposed_before(g, upstream, result, place)
    pairs = list(zip(by_product, operands, strict=True))
    written = [_transposed_after(g, var, operand) for var, operand in pairs]
    slots = {f"{name}{GRAD}": [var] for name, var in zip("QKV", written, strict=True)}
    merged = {**inputs, "Out" + GRAD: [d_out]}
    g.op(f"{kind}_grad", merged, slots, {**attrs, **role_of(gradient.softmax)}, source, place=place)
    for var, (original, operand) in zip(written, pairs, strict=True):
        if var is not original and original in g:
            axis = [*(operand.order or ())]
            x, out = {"X": [var]}, {"Out": [original]}
            g.op("transpose", x, out, {"axis": axis}, source, place=place)


def _transposed_before(
    g: Graph, upstream: Var, result: TransposedOperand, place: tuple[int, ...]
) -> Var:
    """Return the gradient of the result in the layout that the fused op writes the result in."""
    if result.order is None:
        return upstream
    maker = g.producer(upstream)
    is_inverse = maker is not None and maker.kind == "transpose" and (
        maker.defn.attributes["axis"] == _inverse(result.order)
    )  # fmt: skip
    if maker is not None and is_inverse and g.overwriter(maker["X"]) is None:
        original = maker["X"]
        if not g.readers(upstream) and upstream not in g.results:
            g.remove(maker)
        return original
    out = g.fresh(f"{upstream.label}@order", result.source.type)
    g.op("transpose", {"X": [upstream]}, {"Out": [out]}, {"axis": [*result.order]}, place=place)
    return out


def _transposed_after(g: Graph, var: Var, operand: TransposedOperand) -> Var:
    """Return the var that the gradient of an operand is written to, in the operand's layout.

    The transpose that reads the gradient alone is removed, if it is the inverse.
    """
    if operand.order is None:
        return var
    readers = g.readers(var)
    if len(readers) == 1 and readers[0].kind == "transpose" and var not in g.results:
        reader = readers[0]
        if reader.defn.attributes["axis"] == _inverse(operand.order):
            out = reader["Out"]
            g.remove(reader)
            g.drop(var)
            return out
    return g.fresh(f"{var.label}@order", operand.source.type)


def _inverse(order: Sequence[int]) -> list[int]:
    """Return the order that undoes an order of axes.

    >>> _inverse([2, 0, 1])
    [1, 2, 0]
    """
    return sorted(range(len(order)), key=order.__getitem__)
