"""Layers with one counterpart in ONNX: activations, convolutions, pooling, norms, embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.codegen.onnx.pointwise import write_pointwise
from compiler.ir.dims import product
from compiler.ir.graph import Op
from compiler.ir.types import DType

ACTIVATIONS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "erf": "Erf",
    "softsign": "Softsign",
}


@converts(*ACTIVATIONS)
def activation(nodes: Nodes, op: Op) -> None:
    """One node of the same name."""
    nodes.add(ACTIVATIONS[op.kind], [nodes.input(op, "X")], nodes.output(op, "Out"))


@converts("assign", "rnn_memory_helper", "to_device", "to_host", "copy_array")
def identity(nodes: Nodes, op: Op) -> None:
    """A copy."""
    nodes.add("Identity", [nodes.input(op, "X")], nodes.output(op, "Out"))


@converts("print", "print_named")
def printed(nodes: Nodes, op: Op) -> None:
    """A copy, of which nothing is printed."""
    nodes.add("Identity", [nodes.input(op, "In")], nodes.output(op, "Out"))


@converts("leaky_relu", "elu")
def sloped(nodes: Nodes, op: Op) -> None:
    """With a slope or a limit; a slope above 1 is the larger side here, not the negative one."""
    defn: Any = op.defn
    if op.kind == "leaky_relu" and defn.alpha > 1:
        write_pointwise(nodes, op)
        return
    kind, alpha = {"leaky_relu": "LeakyRelu", "elu": "Elu"}[op.kind], float(defn.alpha)
    nodes.add(kind, [nodes.input(op, "X")], nodes.output(op, "Out"), alpha=alpha)


@converts("gelu")
def gelu(nodes: Nodes, op: Op) -> None:
    """X · (1 + erf(x / √2)) · ½, as runtimes recognise it; by tanh if `approximate`."""
    x, dtype, defn = nodes.input(op, "X"), op["X"].type.dtype, op.defn
    if getattr(defn, "approximate", False):
        cube = nodes.add("Mul", [x, nodes.add("Mul", [x, x])])
        inner = nodes.add("Add", [x, nodes.add("Mul", [cube, nodes.scalar(0.044715, dtype)])])
        scaled = nodes.add("Mul", [inner, nodes.scalar(math.sqrt(2 / math.pi), dtype)])
        bent = nodes.add("Tanh", [scaled])
    else:
        bent = nodes.add("Erf", [nodes.add("Div", [x, nodes.scalar(math.sqrt(2), dtype)])])
    factor = nodes.add("Add", [bent, nodes.scalar(1, dtype)])
    product = nodes.add("Mul", [x, factor])
    nodes.add("Mul", [product, nodes.scalar(0.5, dtype)], nodes.output(op, "Out"))


@converts("softmax", "log_softmax")
def softmax(nodes: Nodes, op: Op) -> None:
    """`Softmax` or `LogSoftmax` along one axis."""
    kind = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[op.kind]
    defn: Any = op.defn
    nodes.add(kind, [nodes.input(op, "X")], nodes.output(op, "Out"), axis=int(defn.axis))


# ---- convolutions and pooling --------------------------------------------------------------------


def expect_channels_first(defn: Any) -> None:
    """Raise Unsupported for a layout that ONNX does not have."""
    layout = getattr(defn, "data_format", getattr(defn, "data_layout", "NCHW"))
    if layout in ("NHWC", "NDHWC", "NLC"):
        raise Unsupported(f"its layout is {layout}: ONNX has channels first only")


def padding(defn: Any, rank: int) -> dict[str, Any]:
    """The padding of a convolution or pooling as attributes."""
    if defn.padding_algorithm == "SAME":
        return {"auto_pad": "SAME_UPPER"}
    if defn.padding_algorithm == "VALID":
        return {"pads": [0] * 2 * rank}
    pads = [*defn.paddings]
    if len(pads) == rank:
        return {"pads": pads * 2}
    return {"pads": [*pads[::2], *pads[1::2]]}


def with_bias(op: Op, nodes: Nodes, slot: str = "Bias") -> list[str]:
    """The name of an optional bias, as a list."""
    return [nodes.input(op, slot)] if op.inputs.get(slot) else []


@converts("conv2d", "conv3d", "depthwise_conv2d")
def convolution(nodes: Nodes, op: Op) -> None:
    """`Conv`."""
    defn: Any = op.defn
    expect_channels_first(defn)
    same = padding(defn, len(defn.strides))
    dilations = [1] * len(defn.strides) if "auto_pad" in same else [*defn.dilations]
    nodes.add(
        "Conv",
        [nodes.input(op, "Input"), nodes.input(op, "Filter"), *with_bias(op, nodes)],
        nodes.output(op, "Output"),
        strides=[*defn.strides], dilations=dilations, group=int(defn.groups), **same,
    )  # fmt: skip


@converts("conv2d_transpose", "conv3d_transpose", "depthwise_conv2d_transpose")
def transposed_convolution(nodes: Nodes, op: Op) -> None:
    """`ConvTranspose`; what the chosen output size adds is output padding."""
    defn: Any = op.defn
    expect_channels_first(defn)
    if defn.padding_algorithm == "SAME":
        raise Unsupported("a transposed convolution with SAME padding")
    rank, window = len(defn.strides), op["Filter"].type.shape[2:]
    pads = padding(defn, rank)["pads"]
    extra = [0] * rank
    sizes = op["Output"].type.shape[2:]
    for axis, (size, entered) in enumerate(zip(sizes, op["Input"].type.shape[2:], strict=True)):
        least = (entered - 1) * defn.strides[axis] - pads[axis] - pads[rank + axis]
        rest: Any = size - least - (window[axis] - 1) * defn.dilations[axis] - 1
        if not isinstance(rest, int):
            raise Unsupported("a transposed convolution whose output size is chosen at run time")
        extra[axis] = rest
    nodes.add(
        "ConvTranspose",
        [nodes.input(op, "Input"), nodes.input(op, "Filter"), *with_bias(op, nodes)],
        nodes.output(op, "Output"),
        strides=[*defn.strides], dilations=[*defn.dilations], group=int(defn.groups), pads=pads,
        output_padding=extra,
    )  # fmt: skip


@converts("pool2d", "pool3d")
def pooling(nodes: Nodes, op: Op) -> None:
    """`MaxPool`, `AveragePool`, or their global forms."""
    defn: Any = op.defn
    expect_channels_first(defn)
    kind = {"max": "Max", "avg": "Average"}[defn.pooling_type]
    if defn.adaptive and kind == "Max" and not defn.global_pooling:
        raise Unsupported("adaptive max pooling, whose windows in release 1.8.5 do not cover X")
    if defn.ceil_mode and kind == "Average" and not defn.exclusive:
        raise Unsupported("means that count padding, with windows beyond it (ceil_mode)")
    if defn.ceil_mode and _loses_windows(op):
        raise Unsupported("ceil_mode with a last window in the padding, which ONNX leaves out")
    x, out = nodes.input(op, "X"), nodes.output(op, "Out")
    windows = [*defn.ksize]
    if defn.global_pooling or (defn.adaptive and all(size == 1 for size in windows)):
        nodes.add(f"Global{kind}Pool", [x], out)
        return
    rank = len(windows)
    if defn.adaptive:
        windows, strides = _even_windows(op["X"].type.shape[2:], windows)
        nodes.add(f"{kind}Pool", [x], out, kernel_shape=windows, strides=strides)
        return
    attributes: dict[str, Any] = {"ceil_mode": int(defn.ceil_mode), **padding(defn, rank)}
    if "auto_pad" in attributes:
        pads = _same_pads(op["X"].type.shape[2:], windows, defn.strides)
        attributes = {"ceil_mode": int(defn.ceil_mode), "pads": pads}
    if kind == "Average":
        attributes["count_include_pad"] = int(not defn.exclusive)
    nodes.add(f"{kind}Pool", [x], out, kernel_shape=windows, strides=[*defn.strides], **attributes)


def _loses_windows(op: Op) -> bool:
    """Whether ONNX leaves out a last window that begins behind the image, as `ceil_mode` has it.

    Of an open size: whether it may, since the last one begins at most `stride` - 1 elements behind
    the place from which a window would fit.
    """
    defn: Any = op.defn
    if defn.global_pooling or defn.adaptive:
        return False
    rank = len(defn.ksize)
    pads = padding(defn, rank).get("pads", [0] * 2 * rank)
    for axis, size in enumerate(op["X"].type.shape[2:]):
        window, stride = int(defn.ksize[axis]), int(defn.strides[axis])
        before, behind = pads[axis], pads[rank + axis]
        if not isinstance(size, int):
            if stride > window - behind:
                return True
        elif -(-(size + before + behind - window) // stride) * stride >= size + before:
            return True
    return False


def _same_pads(sizes: Sequence[Any], windows: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The padding with which each stride has a window; the odd element is behind."""
    pads: list[list[int]] = []
    for size, window, stride in zip(sizes, windows, strides, strict=True):
        if not isinstance(size, int):
            raise Unsupported("pooling of an open size with SAME padding")
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        pads.append([total // 2, total - total // 2])
    return [before for before, _ in pads] + [after for _, after in pads]


def _even_windows(sizes: Sequence[Any], outputs: Sequence[int]) -> tuple[list[int], list[int]]:
    """The windows of adaptive pooling where they are all equal."""
    if any(
        not isinstance(size, int) or size % out for size, out in zip(sizes, outputs, strict=True)
    ):
        raise Unsupported("adaptive pooling with windows of several sizes")
    windows = [size // out for size, out in zip(sizes, outputs, strict=True)]
    return windows, windows


# ---- norms ---------------------------------------------------------------------------------------


@converts("batch_norm", "sync_batch_norm", "inplace_abn")
def batch_norm(nodes: Nodes, op: Op) -> None:
    """`BatchNormalization` with the recorded statistics."""
    defn: Any = op.defn
    expect_channels_first(defn)
    if not (defn.use_global_stats or (defn.is_test and not defn.trainable_statistics)):
        raise Unsupported("a batch norm in training mode")
    if op.kind == "inplace_abn":
        raise Unsupported("inplace_abn")
    names = [nodes.input(op, slot) for slot in ("X", "Scale", "Bias", "Mean", "Variance")]
    epsilon = float(defn.epsilon)
    nodes.add("BatchNormalization", names, nodes.output(op, "Y"), epsilon=epsilon)


@converts("layer_norm")
def layer_norm(nodes: Nodes, op: Op) -> None:
    """Over the axes from `begin_norm_axis` on; scale and bias are flat there."""
    defn: Any = op.defn
    x, out, axis = op["X"], nodes.output(op, "Y"), int(defn.begin_norm_axis)
    normed = x.type.shape[axis:]
    scale, bias = (nodes.optional(op, slot) for slot in ("Scale", "Bias"))
    if not scale:
        one = nodes.scalar(1, x.type.dtype)
        scale = nodes.add("Expand", [one, nodes.shape((product(normed),))])
    flat = len(normed) == 1
    names = [scale, bias] if flat else [
        name and nodes.add("Reshape", [name, nodes.shape(normed)]) for name in (scale, bias)
    ]  # fmt: skip
    nodes.add(
        "LayerNormalization", [nodes.name(x), *names], out, axis=axis, epsilon=float(defn.epsilon)
    )


@converts("instance_norm")
def instance_norm(nodes: Nodes, op: Op) -> None:
    """`InstanceNormalization`; absent scales are ones, absent biases zeros."""
    defn: Any = op.defn
    x = op["X"]
    channels = nodes.shape((x.type.shape[1],))
    scale = nodes.optional(op, "Scale") or nodes.add(
        "Expand", [nodes.scalar(1, x.type.dtype), channels]
    )
    bias = nodes.optional(op, "Bias") or nodes.add(
        "Expand", [nodes.scalar(0, x.type.dtype), channels]
    )
    names = [nodes.name(x), scale, bias]
    nodes.add("InstanceNormalization", names, nodes.output(op, "Y"), epsilon=float(defn.epsilon))


@converts("group_norm")
def group_norm(nodes: Nodes, op: Op) -> None:
    """Each group as one channel of an instance norm; then scale and bias of the channels."""
    defn: Any = op.defn
    expect_channels_first(defn)
    x = op["X"]
    rows, channels, *image = x.type.shape
    groups = int(defn.groups)
    split = nodes.add("Reshape", [nodes.name(x), nodes.constant([0, groups, -1])])
    ones = nodes.add("Expand", [nodes.scalar(1, x.type.dtype), nodes.constant([groups])])
    zeros = nodes.add("Expand", [nodes.scalar(0, x.type.dtype), nodes.constant([groups])])
    epsilon = float(defn.epsilon)
    normed = nodes.add("InstanceNormalization", [split, ones, zeros], epsilon=epsilon)
    result = nodes.add("Reshape", [normed, nodes.shape((rows, channels, *image))])
    scaled_by_channel(nodes, op, result, len(image), nodes.output(op, "Y"))


def scaled_by_channel(nodes: Nodes, op: Op, x: str, behind: int, out: str) -> None:
    """Multiply by Scale and add Bias along axis 1, where they are present."""
    for kind, slot in (("Mul", "Scale"), ("Add", "Bias")):
        if op.inputs.get(slot):
            shape = nodes.constant([-1, *[1] * behind])
            x = nodes.add(kind, [x, nodes.add("Reshape", [nodes.input(op, slot), shape])])
    nodes.add("Identity", [x], out)


@converts("affine_channel")
def affine_channel(nodes: Nodes, op: Op) -> None:
    """A scale and a bias of each channel."""
    expect_channels_first(op.defn)
    behind = len(op["X"].type.shape) - 2
    scaled_by_channel(nodes, op, nodes.input(op, "X"), behind, nodes.output(op, "Out"))


@converts("lrn")
def local_response_norm(nodes: Nodes, op: Op) -> None:
    """ONNX divides alpha by the number of channels, `size`; fluid does not."""
    defn: Any = op.defn
    expect_channels_first(defn)
    size = int(defn.n)
    nodes.add(
        "LRN", [nodes.input(op, "X")], nodes.output(op, "Out"), size=size,
        alpha=float(defn.alpha) * size, beta=float(defn.beta), bias=float(defn.k),
    )  # fmt: skip


# ---- embeddings ----------------------------------------------------------------------------------


@converts("lookup_table", "lookup_table_v2")
def embedding(nodes: Nodes, op: Op) -> None:
    """Rows by id; rows of `padding_idx` are zeros."""
    defn: Any = op.defn
    ids, table, out = op["Ids"], nodes.input(op, "W"), nodes.output(op, "Out")
    name = nodes.name(ids)
    if op.kind == "lookup_table":  # the last axis of the ids has one element
        name = nodes.add("Reshape", [name, nodes.target(ids.type.shape[:-1])])
    padding_idx = int(defn.padding_idx)
    if padding_idx == -1:
        nodes.add("Gather", [table, name], out, axis=0)
        return
    rows = nodes.add("Gather", [table, name], axis=0)
    is_padding = nodes.add("Equal", [name, nodes.scalar(padding_idx, ids.type.dtype)])
    is_padding = nodes.add("Unsqueeze", [is_padding, nodes.constant([-1])])
    dtype: DType = op["W"].type.dtype
    nodes.add("Where", [is_padding, nodes.scalar(0, dtype), rows], out)
