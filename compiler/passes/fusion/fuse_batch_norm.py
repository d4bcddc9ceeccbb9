"""Fold a trained batch norm into the weights of the layer before it (seed 002, inference only).

A batch norm that normalises with running statistics is y = (h - mean) * k + shift for each
channel, with k = scale / sqrt(variance + epsilon). After a convolution or a matrix product, whose
output channels scale with their weights, that is the same layer with other numbers:

    conv(x, w) + b, normalised  =  conv(x, w * k) + ((b - mean) * k + shift)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import Pointwise
from compiler.ir.types import Array
from compiler.passes.base import Context, Fact, Pass, role_of
from compiler.passes.norm_folding import (
    NORMS,
    VECTORS,
    WEIGHTS,
    Layer,
    factor_and_shift,
    is_frozen,
    norm_axis,
)
from compiler.passes.simplify.value_replacement import is_read
from compiler.passes.state import add_state, refuse_state


@dataclass(frozen=True)
class _Match:
    """A layer, the bias added to it (if any), and the batch norm behind them."""

    layer: Op
    bias: Op | None
    norm: Op

    @property
    def weight(self) -> Var:
        return self.layer[WEIGHTS[self.layer.kind]]

    @property
    def scaling(self) -> Layer:
        """What is known of scaling the layer."""
        shape = tuple(size for size in self.weight.type.shape if isinstance(size, int))
        return Layer(self.layer.kind, self.layer.defn.attributes, shape)

    @property
    def added(self) -> list[Var]:
        """The vectors that are added to the layer's output."""
        own = self.layer.inputs.get("Bias", [])
        return own if self.bias is None else [*own, self.bias["Y"]]

    @property
    def axis(self) -> int:
        """The axis the batch norm takes for channels."""
        return norm_axis(self.norm.defn.attributes, self.norm["X"].type.rank)


class FuseBatchNorm(Pass):
    """(x @ w + b - mean) * k + shift  =  x @ (w * k) + ((b - mean) * k + shift).

    The new weights are new state, `w@bn` and `b@bn` in `ctx.params`, so a filter that other layers
    share stays as it is. Refuses, with the reason, whatever would change a number anyone else sees.
    """

    name = "fuse_batch_norm"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit batch norms in order, so that of two in a row the first is folded first."""
        for norm in [op for op in g.ops() if op.kind in NORMS]:
            found = _match(g, norm)
            why = found if isinstance(found, str) else _refuse(g, found, ctx)
            if why or isinstance(found, str):
                ctx.note_missed(self.name, norm, why)
                continue
            _rewrite(g, found, ctx)


def _match(g: Graph, norm: Op) -> _Match | str:
    """The layer behind a batch norm's input, through the bias added to it; or why there is none."""
    if not is_frozen(norm.defn.attributes):
        return "it normalises with the statistics of the batch (training)"
    below = g.producer(norm["X"])
    bias = below if below is not None and below.kind == "elementwise_add" else None
    layer = g.producer(bias["X"]) if bias is not None else below
    if layer is None or layer.kind not in WEIGHTS:
        found = "no op" if layer is None else layer.kind
        return f"its input comes from {found}: neither a convolution nor a product of matrices"
    return _Match(layer, bias, norm)


# ---- missed ----------------------------------------------------------------------------------


def _refuse(g: Graph, match: _Match, ctx: Context) -> str:
    """Why a match must not be folded; empty if it may."""
    return _refuse_shapes(match) or _refuse_readers(g, match) or _refuse_state(g, match, ctx)


def _refuse_shapes(match: _Match) -> str:
    """Channels are those of the layer, and what is added is one number for each."""
    axis, rank = match.axis, match.norm["X"].type.rank
    found = match.scaling.channel_axis(match.layer.writes()[0].type.rank)
    if why := match.scaling.refusal():
        return why
    if axis != found:
        return f"it normalises along axis {axis} of {rank}, {match.layer.kind} has axis {found}"
    if match.bias is not None and not _is_vector(match.bias, axis):
        return f"{match.bias['Y']!r} is not one number for each channel"
    return ""


def _is_vector(bias: Op, axis: int) -> bool:
    """True where Y is added along one axis of X alone."""
    views = cast(Pointwise, bias.defn).views(bias.defn.types_of(bias.inputs))
    view = (1,) * (bias["X"].type.rank - len(views["Y"])) + tuple(views["Y"])
    fits = len(view) == bias["Out"].type.rank and bias["X"].type == bias["Out"].type
    return fits and all(size == 1 for place, size in enumerate(view) if place != axis)


def _refuse_readers(g: Graph, match: _Match) -> str:
    """Nobody else sees what the layer made before, nor the statistics."""
    for op in filter(None, (match.layer, match.bias)):
        out = op.writes()[0]
        if len(g.readers(out)) > 1 or out in g.results or g.overwriter(out) is not None:
            return f"{out.label!r} has other readers"
    return refuse_statistics(g, match.norm)


def _refuse_state(g: Graph, match: _Match, ctx: Context) -> str:
    """All that is folded is state, and is lent."""
    folded = [match.weight, *(match.norm[slot] for slot in VECTORS), *match.added]
    return refuse_state(g, folded, match.norm, ctx)


def refuse_statistics(g: Graph, norm: Op) -> str:
    """Why a batch norm must stay for what it makes besides Y; empty if it need not."""
    rest = (var for var in norm.writes() if var is not norm["Y"])
    return next((f"{var.label!r} is read" for var in rest if is_read(g, var)), "")


# ---- the rewrite -------------------------------------------------------------------------------


def _rewrite(g: Graph, match: _Match, ctx: Context) -> None:
    weight, shift = _folded(match, ctx)
    layer, norm, hidden = match.layer, match.norm, match.layer.writes()[0]
    w = add_state(g, match.weight.name + "@bn", weight, match.weight.type.dtype, ctx)
    b = add_state(g, norm["Bias"].name + "@bn", shift, hidden.type.dtype, ctx)
    g.remove(*filter(None, [match.bias]))
    inputs = {slot: vars for slot, vars in layer.inputs.items() if slot != "Bias"}
    inputs[WEIGHTS[layer.kind]] = [w]
    g.replace(layer, layer.kind, inputs, layer.outputs, layer.attrs)
    g.replace(
        norm, "elementwise_add", {"X": [hidden], "Y": [b]}, {"Out": [norm["Y"]]},
        {"axis": match.axis} | role_of(norm),
    )  # fmt: skip


def _folded(match: _Match, ctx: Context) -> tuple[Array, Array]:
    """The scaled weights and the bias that stands for everything added, computed in float64."""
    assert ctx.params is not None
    params = ctx.params
    factor, shift = known_factor(match.norm, ctx)
    for var in match.added:
        shift = shift + np.asarray(params[var.name], np.float64).reshape(-1) * factor
    return match.scaling.scaled(np.asarray(params[match.weight.name]), factor), shift


def known_factor(norm: Op, ctx: Context) -> tuple[Array, Array]:
    """What a batch norm over lent state multiplies a channel by and adds to it, in float64."""
    assert ctx.params is not None
    lent = ctx.params
    scale, bias, mean, variance = (np.asarray(lent[norm[slot].name]) for slot in VECTORS)
    return factor_and_shift(scale, bias, mean, variance, norm.defn.attributes["epsilon"])
