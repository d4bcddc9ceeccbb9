"""Layers of frozen quantized models in 8 bits.

A frozen model computes with levels in float32: its weights are levels, and `fake_quantize_…` rounds
the input of a layer to levels. Both fit in a byte, and the layer's sums are integers.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Array, DType
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass, role_of
from compiler.passes.state import add_state, state_obstacle

LAYERS = {"conv2d": ("Input", "Filter"), "mul": ("X", "Y")}
"""Layers in 8 bits: the slots of the levels and of the weights."""

DYNAMIC = "fake_quantize_abs_max"
FIXED = ("fake_quantize_moving_average_abs_max", "fake_quantize_range_abs_max")
"""Ops that compute levels: by the largest magnitude of their input, and by a scale of training."""

DEQUANTIZE = "fake_channel_wise_dequantize_max_abs"


class QuantizedProducts(Pass):
    """conv(levels(x), w)  =  quantized_conv(int8(levels(x)), int8(w)), if all w are levels.

    Scales that training has fixed become attributes, so that quantizing and dequantizing are
    pointwise and fuse with the layers around them; the values of weights and scales must be known.
    For code of CPUs; without `multiplies_bytes` layers stay in float32.
    """

    name = "quantized_products"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def __init__(self, multiplies_bytes: bool = True) -> None:
        self._multiplies_bytes = multiplies_bytes

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run for native code only, which may have products of bytes."""
        if target is None or target.on_device or cls.name in options.disable:
            return None
        return cls(target.multiplies_bytes)

    def run(self, g: Graph, ctx: Context) -> None:
        """Rewrite what quantizes by known scales, then layers, then what dequantizes channels."""
        narrow: dict[Var, Var] = {}
        for op in g.ops():
            if op.kind in FIXED:
                self._fix(g, op, narrow, ctx)
        for op in g.ops():
            if op.kind in LAYERS:
                self._narrow_layer(g, op, narrow, ctx)
            elif op.kind == DEQUANTIZE:
                _split(g, op, ctx)

    def _fix(self, g: Graph, op: Op, narrow: dict[Var, Var], ctx: Context) -> None:
        """Make an op that quantizes by a fixed scale pointwise."""
        if why := _fixed_obstacle(g, op, ctx):
            ctx.note_missed(self.name, op, why)
        else:
            narrow[op["Out"]] = _pointwise(g, op, ctx)

    def _narrow_layer(self, g: Graph, op: Op, narrow: dict[Var, Var], ctx: Context) -> None:
        """Replace a layer that reads levels by one in 8 bits."""
        levels = op[LAYERS[op.kind][0]]
        producer = g.producer(levels)
        is_dynamic = producer is not None and producer.kind == DYNAMIC
        if levels not in narrow and not is_dynamic:
            return
        weights = self._weights(g, op, producer if is_dynamic else None, ctx)
        if isinstance(weights, str):
            ctx.note_missed(self.name, op, weights)
            return
        if levels not in narrow:
            narrow[levels] = _cast(g, levels, op)
        _replace(g, op, narrow[levels], weights, ctx)

    def _weights(self, g: Graph, op: Op, dynamic: Op | None, ctx: Context) -> Array | str:
        """The weights of a layer in int8, or why it must compute in float32."""
        if not self._multiplies_bytes:
            return "the CPU has no products of bytes"
        weights = op[LAYERS[op.kind][1]]
        if dynamic is not None and dynamic.defn.attributes["bit_length"] > 8:
            return "its levels have more than 8 bits"
        if op.inputs.get("Bias") or _is_by_channel(op) or weights.type.dtype is not DType.FP32:
            return "no products of bytes have a bias, filters of single channels or float64"
        if why := state_obstacle(g, [weights], op, ctx):
            return why
        array = _array(weights, ctx)
        levels = np.clip(np.rint(np.nan_to_num(array)), -128, 127).astype(np.int8)
        if not np.array_equal(levels, array):
            return f"{weights.label!r} has other numbers than levels of 8 bits"
        return levels


def _is_by_channel(op: Op) -> bool:
    groups = op.defn.attributes.get("groups", 1)
    return groups > 1 and op["Filter"].type.shape[1] == 1


# ---- levels ----


def _fixed_obstacle(g: Graph, op: Op, ctx: Context) -> str:
    """Why an op's levels are not those of 8 bits by a known scale; empty if they are."""
    if not op.defn.attributes["is_test"]:
        return "its scale is in training"
    if op.defn.attributes["bit_length"] > 8 or op["X"].type.dtype is not DType.FP32:
        return "its levels have more than 8 bits, or are not in float32"
    out_scale = op["OutScale"]
    if out_scale in g.results or g.overwriter(out_scale) is not None:
        return f"{out_scale.label!r} is written"
    if any(g.nx.out_degree[var] for slot in ("OutState", "OutAccum", "OutScales")
           for var in op.outputs.get(slot, ())):  # fmt: skip
        return "its state is read"
    return state_obstacle(g, [op["InScale"]], op, ctx)


def _pointwise(g: Graph, op: Op, ctx: Context) -> Var:
    """Replace an op that quantizes by a fixed scale; returns the levels in int8."""
    x, levels, in_scale, out_scale = (op[slot] for slot in ("X", "Out", "InScale", "OutScale"))
    small = g.fresh(f"{levels.label}@int8", levels.type.with_dtype(DType.INT8))
    scale = float(_array(in_scale, ctx).reshape(1)[0])
    attrs = {"scale": scale, "bit_length": op.defn.attributes["bit_length"]} | role_of(op)
    place, source, written = op.position, op.source, op.writes()
    g.replace_uses(out_scale, in_scale)
    g.remove(op)
    for var in written:
        g.drop(var)
    g.op("quantize_to_int8", {"X": [x]}, {"Out": [small]}, attrs, source, place=place)
    casts = _cast_attrs(small, levels) | role_of(op)
    g.op("cast", {"X": [small]}, {"Out": [levels]}, casts, source, place=place)
    return small


def _cast(g: Graph, levels: Var, reader: Op) -> Var:
    """Levels in int8, cast before the first op that reads them so."""
    small = g.fresh(f"{levels.label}@int8", levels.type.with_dtype(DType.INT8))
    attrs = _cast_attrs(levels, small) | role_of(reader)
    place = reader.position
    g.op("cast", {"X": [levels]}, {"Out": [small]}, attrs, reader.source, place=place)
    return small


def _cast_attrs(x: Var, out: Var) -> dict[str, int]:
    return {"in_dtype": x.type.dtype.code, "out_dtype": out.type.dtype.code}


# ---- layers ----


def _replace(g: Graph, op: Op, small: Var, levels: Array, ctx: Context) -> None:
    slots = LAYERS[op.kind]
    state = add_state(g, op[slots[1]].name + "@int8", levels, DType.INT8, ctx)
    inputs = dict(zip(slots, ([small], [state]), strict=True))
    g.replace(op, f"quantized_{op.kind}", inputs, op.outputs, op.attrs)


def _split(g: Graph, op: Op, ctx: Context) -> None:
    """A quotient of a product, both pointwise: x * (channel scales * input scale) / levels."""
    x, out, scales = op["X"], op["Out"], op.inputs["Scales"]
    if len(scales) != 2 or state_obstacle(g, scales, op, ctx):
        return
    bits = op.defn.attributes["quant_bits"]
    channels, whole = (_array(scale, ctx).reshape(-1) for scale in scales)
    levels = np.asarray([np.prod([2 ** (bit_count - 1) - 1 for bit_count in bits[:2]])], np.float32)
    factors = add_state(g, scales[0].name + "@int8", channels * whole, x.type.dtype, ctx)
    divisor = add_state(g, "levels@int8", levels, x.type.dtype, ctx)
    scaled = g.fresh(out.name + ".scaled", out.type)
    role, place = role_of(op), op.position
    g.remove(op)
    product = {"X": [x], "Y": [factors]}, {"Out": [scaled]}, {"axis": 1} | role
    quotient = {"X": [scaled], "Y": [divisor]}, {"Out": [out]}, {"axis": -1} | role
    g.op("elementwise_mul", *product, op.source, place=place)
    g.op("elementwise_div", *quotient, op.source, place=place)


def _array(var: Var, ctx: Context) -> Array:
    assert ctx.params is not None
    return np.asarray(ctx.params[var.name])
