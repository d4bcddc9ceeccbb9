"""Folding of a trained batch norm into the weights of the previous layer (inference only, seed
002).

A batch norm with running statistics is y = (h - mean) * k + shift for each channel, with k = scale
/ sqrt(variance + epsilon). After a convolution or a matrix product, whose output channels are
linear in their weights, that is the same layer with other weights:

    conv(x, w) + b, normalised  =  conv(x, w * k) + ((b - mean) * k + shift)
"""

from __future__ import annotations

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
from compiler.passes.state import add_state, state_obstacle
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class _Match:
    """A layer, the bias added to it (if any), and the batch norm after them."""

    layer: Op
    bias: Op | None
    norm: Op

    @property
    def weight(self) -> Var:
        return self.layer[WEIGHTS[self.layer.kind]]

    @property
    def scaling(self) -> Layer:
        """The layer's attributes that determine how its weights are scaled."""
        shape = tuple(size for size in self.weight.type.shape if isinstance(size, int))
        return Layer(self.layer.kind, self.layer.defn.attributes, shape)

    @property
    def added(self) -> list[Var]:
        """The vectors that are added to the layer's output."""
        own = self.layer.inputs.get("Bias", [])
        return own if self.bias is None else [*own, self.bias["Y"]]

    @property
    def axis(self) -> int:
        """The channel axis of the batch norm."""
        return norm_axis(self.norm.defn.attributes, self.norm["X"].type.rank)


class FuseBatchNorm(Pass):
    """(x @ w + b - mean) * k + shift  =  x @ (w * k) + ((b - mean) * k + shift).

    The new weights are new state, `w@bn` and `b@bn` in `ctx.params`, so a filter shared with other
    layers does not change. Not applied, with a reason, if any other visible value would change.
    """

    name = "fuse_batch_norm"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit batch norms in order, so that of two consecutive ones the first is folded first."""
        for norm in [op for op in g.ops() if op.kind in NORMS]:
            match = _match(g, norm)
            why = match if isinstance(match, str) else _obstacle(g, match, ctx)
            if why or isinstance(match, str):
                ctx.note_missed(self.name, norm, why)
                continue
            _rewrite(g, match, ctx)


def _match(g: Graph, norm: Op) -> _Match | str:
    """Return the layer and bias that produce a batch norm's input; or why they do not match."""
    if not is_frozen(norm.defn.attributes):
        return "it normalises with the statistics of the batch (training)"
    below = g.producer(norm["X"])
    bias = below if below is not None and below.kind == "elementwise_add" else None
    layer = g.producer(bias["X"]) if bias is not None else below
    if layer is None or layer.kind not in WEIGHTS:
        producer = "no op" if layer is None else layer.kind
        return f"its input comes from {producer}: neither a convolution nor a matrix product"
    return _Match(layer, bias, norm)


# ---- obstacles -------------------------------------------------------------------------------


def _obstacle(g: Graph, match: _Match, ctx: Context) -> str:
    """Return why a match must not be folded; empty if it may."""
    return _shape_obstacle(match) or _reader_obstacle(g, match) or _state_obstacle(g, match, ctx)


def _shape_obstacle(match: _Match) -> str:
    """Return why channels do not match those of the layer, or the bias is not per channel."""
    axis, rank = match.axis, match.norm["X"].type.rank
    expected = match.scaling.channel_axis(match.layer.writes()[0].type.rank)
    if why := match.scaling.refusal():
        return why
    if axis != expected:
        return f"it normalises along axis {axis} of {rank}, {match.layer.kind} has axis {expected}"
    if match.bias is not None and not _is_vector(match.bias, axis):
        return f"{match.bias['Y']!r} is not one number for each channel"
    return ""


def _is_vector(bias: Op, axis: int) -> bool:
    """Whether Y is added along a single axis of X."""
    views = cast(Pointwise, bias.defn).views(bias.defn.types_of(bias.inputs))
    view = (1,) * (bias["X"].type.rank - len(views["Y"])) + tuple(views["Y"])
    fits = len(view) == bias["Out"].type.rank and bias["X"].type == bias["Out"].type
    return fits and all(size == 1 for place, size in enumerate(view) if place != axis)


def _reader_obstacle(g: Graph, match: _Match) -> str:
    """Return why other ops need the intermediate values or the statistics."""
    for op in filter(None, (match.layer, match.bias)):
        out = op.writes()[0]
        if len(g.readers(out)) > 1 or out in g.results or g.overwriter(out) is not None:
            return f"{out.label!r} has other readers"
    return statistics_obstacle(g, match.norm)


def _state_obstacle(g: Graph, match: _Match, ctx: Context) -> str:
    """Return why the folded values are not constant state that was passed in."""
    folded = [match.weight, *(match.norm[slot] for slot in VECTORS), *match.added]
    return state_obstacle(g, folded, match.norm, ctx)


def statistics_obstacle(g: Graph, norm: Op) -> str:
    """Return why a batch norm must remain because of its outputs other than Y; empty if it need
    not.
    """
    rest = (var for var in norm.writes() if var is not norm["Y"])
    return next((f"{var.label!r} is read" for var in rest if is_read(g, var)), "")


# ---- rewrite -----------------------------------------------------------------------------------


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
    """Return the scaled weights and the total bias, computed in float64."""
    assert ctx.params is not None
    params = ctx.params
    factor, shift = known_factor(match.norm, ctx)
    for var in match.added:
        shift = shift + np.asarray(params[var.name], np.float64).reshape(-1) * factor
    return match.scaling.scaled(np.asarray(params[match.weight.name]), factor), shift


def known_factor(norm: Op, ctx: Context) -> tuple[Array, Array]:
    """Return the per-channel factor and shift of a batch norm over constant state, in float64."""
    assert ctx.params is not None
    params = ctx.params
    scale, bias, mean, variance = (np.asarray(params[norm[slot].name]) for slot in VECTORS)
    return factor_and_shift(scale, bias, mean, variance, norm.defn.attributes["epsilon"])
