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
from compiler.ir.types import Array, DType, TensorType
from compiler.passes.base import Context, Fact, Pass

_WEIGHTS = {"conv2d": "Filter", "depthwise_conv2d": "Filter", "mul": "Y"}
"""Layers whose output channels scale with their weights, and the slot of the weights."""


@dataclass(frozen=True)
class _Match:
    """A layer, the bias added to it (if any), and the batch norm behind them."""

    layer: Op
    bias: Op | None
    norm: Op

    @property
    def weight(self) -> Var:
        return self.layer[_WEIGHTS[self.layer.kind]]


class FuseBatchNorm(Pass):
    """(x @ w + b - mean) * k + shift  =  x @ (w * k) + ((b - mean) * k + shift).

    The new weights are new state, `w@bn` and `b@bn` in `ctx.params`, so a filter that other layers
    share stays as it is. Refuses, with the reason, whatever would change a number anyone else sees.
    """

    name = "fuse_batch_norm"
    loses = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit batch norms in order, so that of two in a row the first is folded first."""
        for norm in [op for op in g.ops() if op.kind == "batch_norm"]:
            found = _match(g, norm)
            why = found if isinstance(found, str) else _refuse(g, found, ctx)
            if why or isinstance(found, str):
                ctx.miss(self.name, norm, why)
                continue
            _rewrite(g, found, ctx)


def _match(g: Graph, norm: Op) -> _Match | str:
    """The layer behind a batch norm's input, through the bias added to it; or why there is none."""
    below = g.producer(norm["X"])
    bias = below if below is not None and below.kind == "elementwise_add" else None
    layer = g.producer(bias["X"]) if bias is not None else below
    if layer is None or layer.kind not in _WEIGHTS:
        found = "a feed" if layer is None else layer.kind
        return f"its input comes from {found}, not from {', '.join(_WEIGHTS)}"
    return _Match(layer, bias, norm)


def _refuse(g: Graph, match: _Match, ctx: Context) -> str:
    """Why a match must not be folded; empty if it may."""
    norm, bias = match.norm, match.bias
    if not (norm.attrs.get("is_test") or norm.attrs.get("use_global_stats")):
        return "it normalises with the statistics of the batch (training)"
    if norm.attrs.get("data_layout", "NCHW") != "NCHW" and match.layer.kind != "mul":
        return "its channels are the last axis"
    for op in filter(None, (match.layer, bias)):
        out = op.writes()[0]
        if len(g.readers(out)) > 1 or out in g.results:
            return f"{out.label!r} has other readers"
    state = [match.weight, *(norm[slot] for slot in ("Scale", "Bias", "Mean", "Variance"))]
    state += [bias["Y"]] if bias is not None else []
    for var in state:
        if var.role != "param" or g.producer(var) is not None:
            return f"{var.label!r} is computed by the program"
        if ctx.params is None or var.name not in ctx.params:
            return f"the value of {var.label!r} may still change: no params were lent"
    return ""


def _rewrite(g: Graph, match: _Match, ctx: Context) -> None:
    weight, shift = _folded(match, ctx)
    layer, norm = match.layer, match.norm
    hidden = layer.writes()[0]
    g.remove(norm, layer, *filter(None, [match.bias]))
    w = _state(g, match.weight.name + "@bn", weight, ctx)
    b = _state(g, norm["Bias"].name + "@bn", shift, ctx)
    inputs = {**layer.inputs, _WEIGHTS[layer.kind]: [w]}
    g.op(layer.kind, inputs, layer.outputs, layer.attrs, layer.source)
    axis = hidden.type.rank - 1 if layer.kind == "mul" else 1
    g.op("elementwise_add", {"X": [hidden], "Y": [b]}, {"Out": [norm["Y"]]}, {"axis": axis},
         norm.source)  # fmt: skip


def _folded(match: _Match, ctx: Context) -> tuple[Array, Array]:
    """The scaled weights and the bias that stands for everything added, computed in float64."""
    assert ctx.params is not None
    params = ctx.params
    norm, layer = match.norm, match.layer
    scale, shift, mean, variance = (
        params[norm[slot].name].astype(np.float64) for slot in ("Scale", "Bias", "Mean", "Variance")
    )
    factor = scale / np.sqrt(variance + norm.attrs.get("epsilon", 1e-5))
    added = params[match.bias["Y"].name].reshape(-1) if match.bias is not None else 0.0
    added = added + params[layer["Bias"].name] if "Bias" in layer.inputs else added
    weight = params[match.weight.name].astype(np.float64)
    along = (1, -1) if layer.kind == "mul" else (-1, *[1] * (weight.ndim - 1))
    return weight * factor.reshape(along), (added - mean) * factor + shift


def _state(g: Graph, name: str, array: Array, ctx: Context) -> Var:
    """New float32 state under the first free name."""
    assert ctx.params is not None
    while g.find(name) is not None:
        name += "@bn"
    array = array.astype(np.float32)
    ctx.params[name] = array
    shape = cast("tuple[int, ...]", array.shape)
    return g.param(name, TensorType(DType.FP32, shape))
