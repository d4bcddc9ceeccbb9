"""Attention as one op: two products with a softmax between them, and what stands around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from compiler.ir.attention import AttentionSupport
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import DType, TensorType
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass, role_of
from compiler.passes.fusion.attention_gradients import (
    BY_KEY,
    MOVES,
    AttentionGradient,
    TransposedOperand,
    expand_transpose_gradients,
    find_gradient,
    fold_scales,
    replace_gradient,
)
from compiler.passes.fusion.causal_masks import is_causal_mask, remove_unused_mask
from compiler.passes.simplify.value_replacement import is_wanted
from compiler.support.dataclass import dataclass

KIND = "scaled_dot_product_attention"

PRODUCTS = {"matmul": ("transpose_X", "transpose_Y"), "matmul_v2": ("trans_x", "trans_y")}
"""Products, and their attributes that transpose the last axes of X and Y."""

_TRANSPOSES = frozenset({"transpose", "transpose2"})
_DROPOUT_ATTRIBUTES = ("dropout_prob", "dropout_implementation", "place")
_DROPOUTS = frozenset({BY_KEY, "dropout"})
_WIDE = frozenset({DType.FP32, DType.FP64})
_ANY = AttentionSupport(_WIDE, _WIDE)


@dataclass(frozen=True)
class _Match:
    """Two products, the ops from the first one to a softmax, and those from it to the second."""

    first: Op
    before: tuple[Op, ...]
    softmax: Op
    after: tuple[Op, ...]
    second: Op
    gradient: AttentionGradient | None = None

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops but the second product: their results are in no memory if they are fused."""
        return (self.first, *self.before, self.softmax, *self.after)

    @property
    def users(self) -> set[Op]:
        """The ops that read q, k and v."""
        gradient = self.gradient.ops if self.gradient is not None else ()
        return {self.first, self.second, *gradient}

    @property
    def masks(self) -> list[Op]:
        """The additions to the scores."""
        return [op for op in self.before if op.kind == "elementwise_add"]

    @property
    def dropout(self) -> Op | None:
        """The dropout of the softmax."""
        return next((op for op in self.after if op.kind in _DROPOUTS), None)


@dataclass(frozen=True)
class _Matrices:
    """A var, the order in which its axes are those of a stack of matrices, and its factor.

    `order` is that of the transpose between it and a product, if there is one.
    """

    var: Var
    axes: Sequence[int]
    factor: float = 1.0
    order: Sequence[int] | None = None


class FuseAttention(Pass):
    """dropout(softmax(a * q @ kᵀ + mask)) @ v  =  one op, which needs no memory for scores.

    Transposes of q, k, v and of the result become orders of axes, and scales factors. If an op
    between the products computes something else, or its result has other readers, all remain.
    `support` are the kernels that the target has; scores of half precision become float32. Gradient
    ops are fused with their forward ops.
    """

    name = "fuse_attention"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def __init__(self, support: AttentionSupport = _ANY) -> None:
        self._support = support

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run for targets that have a kernel of attention."""
        if target is None or not target.attention.types or cls.name in options.disable:
            return None
        return cls(target.attention)

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit every softmax between two products."""
        for softmax in [op for op in g.ops() if op.kind == "softmax"]:
            match = _match(g, softmax)
            if match is None:
                continue
            if why := _obstacle(g, match, self._support):
                ctx.note_missed(self.name, softmax, why)
                continue
            while match is not None and match.gradient is not None:
                if not fold_scales(g, match.first, match.gradient.first):
                    break
                match = _match(g, softmax)
            if match is not None:
                _rewrite(g, match, ctx, self._support)


# ---- the ops -----------------------------------------------------------------------------------


def _match(g: Graph, softmax: Op) -> _Match | None:
    """Return the products around a softmax; None if it is not between two."""
    before, after = _ops_before(g, softmax["X"]), _ops_after(g, softmax["Out"])
    if not before or not after:
        return None
    first, second = before[0], after[-1]
    match = _Match(first, before[1:], softmax, after[:-1], second)
    if any(op.kind == "scale" for op in match.ops):
        return match
    return replace(match, gradient=find_gradient(g, first, softmax, match.dropout, second))


def _ops_before(g: Graph, var: Var) -> tuple[Op, ...]:
    """Return a product and the ops from it to a var; none if the var is not computed so."""
    op = g.producer(var)
    if op is None or op.kind in PRODUCTS:
        return (op,) if op is not None else ()
    if op.kind not in ("scale", "elementwise_add", *MOVES):
        return ()
    scores = [op["X"]]
    if op.kind == "elementwise_add" and op["X"].type == op["Y"].type:
        scores.append(op["Y"])
    return next(((*found, op) for x in scores if (found := _ops_before(g, x))), ())


def _ops_after(g: Graph, var: Var) -> tuple[Op, ...]:
    """Return the ops from a var to a product whose X it is; none if there is no such product."""
    for op in g.readers(var):
        if op.kind in PRODUCTS and op["X"] is var:
            return (op,)
        if op.kind in ("scale", *MOVES, *_DROPOUTS) and (found := _ops_after(g, op["Out"])):
            return (op, *found)
    return ()


# ---- obstacles ---------------------------------------------------------------------------------


def _obstacle(g: Graph, match: _Match, support: AttentionSupport) -> str:
    """Return why the ops of a match remain; empty if they may be one."""
    types = support.types if match.gradient is None else support.gradient_types
    return (
        _reader_obstacle(g, match)
        or _op_obstacle(match)
        or _dropout_obstacle(match)
        or _type_obstacle(match, types)
        or _shape_obstacle(match)
    )


def _reader_obstacle(g: Graph, match: _Match) -> str:
    """Return which value between the products is needed otherwise."""
    own = {*match.ops, *match.users}
    between = [op["Out"] for op in match.ops]
    for out in between:
        if not {*g.readers(out)} <= own or out in g.results or g.overwriter(out) is not None:
            return f"{out.label!r} has other readers"
    shapes = [var for op in match.ops for var in op.outputs.get("XShape", ())]
    if any(not {*g.readers(var)} <= own or var in g.results for var in shapes):
        return "the shape of its scores is read"
    if match.gradient is not None and g.overwriter(_last(g, match)[0]["Out"]) is not None:
        return "its result is overwritten"
    if {match.second["Y"], *(_mask(match, op) for op in match.masks)} & {*between}:
        return "its mask or its values are computed from its scores"
    return ""


def _op_obstacle(match: _Match) -> str:
    """Return which op computes something else than attention."""
    softmax, scales = match.softmax, [op for op in match.ops if op.kind == "scale"]
    if softmax.defn.attributes["axis"] not in (-1, softmax["X"].type.rank - 1):
        return "its softmax is not along the last axis"
    if not all(map(_is_factor, scales)):
        return "one of its scales adds a bias, or its factor is computed"
    if match.second.defn.attributes[PRODUCTS[match.second.kind][0]]:
        return "its second product transposes the softmax"
    if match.second.defn.attributes[PRODUCTS[match.second.kind][1]]:
        return "its values are transposed"
    if _is_reshaped(match):
        return "its scores are reshaped"
    if len(match.masks) > 1:
        return "several masks are added to its scores"
    if match.masks and match.before[-1].kind == "scale":
        return "its mask is scaled with its scores"
    return ""


def _is_reshaped(match: _Match) -> bool:
    """Whether rows of scores are not those of the softmax, or a mask is added to other rows."""
    scores = match.first["Out"].type.shape
    own = {op["Out"].type.shape for op in match.masks} | {match.second["X"].type.shape}
    widths = {op["Out"].type.shape[-1:] for op in match.ops}
    return own != {scores} or widths != {scores[-1:]}


def _dropout_obstacle(match: _Match) -> str:
    """Return why no kernel draws what a dropout drops."""
    dropouts = [op for op in match.after if op.kind in _DROPOUTS]
    if not dropouts:
        return ""
    if len(dropouts) > 1 or dropouts[0].kind != BY_KEY:
        return "the mask of its dropout is in memory"
    if dropouts[0].outputs.get("Mask") or dropouts[0].defn.attributes["is_test"]:
        return "the mask of its dropout is read"
    return ""


def _is_factor(scale: Op) -> bool:
    """Whether an op multiplies by a number that is known."""
    return not scale.inputs.get("ScaleTensor") and scale.defn.attributes["bias"] == 0


def _type_obstacle(match: _Match, types: frozenset[DType]) -> str:
    """Return which element types no kernel computes in."""
    own = match.first["Out"].type.dtype
    if not types:
        return "the target has no kernel of its gradients"
    if own not in types:
        names = " or ".join(sorted(dtype.text for dtype in types))
        kernels = "attention" if match.gradient is None else "its gradients"
        return f"its products are {own.text}, and kernels of {kernels} {names}"
    scores = {own} if own in _WIDE else {own, DType.FP32}
    if not {op["Out"].type.dtype for op in match.ops} <= scores:
        return "its scores are cast to another type"
    return ""


def _shape_obstacle(match: _Match) -> str:
    """Return which shapes no kernel computes with."""
    first, second = match.first, match.second
    scores, values = first["Out"].type, second["Y"].type
    if any(UNKNOWN in var.type.shape for op in (first, second) for var in (op["X"], op["Y"])):
        return "its sizes are data-dependent"
    ranks = {var.type.rank for op in (first, second) for var in (op["X"], op["Y"], op["Out"])}
    if len(ranks) > 1 or min(ranks) < 2:
        return "its operands have different numbers of axes"
    stacks = {var.type.shape[:-2] for var in (first["X"], first["Y"], second["Y"])}
    if len(stacks) > 1 or scores.shape[:-2] != values.shape[:-2]:
        return "its operands are repeated for others"
    is_transposed = first.defn.attributes[PRODUCTS[first.kind][0]]
    widths = first["X"].type.shape[-2 if is_transposed else -1], second["Out"].type.shape[-1]
    if not all(isinstance(size, int) for size in widths):
        return "its queries or values have an open width"
    if scores.shape[-2] == 1:
        return "it has one query, whose scores are few"
    return next((why for op in match.masks if (why := _mask_obstacle(match, op))), "")


def _mask_obstacle(match: _Match, addition: Op) -> str:
    """Return why a mask does not broadcast to the last axes of the scores."""
    scores, mask = match.first["Out"].type, _mask(match, addition).type
    axis = addition.defn.attributes["axis"]
    if mask.rank > scores.rank or axis not in (-1, scores.rank - mask.rank):
        return "its mask is not added along the last axes of its scores"
    pairs = zip(reversed(mask.shape), reversed(scores.shape), strict=False)
    if any(size not in (1, full) for size, full in pairs):
        return "its mask may have other sizes than its scores"
    return ""


# ---- rewrite -----------------------------------------------------------------------------------


def _rewrite(g: Graph, match: _Match, ctx: Context, support: AttentionSupport) -> None:
    """Replace the ops of a match, and transposes that only they read or that only read them."""
    first, second, gradient = match.first, match.second, match.gradient
    read = [first["X"], first["Y"], second["Y"]]
    if gradient is not None:
        expand_transpose_gradients(g, [*read, second["Out"]])
    matrices = _operands(g, match)
    last, out_axes = _last(g, match)
    inputs = {slot: [each.var] for slot, each in zip("QKV", matrices, strict=True)}
    mask = _mask(match, match.masks[0]) if match.masks else None
    is_causal = mask is not None and support.skips_later_keys and is_causal_mask(g, mask, ctx)
    if mask is not None and not is_causal:
        inputs["Mask"] = [mask]
    if match.dropout is not None:
        inputs["Key"] = [match.dropout["Key"]]
    attrs = _attributes(match, matrices, out_axes) | {"is_causal": is_causal}
    outputs, place, source = {"Out": [last["Out"]]}, last.position, match.softmax.source
    if gradient is not None and support.reads_statistics:
        scores = first["Out"].type.shape[:-1]
        statistics = TensorType(DType.FP32, (2, *scores))
        outputs["Statistics"] = [g.fresh(f"{match.softmax['Out'].label}@rows", statistics)]
    g.remove(*match.ops, *dict.fromkeys((second, last)))
    g.op(KIND, inputs, outputs, attrs | role_of(match.softmax), source, place=place)
    if gradient is not None:
        operands = [
            TransposedOperand(x, each.var, each.order)
            for x, each in zip(read, matrices, strict=True)
        ]
        order = out_axes if last is not second else None
        result = TransposedOperand(second["Out"], last["Out"], order)
        replace_gradient(g, KIND, gradient, {**inputs, **outputs}, operands, result, attrs)
    for var in read:
        _remove_unused(g, g.producer(var))
    if mask is not None and is_causal:
        remove_unused_mask(g, mask)
    g.sweep()


def _attributes(
    match: _Match, matrices: tuple[_Matrices, _Matrices, _Matrices], out_axes: Sequence[int]
) -> dict[str, object]:
    """Return the attributes of the fused op."""
    q, k, v = matrices
    orders = {"q_axes": q.axes, "k_axes": k.axes, "v_axes": v.axes, "out_axes": out_axes}
    dropout = {} if match.dropout is None else match.dropout.defn.attributes
    return {
        "scale": _product([match.first, *match.before]) * q.factor * k.factor,
        "factor": _product([match.second, *match.after]) * v.factor,
        **{name: dropout[name] for name in _DROPOUT_ATTRIBUTES if name in dropout},
        **{name: [*axes] for name, axes in orders.items()},
    }


def _product(ops: Sequence[Op]) -> float:
    """Return the product of what scales and products of matrices multiply by."""
    factor = 1.0
    for op in ops:
        factor *= op.defn.attributes.get("scale", op.defn.attributes.get("alpha", 1.0))
    return factor


def _operands(g: Graph, match: _Match) -> tuple[_Matrices, _Matrices, _Matrices]:
    """Return q, k and v."""
    first, second = match.first, match.second
    x_flag, y_flag = PRODUCTS[first.kind]
    q = _matrices(g, match, first["X"], first.defn.attributes[x_flag])
    k = _matrices(g, match, first["Y"], not first.defn.attributes[y_flag])
    return q, k, _matrices(g, match, second["Y"], False, last_stays=True)


def _matrices(
    g: Graph, match: _Match, var: Var, is_transposed: bool, last_stays: bool = False
) -> _Matrices:
    """Return what an operand of a product is computed from by scales and transposes.

    With `last_stays` columns remain neighbours in memory.
    """
    axes = [*range(var.type.rank)]
    if is_transposed:
        axes[-2:] = axes[:-3:-1]
    matrices, readers = _Matrices(var, axes), match.users
    while (before := _before(g, matrices, readers)) is not None:
        if last_stays and before.axes[-1] != axes[-1]:
            break
        if match.gradient is not None and (before.factor != 1.0 or matrices.order is not None):
            break
        readers = {op for op in [g.producer(matrices.var)] if op is not None}
        matrices = before
    return matrices


def _before(g: Graph, matrices: _Matrices, readers: set[Op]) -> _Matrices | None:
    """Return what a scale or a transpose reads, whose result only some ops read; or None."""
    var = matrices.var
    op = g.producer(var)
    if op is None or op.kind not in (*_TRANSPOSES, "scale") or g.overwriter(op["X"]) is not None:
        return None
    if not {*g.readers(var)} <= readers or var in g.results:
        return None
    if any(is_wanted(g, shape) for shape in op.outputs.get("XShape", ())):
        return None
    if op.kind == "scale":
        factor = matrices.factor * op.defn.attributes["scale"]
        return replace(matrices, var=op["X"], factor=factor) if _is_factor(op) else None
    order = op.defn.attributes["axis"]
    axes = [order[axis] for axis in matrices.axes]
    return replace(matrices, var=op["X"], axes=axes, order=order)


def _mask(match: _Match, addition: Op) -> Var:
    """Return the operand of an addition that is not the scores."""
    return addition["Y"] if any(op["Out"] is addition["X"] for op in match.ops) else addition["X"]


def _last(g: Graph, match: _Match) -> tuple[Op, list[int]]:
    """Return the transpose that alone reads the result, or the product; and the order of axes."""
    second = match.second
    out = second["Out"]
    readers = g.readers(out)
    plain = [*range(out.type.rank)]
    if len(readers) != 1 or readers[0].kind not in _TRANSPOSES or out in g.results:
        return second, plain
    axes = readers[0].defn.attributes["axis"]
    needed = any(is_wanted(g, var) for var in readers[0].outputs.get("XShape", ()))
    if needed or g.overwriter(out) is not None or axes[-1] != plain[-1]:
        return second, plain
    return readers[0], axes


def _remove_unused(g: Graph, op: Op | None) -> None:
    """Remove a scale or transpose whose results nothing reads, and those before it."""
    while op is not None and op.kind in (*_TRANSPOSES, "scale"):
        if any(is_wanted(g, var) for var in op.writes()):
            return
        before = g.producer(op["X"])
        g.remove(op)
        op = before
