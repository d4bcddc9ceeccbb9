"""Ops that move, cut, join and create values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Op
from compiler.ir.types import DType

LARGEST = np.iinfo(np.int64).max


@converts(
    "reshape", "reshape2", "squeeze", "squeeze2", "unsqueeze", "unsqueeze2", "flatten", "flatten2",
    "flatten_contiguous_range",
)  # fmt: skip
def reshape(nodes: Nodes, op: Op) -> None:
    """The shape of the result is known, with names for open sizes."""
    target = nodes.target(op["Out"].type.shape)
    nodes.add("Reshape", [nodes.input(op, "X"), target], nodes.output(op, "Out"))


@converts("transpose", "transpose2")
def transpose(nodes: Nodes, op: Op) -> None:
    """`Transpose`."""
    defn: Any = op.defn
    nodes.add("Transpose", [nodes.input(op, "X")], nodes.output(op, "Out"), perm=[*defn.axis])


@converts("concat")
def concat(nodes: Nodes, op: Op) -> None:
    """`Concat`."""
    defn: Any = op.defn
    if op.inputs.get("AxisTensor"):
        raise Unsupported("concat along an axis that is a tensor")
    names = [nodes.name(var) for var in op.inputs["X"]]
    nodes.add("Concat", names, nodes.output(op, "Out"), axis=int(defn.axis))


@converts("split")
def split(nodes: Nodes, op: Op) -> None:
    """`Split` into parts of the inferred sizes."""
    defn: Any = op.defn
    if op.inputs.get("AxisTensor") or op.inputs.get("SectionsTensorList"):
        raise Unsupported("split by an axis or sections that are tensors")
    parts, axis = op.outputs["Out"], int(defn.axis)
    sizes = nodes.shape(tuple(var.type.shape[axis] for var in parts))
    names = [nodes.bind(var) for var in parts]
    nodes.add_all("Split", [nodes.input(op, "X"), sizes], names, axis=axis)


@converts("stack")
def stack(nodes: Nodes, op: Op) -> None:
    """`Concat` along a new axis."""
    defn: Any = op.defn
    axis = int(defn.axis)
    names = [
        nodes.add("Unsqueeze", [nodes.name(var), nodes.constant([axis])]) for var in op.inputs["X"]
    ]
    nodes.add("Concat", names, nodes.output(op, "Y"), axis=axis)


@converts("unstack", "unbind")
def unstack(nodes: Nodes, op: Op) -> None:
    """Each entry of an axis."""
    defn: Any = op.defn
    (slot,) = (slot for slot in ("Y", "Out") if slot in op.outputs)
    for index, var in enumerate(op.outputs[slot]):
        place = nodes.scalar(index, DType.INT64)
        nodes.add("Gather", [nodes.input(op, "X"), place], nodes.bind(var), axis=int(defn.axis))


@converts("slice", "strided_slice")
def sliced(nodes: Nodes, op: Op) -> None:
    """Parts of axes; `decrease_axis` are axes of one element that are left out."""
    defn: Any = op.defn
    strides = [*getattr(defn, "strides", [])] or [1] * len(defn.axes)
    if has_input(op, "StridesTensor", "StridesTensorList") or any(stride < 0 for stride in strides):
        raise Unsupported("a slice with strides that are tensors or negative")
    starts = integers(nodes, op, "StartsTensor", "StartsTensorList", defn.starts)
    ends = integers(nodes, op, "EndsTensor", "EndsTensorList", defn.ends)
    axes = nodes.constant([*defn.axes])
    out = nodes.output(op, "Out")
    names = [nodes.input(op, "Input"), starts, ends, axes, nodes.constant(strides)]
    if not defn.decrease_axis:
        nodes.add("Slice", names, out)
        return
    part = nodes.add("Slice", names)
    if len(defn.decrease_axis) == len(op["Input"].type.shape):
        nodes.add("Reshape", [part, nodes.target(op["Out"].type.shape)], out)
    else:
        nodes.add("Squeeze", [part, nodes.constant([*defn.decrease_axis])], out)


def has_input(op: Op, *slots: str) -> bool:
    """Whether an op has a value in one of these input slots."""
    return any(op.inputs.get(slot) for slot in slots)


def integers(nodes: Nodes, op: Op, whole: str, single: str, otherwise: Sequence[int]) -> str:
    """An int64 vector: of the tensor in slot `whole`, of the numbers in `single`, or constants."""
    names = [nodes.name(var) for slot in (whole, single) for var in op.inputs.get(slot, [])]
    if op.inputs.get(whole):
        names = names[:1]
    if not names:
        return nodes.constant([*otherwise])
    flat = nodes.constant([-1])
    parts = [nodes.add("Reshape", [nodes.cast(name, DType.INT64), flat]) for name in names]
    return parts[0] if len(parts) == 1 else nodes.add("Concat", parts, axis=0)


TIMES = {
    "expand": ("ExpandTimes", "expand_times_tensor"),
    "tile": ("RepeatTimes", "repeat_times_tensor"),
}
"""Slots of repetitions that are tensors: a vector, and a number for each axis."""


@converts("expand", "tile")
def repeat(nodes: Nodes, op: Op) -> None:
    """`Tile`; with more or fewer numbers than axes, the first axes are ones."""
    defn: Any = op.defn
    whole, single = TIMES[op.kind]
    times = [*getattr(defn, "expand_times", getattr(defn, "repeat_times", []))]
    x = op["X"]
    sizes = [var.type.shape[0] for var in op.inputs.get(whole, [])]
    count = (*sizes, len(op.inputs.get(single, [])) or len(times))[0]
    if not isinstance(count, int):
        raise Unsupported("repetitions of an open number")
    more = count - len(x.type.shape)
    name = nodes.name(x)
    if more > 0:
        name = nodes.add("Reshape", [name, nodes.target((*[1] * more, *x.type.shape))])
    numbers = integers(nodes, op, whole, single, times)
    if more < 0:
        numbers = nodes.add("Concat", [nodes.constant([1] * -more), numbers], axis=0)
    nodes.add("Tile", [name, numbers], nodes.output(op, "Out"))


@converts("expand_v2", "expand_as_v2")
def expand(nodes: Nodes, op: Op) -> None:
    """`Expand` to the inferred shape."""
    shape = nodes.shape(op["Out"].type.shape)
    nodes.add("Expand", [nodes.input(op, "X"), shape], nodes.output(op, "Out"))


@converts("expand_as")
def expand_as(nodes: Nodes, op: Op) -> None:
    """Repeat each axis as often as the target is larger."""
    sizes = nodes.shape(op["X"].type.shape)
    times = nodes.add("Div", [nodes.shape(op["Out"].type.shape), sizes])
    nodes.add("Tile", [nodes.input(op, "X"), times], nodes.output(op, "Out"))


@converts("gather", "index_select")
def gather(nodes: Nodes, op: Op) -> None:
    """`Gather` by a vector of indices."""
    defn: Any = op.defn
    if op.inputs.get("Axis"):
        raise Unsupported("gather along an axis that is a tensor")
    axis = int(getattr(defn, "dim", getattr(defn, "axis", 0)))
    index = nodes.add("Reshape", [nodes.input(op, "Index"), nodes.constant([-1])])
    nodes.add("Gather", [nodes.input(op, "X"), index], nodes.output(op, "Out"), axis=axis)


@converts("gather_nd")
def gather_nd(nodes: Nodes, op: Op) -> None:
    """`GatherND`."""
    index = nodes.cast(nodes.input(op, "Index"), DType.INT64)
    nodes.add("GatherND", [nodes.input(op, "X"), index], nodes.output(op, "Out"))


@converts("scatter")
def scatter(nodes: Nodes, op: Op) -> None:
    """Rows by index: the last one of several wins; without `overwrite` they are summed."""
    defn: Any = op.defn
    index = nodes.cast(nodes.input(op, "Ids"), DType.INT64)
    index = nodes.add("Reshape", [index, nodes.constant([-1, 1])])
    x, rows, out = nodes.input(op, "X"), nodes.input(op, "Updates"), nodes.output(op, "Out")
    if defn.overwrite:
        nodes.add("ScatterND", [x, index, rows], out)
        return
    zeros = nodes.add("Sub", [rows, rows])
    cleared = nodes.add("ScatterND", [x, index, zeros])
    nodes.add("ScatterND", [cleared, index, rows], out, reduction="add")


@converts("flip", "reverse")
def flip(nodes: Nodes, op: Op) -> None:
    """`Slice` with a step of -1."""
    defn: Any = op.defn
    axes = [*(getattr(defn, "dims", []) or defn.axis)]
    ends = [-LARGEST] * len(axes)
    bounds = [nodes.constant(each) for each in ([-1] * len(axes), ends, axes, [-1] * len(axes))]
    nodes.add("Slice", [nodes.input(op, "X"), *bounds], nodes.output(op, "Out"))


@converts("pad")
def pad(nodes: Nodes, op: Op) -> None:
    """`Pad`; widths are pairs, axis by axis."""
    defn: Any = op.defn
    padded(nodes, op, [*defn.paddings[::2], *defn.paddings[1::2]], "constant", defn.pad_value)


@converts("pad2d")
def pad2d(nodes: Nodes, op: Op) -> None:
    """`Pad` of the image's axes."""
    defn: Any = op.defn
    if op.inputs.get("Paddings"):
        raise Unsupported("pad2d by a tensor")
    top, bottom, left, right = defn.paddings
    heads, tails = [0, 0, top, left], [0, 0, bottom, right]
    if defn.data_format == "NHWC":
        heads, tails = [0, top, left, 0], [0, bottom, right, 0]
    padded(nodes, op, [*heads, *tails], defn.mode, defn.pad_value)


def padded(nodes: Nodes, op: Op, pads: Sequence[int], mode: str, value: float) -> None:
    """Write `Pad` with the widths before all axes, then those behind."""
    names = [nodes.input(op, "X"), nodes.constant([*pads])]
    if mode == "constant":
        names.append(nodes.scalar(value, op["X"].type.dtype))
    nodes.add("Pad", names, nodes.output(op, "Out"), mode=mode)


@converts("pixel_shuffle")
def pixel_shuffle(nodes: Nodes, op: Op) -> None:
    """`DepthToSpace`."""
    defn: Any = op.defn
    if defn.data_format == "NHWC":
        raise Unsupported("pixel_shuffle with channels last")
    nodes.add(
        "DepthToSpace", [nodes.input(op, "X")], nodes.output(op, "Out"),
        blocksize=int(defn.upscale_factor), mode="CRD",
    )  # fmt: skip


@converts("shuffle_channel")
def shuffle_channel(nodes: Nodes, op: Op) -> None:
    """Channels of all groups in turn."""
    defn: Any = op.defn
    rows, channels, height, width = op["X"].type.shape
    group = int(defn.group)
    apart = nodes.shape((rows, group, cast(int, channels) // group, height, width))
    split_ = nodes.add("Reshape", [nodes.input(op, "X"), apart])
    transposed = nodes.add("Transpose", [split_], perm=[0, 2, 1, 3, 4])
    shape = nodes.shape((rows, channels, height, width))
    nodes.add("Reshape", [transposed, shape], nodes.output(op, "Out"))


@converts("one_hot", "one_hot_v2")
def one_hot(nodes: Nodes, op: Op) -> None:
    """Ones at the ids; a row of zeros for an id that is out of range."""
    defn: Any = op.defn
    x, dtype = op["X"], op["Out"].type.dtype
    name = nodes.name(x)
    if op.kind == "one_hot":
        name = nodes.add("Reshape", [name, nodes.target(x.type.shape[:-1])])
    name = nodes.add("Unsqueeze", [nodes.cast(name, DType.INT64), nodes.constant([-1])])
    places = nodes.constant(np.arange(int(defn.depth)))
    if op.inputs.get("depth_tensor"):
        scalar = nodes.constant(np.zeros(0, np.int64))
        depth = nodes.cast(nodes.input(op, "depth_tensor"), DType.INT64)
        bounds = [nodes.scalar(0, DType.INT64), nodes.add("Reshape", [depth, scalar])]
        places = nodes.add("Range", [*bounds, nodes.scalar(1, DType.INT64)])
    nodes.cast(nodes.add("Equal", [name, places]), dtype, nodes.output(op, "Out"))


# ---- created values ------------------------------------------------------------------------------


@converts("fill_constant", "fill_constant_batch_size_like", "fill_any_like", "fill_zeros_like")
def fill(nodes: Nodes, op: Op) -> None:
    """`Expand` of a number."""
    defn: Any = op.defn
    out = op["Out"]
    if op.inputs.get("ValueTensor"):
        raise Unsupported("fill_constant of a value that is a tensor")
    text = getattr(defn, "str_value", "")
    value: Any = float(text) if text else getattr(defn, "value", 0.0)
    if not out.type.dtype.is_float:
        value = int(text) if text.lstrip("-").isdigit() else int(value)
    number = nodes.scalar(value, out.type.dtype)
    nodes.add("Expand", [number, _sizes(nodes, op)], nodes.output(op, "Out"))


def _sizes(nodes: Nodes, op: Op) -> str:
    """The shape of a constant; a size that depends on the step is that of the input then."""
    defn: Any = op.defn
    shape = op["Out"].type.shape
    if has_input(op, "ShapeTensor", "ShapeTensorList"):
        return integers(nodes, op, "ShapeTensor", "ShapeTensorList", ())
    if UNKNOWN not in shape or not op.inputs.get("Input") or op.inputs.get("Input_lod"):
        return nodes.shape(shape)
    start = int(defn.input_dim_idx)
    count = nodes.add("Shape", [nodes.input(op, "Input")], start=start, end=start + 1)
    parts = [count if size == UNKNOWN else nodes.size(size) for size in shape]
    return nodes.add("Concat", parts, axis=0)


@converts("assign_value", "fill", "eye")
def literal(nodes: Nodes, op: Op) -> None:
    """A constant: what the reference implementation computes from the attributes."""
    array = op.defn.evaluate({})["Out"]
    nodes.add("Identity", [nodes.constant(np.asarray(array))], nodes.output(op, "Out"))


@converts("prior_box", "density_prior_box", "anchor_generator")
def boxes(nodes: Nodes, op: Op) -> None:
    """Constants: they depend on the sizes of the images alone."""
    sizes = [[size if axis else 1 for axis, size in enumerate(v.type.shape)] for v in op.reads()]
    if not all(isinstance(size, int) for shape in sizes for size in shape):
        raise Unsupported("boxes of images of an open size")
    images = zip(op.inputs, sizes, strict=True)
    values = {slot: np.zeros(cast("list[int]", shape), np.float32) for slot, shape in images}
    for slot, array in op.defn.evaluate(values).items():
        if op.outputs.get(slot):
            nodes.add("Identity", [nodes.constant(array)], nodes.output(op, slot))


@converts("shape")
def shape(nodes: Nodes, op: Op) -> None:
    """`Shape` in the op's element type."""
    sizes = nodes.add("Shape", [nodes.input(op, "Input")])
    nodes.cast(sizes, op["Out"].type.dtype, nodes.output(op, "Out"))


@converts("size")
def size(nodes: Nodes, op: Op) -> None:
    """`Size`, as one element."""
    count = nodes.add("Size", [nodes.input(op, "Input")])
    nodes.add("Reshape", [count, nodes.constant([1])], nodes.output(op, "Out"))


@converts("is_empty")
def is_empty(nodes: Nodes, op: Op) -> None:
    """Whether `Size` is 0, as one element."""
    count = nodes.add("Size", [nodes.input(op, "X")])
    empty = nodes.add("Equal", [count, nodes.scalar(0, DType.INT64)])
    nodes.add("Reshape", [empty, nodes.constant([1])], nodes.output(op, "Out"))


@converts("range")
def number_range(nodes: Nodes, op: Op) -> None:
    """`Range`."""
    empty = nodes.constant(np.zeros(0, np.int64))
    names = [
        nodes.add("Reshape", [nodes.input(op, slot), empty]) for slot in ("Start", "End", "Step")
    ]
    nodes.add("Range", names, nodes.output(op, "Out"))


@converts("linspace")
def linspace(nodes: Nodes, op: Op) -> None:
    """The first number and multiples of the step, in float64; the last one is exact."""
    wide = DType.FP64
    scalars = [
        nodes.add("Reshape", [nodes.input(op, slot), nodes.constant(np.zeros(0, np.int64))])
        for slot in ("Start", "Stop", "Num")
    ]
    start, stop = (nodes.cast(name, wide) for name in scalars[:2])
    one, count = nodes.scalar(1, DType.INT64), nodes.cast(scalars[2], DType.INT64)
    last = nodes.add("Sub", [count, one])
    gaps = nodes.cast(nodes.add("Max", [last, one]), wide)
    step = nodes.add("Div", [nodes.add("Sub", [stop, start]), gaps])
    numbers = nodes.add("Range", [nodes.scalar(0, DType.INT64), count, one])
    values = nodes.add("Add", [nodes.add("Mul", [nodes.cast(numbers, wide), step]), start])
    is_last = nodes.add("And", [
        nodes.add("Equal", [numbers, last]),
        nodes.add("Greater", [numbers, nodes.scalar(0, DType.INT64)]),
    ])  # fmt: skip
    values = nodes.add("Where", [is_last, stop, values])
    nodes.cast(values, op["Out"].type.dtype, nodes.output(op, "Out"))


@converts("unique", "unique_with_counts")
def unique(nodes: Nodes, op: Op) -> None:
    """`Unique`, sorted or in the order of first occurrence; ONNX Runtime has it for int64."""
    defn: Any = op.defn
    x, dtype = nodes.input(op, "X"), op["X"].type.dtype
    if not dtype.is_float:
        x = nodes.cast(x, DType.INT64)
    is_sorted = bool(getattr(defn, "is_sorted", False))
    axis = {"axis": int(defn.axis[0])} if is_sorted and defn.axis else {}
    names = [nodes.temporary(name) for name in ("values", "first", "which", "counts")]
    nodes.add_all("Unique", [x], names, sorted=int(is_sorted), **axis)
    slots = ("Out", "Indices", "Index", "Counts" if op.kind == "unique" else "Count")
    for slot, name in zip(slots, names, strict=True):
        for var in op.outputs.get(slot, []):
            nodes.cast(name, var.type.dtype, nodes.bind(var))


@converts("where_index")
def where_index(nodes: Nodes, op: Op) -> None:
    """`NonZero`, one row an element."""
    places = nodes.add("NonZero", [nodes.input(op, "Condition")])
    nodes.add("Transpose", [places], nodes.output(op, "Out"), perm=[1, 0])


@converts("tril_triu")
def triangle(nodes: Nodes, op: Op) -> None:
    """`Trilu`."""
    defn: Any = op.defn
    names = [nodes.input(op, "X"), nodes.constant(np.array(defn.diagonal, np.int64))]
    nodes.add("Trilu", names, nodes.output(op, "Out"), upper=int(not defn.lower))
