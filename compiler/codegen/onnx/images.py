"""Resizing and sampling of images, and fake quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.layers import expect_channels_first
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.ir.graph import Op

LINEAR = ("linear_interp", "bilinear_interp", "trilinear_interp")


@converts(*LINEAR, *(f"{name}_v2" for name in LINEAR), "nearest_interp", "nearest_interp_v2")
def resize(nodes: Nodes, op: Op) -> None:
    """To the sizes of the result, which are known. Reference: interpolate_op.h."""
    defn: Any = op.defn
    expect_channels_first(defn)
    is_linear = not op.kind.startswith("nearest")
    mode = "align_corners" if defn.align_corners else "asymmetric"
    if is_linear and not defn.align_corners and int(defn.align_mode) == 0:
        mode = "half_pixel"
    attributes: dict[str, Any] = {"mode": "linear" if is_linear else "nearest"}
    if not is_linear:
        attributes["nearest_mode"] = "round_prefer_ceil" if defn.align_corners else "floor"
    factors = [*getattr(defn, "scale", [])] if op.kind.endswith("_v2") else []
    if op.inputs.get("Scale") and op.kind.endswith("_v2"):
        raise Unsupported("a scale that is a tensor")
    if factors and not defn.align_corners:  # steps by the inverse of the scale
        each = factors if len(factors) > 1 else factors * (len(op["X"].type.shape) - 2)
        names = [nodes.input(op, "X"), "", nodes.constant(np.array([1, 1, *each], np.float32))]
    else:
        names = [nodes.input(op, "X"), "", "", nodes.shape(op["Out"].type.shape)]
    nodes.add(
        "Resize", names, nodes.output(op, "Out"), coordinate_transformation_mode=mode, **attributes
    )


@converts("grid_sampler")
def grid_sampler(nodes: Nodes, op: Op) -> None:
    """`GridSample`."""
    defn: Any = op.defn
    nodes.add(
        "GridSample", [nodes.input(op, "X"), nodes.input(op, "Grid")], nodes.output(op, "Output"),
        align_corners=int(defn.align_corners), mode=str(defn.mode),
        padding_mode={"reflect": "reflection"}.get(str(defn.padding_mode), str(defn.padding_mode)),
    )  # fmt: skip


@converts("maxout")
def maxout(nodes: Nodes, op: Op) -> None:
    """The largest of each `groups` neighbouring channels."""
    defn: Any = op.defn
    x, groups = op["X"].type.shape, int(defn.groups)
    axis = int(defn.axis) % len(x)
    channels: Any = x[axis]
    shape = nodes.target((*x[:axis], channels // groups, groups, *x[axis + 1 :]))
    apart = nodes.add("Reshape", [nodes.input(op, "X"), shape])
    nodes.add("ReduceMax", [apart], nodes.output(op, "Out"), axes=[axis + 1], keepdims=0)


_ZERO = np.zeros((), np.int8)


@converts("fake_quantize_dequantize_moving_average_abs_max")
def quantized_and_back(nodes: Nodes, op: Op) -> None:
    """`QuantizeLinear` and `DequantizeLinear` with the recorded scale, as 8-bit integers."""
    defn: Any = op.defn
    if not defn.is_test:
        raise Unsupported("quantization in training mode")
    if int(defn.bit_length) != 8:
        raise Unsupported(f"quantization to {defn.bit_length} bits")
    dtype = op["X"].type.dtype
    largest = nodes.add("Reshape", [nodes.input(op, "InScale"), nodes.constant([1])])
    scale = nodes.add("Div", [largest, nodes.scalar(127, dtype)])
    low, high = nodes.add("Neg", [largest]), largest
    clipped = nodes.add("Max", [nodes.add("Min", [nodes.input(op, "X"), high]), low])
    scalar = nodes.add("Squeeze", [scale])
    whole = nodes.add("QuantizeLinear", [clipped, scalar, nodes.constant(_ZERO)])
    nodes.add("DequantizeLinear", [whole, scalar, nodes.constant(_ZERO)], nodes.output(op, "Out"))


@converts("fake_quantize_moving_average_abs_max", "fake_quantize_range_abs_max")
def quantized(nodes: Nodes, op: Op) -> None:
    """Whole numbers, as floats, with the recorded scale."""
    defn: Any = op.defn
    if not defn.is_test:
        raise Unsupported("quantization in training mode")
    dtype, most = op["X"].type.dtype, float(2 ** (int(defn.bit_length) - 1) - 1)
    largest = nodes.input(op, "InScale")
    clipped = nodes.add(
        "Max", [nodes.add("Min", [nodes.input(op, "X"), largest]), nodes.add("Neg", [largest])]
    )
    share = nodes.add("Div", [nodes.scalar(most, dtype), largest])
    nodes.add("Round", [nodes.add("Mul", [clipped, share])], nodes.output(op, "Out"))
