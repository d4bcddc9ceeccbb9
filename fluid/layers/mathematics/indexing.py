"""Slicing, gather and scatter, and index computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluid.framework import Variable, convert_np_dtype_to_dtype_
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.mathematics.arithmetic import append_named
from fluid.layers.nn import reshape
from fluid.layers.size_arguments import Sizes, has_variable, size_operands
from fluid.layers.tensor import NUMBERS, zeros
from fluid.recording.annotations import DTypeLike, SlotValue
from fluid.recording.checks import check_dtype, check_type, check_variable, check_variable_and_dtype

__all__ = [
    "crop",
    "crop_tensor",
    "flip",
    "gather",
    "gather_nd",
    "index_sample",
    "index_select",
    "multiplex",
    "nonzero",
    "one_hot",
    "reverse",
    "roll",
    "scatter",
    "scatter_nd",
    "scatter_nd_add",
    "shard_index",
    "slice",
    "strided_slice",
    "unique",
    "unique_with_counts",
    "where",
]

INDEX_DTYPES = ("int32", "int64")


# ---- slicing ------------------------------------------------------------------------------------


def _append_slice(
    helper: LayerHelper, op_type: str, input: Variable, axes: Sequence[int], **lists: Sizes
) -> Variable:
    """Append a slice op; each entry of `lists` is starts, ends or strides."""
    inputs: dict[str, SlotValue] = {"Input": input}
    attrs: dict[str, object] = {"axes": list(axes)}
    flags = [1] * len(axes)
    for name, values in lists.items():
        slot = name.capitalize()
        tensors, numbers = size_operands(
            helper, values, name, (f"{slot}Tensor", f"{slot}TensorList")
        )
        inputs |= tensors
        attrs[name] = numbers
        if tensors:
            single = isinstance(values, Variable)
            is_dynamic = [single or has_variable(value) for value in (axes if single else values)]
            flags = [
                -1 if dynamic else flag for dynamic, flag in zip(is_dynamic, flags, strict=False)
            ]
    return helper.append_result(op_type, inputs, {**attrs, "infer_flags": flags})


def slice(input: Variable, axes: Sequence[int], starts: Sizes, ends: Sizes) -> Variable:
    """Slice `starts[i]:ends[i]` along each of `axes`; negative indices count from the end.

    Starts and ends are integers, int32 variables of one element, or one variable with all of them.

    Starts and ends are numbers, int32 variables of one number, or one variable of all of them.

    >>> import fluid
    >>> frames = fluid.data("frames", [None, 5, 6])
    >>> fluid.layers.slice(frames, axes=[1, 2], starts=[1, -2], ends=[100, 6]).shape
    (-1, 4, 2)
    """
    check_variable(input, "input", "slice")
    for name, values in (("starts", starts), ("ends", ends)):
        if not isinstance(values, list | tuple | Variable):
            raise ValueError(f"{name} of slice must be a variable or a list, not {values!r}")
    return _append_slice(LayerHelper("slice"), "slice", input, axes, starts=starts, ends=ends)


def strided_slice(
    input: Variable, axes: Sequence[int], starts: Sizes, ends: Sizes, strides: Sizes
) -> Variable:
    """Slice `starts[i]:ends[i]:strides[i]` along each of `axes`.

    A negative stride takes the elements in reverse order; an end of -1 is then before index 0.
    """
    check_variable_and_dtype(input, "input", NUMBERS, "strided_slice")
    check_type(axes, "axes", (list, tuple), "strided_slice")
    lists = {"starts": starts, "ends": ends, "strides": strides}
    for name, values in lists.items():
        check_type(values, name, (list, tuple, Variable), "strided_slice")
    return _append_slice(LayerHelper("strided_slice"), "strided_slice", input, axes, **lists)


def crop(
    x: Variable,
    shape: Sequence[int] | Variable | None = None,
    offsets: Sequence[int] | Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return the sub-tensor that starts at `offsets` with the given shape; see `crop_tensor`.

    A size of -1 is that of the axis. `shape` may be a variable, whose shape is used.
    """
    check_variable_and_dtype(x, "x", ["float32"], "crop")
    check_type(shape, "shape", (list, tuple, Variable), "crop")
    offsets = [0] * len(x.shape) if offsets is None else offsets
    inputs, attrs = {"X": x}, dict[str, object]()
    for value, slot, attr in ((shape, "Y", "shape"), (offsets, "Offsets", "offsets")):
        if isinstance(value, Variable):
            inputs[slot] = value
        else:
            attrs[attr] = list(value or ())
    return append_simple_op("crop", inputs, attrs, name=name)


def crop_tensor(
    x: Variable,
    shape: Sizes | None = None,
    offsets: Sizes | None = None,
    name: str | None = None,
) -> Variable:
    """Return the sub-tensor at `offsets` with the given sizes; -1 extends to the end of the axis.

    Both are integers, int32 variables of one element, or one variable with all of them.

    >>> import fluid
    >>> volume = fluid.data("volume", [None, 5, 6])
    >>> crop_tensor(volume, shape=[-1, 2, 3], offsets=[0, 1, 2]).shape
    (-1, 2, 3)
    """
    check_variable_and_dtype(x, "x", NUMBERS, "crop_tensor")
    if shape is None:
        raise TypeError("The type of 'shape' in crop_tensor must be list or tuple or Variable")
    check_type(shape, "shape", (list, tuple, Variable), "crop_tensor")
    check_type(offsets, "offsets", (list, tuple, Variable, type(None)), "crop_tensor")
    helper = LayerHelper("crop_tensor", name=name)
    offsets = [0] * len(x.shape) if offsets is None else offsets
    _check_numbers(shape, "shape", lambda size: size != 0 and size >= -1)
    _check_numbers(offsets, "offsets", lambda offset: offset >= 0)
    starts, first = size_operands(helper, offsets, "offsets", ("Offsets", "OffsetsTensor"))
    sizes, attr = size_operands(helper, shape, "shape", ("Shape", "ShapeTensor"), unknown=0)
    inputs = {"X": x, **starts, **sizes}
    return helper.append_result("crop_tensor", inputs, {"offsets": first, "shape": attr})


def _check_numbers(values: Sizes, name: str, allowed: Callable[[int], bool]) -> None:
    listed: Sequence[int | Variable] = [] if isinstance(values, Variable) else values
    wrong = [value for value in listed if isinstance(value, int) and not allowed(value)]
    if wrong:
        raise ValueError(f"{name} of crop_tensor can not hold {wrong[0]}: {list(listed)}")


# ---- gather and scatter -------------------------------------------------------------------------


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Gather the rows of `input` at `index`, [count] or [count, 1].

    With `overwrite` the gradient of a row that is gathered more than once is that of its last use,
    else the sum of all.
    """
    check_variable(input, "input", "gather")
    check_variable(index, "index", "gather")
    inputs = {"X": input, "Index": index}
    return append_simple_op("gather", inputs, {"overwrite": overwrite})


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """Gather the slices of `input` at the index tuples in the last axis of `index`.

    >>> import fluid
    >>> lattice = fluid.data("lattice", [3, 4, 5])
    >>> nodes = fluid.data("nodes", [7, 2], dtype="int64")
    >>> gather_nd(lattice, nodes).shape
    (7, 5)
    """
    check_variable(input, "input", "gather_nd")
    check_variable(index, "index", "gather_nd")
    return append_simple_op("gather_nd", {"X": input, "Index": index}, name=name)


def scatter(
    input: Variable,
    index: Variable,
    updates: Variable,
    name: str | None = None,
    overwrite: bool = True,
) -> Variable:
    """Return `input` with the rows at `index` replaced by `updates`.

    For duplicate indices the last update is kept if `overwrite`, else their sum; the original row
    is replaced in both cases.
    """
    for value, argument in ((input, "input"), (updates, "updates")):
        check_variable(value, argument, "scatter")
    check_variable(index, "index", "scatter")
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return append_simple_op("scatter", inputs, {"overwrite": overwrite}, name=name)


def scatter_nd_add(
    ref: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """Return `ref` with `updates` added at the index tuples in the last axis of `index`."""
    for value, argument in ((ref, "ref"), (updates, "updates")):
        check_variable(value, argument, "scatter_nd_add")
    check_variable(index, "index", "scatter_nd_add")
    if ref.dtype != updates.dtype:
        raise ValueError(
            f"ref and updates of scatter_nd_add must have the same dtype, but are "
            f"{ref.dtype.name} and {updates.dtype.name}"
        )
    inputs = {"X": ref, "Index": index, "Updates": updates}
    return append_simple_op("scatter_nd_add", inputs, name=name)


def scatter_nd(
    index: Variable, updates: Variable, shape: Sequence[int], name: str | None = None
) -> Variable:
    """Scatter-add `updates` into zeros of shape `shape`; see `scatter_nd_add`."""
    check_variable(updates, "updates", "scatter_nd")
    return scatter_nd_add(zeros(shape, updates.dtype), index, updates, name)


def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """Select the slices of `input` at `index` along axis `dim`."""
    check_variable_and_dtype(input, "input", NUMBERS, "index_select")
    check_variable_and_dtype(index, "index", INDEX_DTYPES, "index_select")
    return append_simple_op("index_select", {"X": input, "Index": index}, {"dim": dim})


def index_sample(x: Variable, index: Variable) -> Variable:
    """For each row of `x`, gather the elements at the indices in the same row of `index`."""
    check_variable_and_dtype(x, "x", NUMBERS, "index_sample")
    check_variable_and_dtype(index, "index", INDEX_DTYPES, "index_sample")
    return append_simple_op("index_sample", {"X": x, "Index": index})


def multiplex(inputs: Sequence[Variable], index: Variable) -> Variable:
    """Select row i of the result from row i of `inputs[index[i]]`; `index` is int32 [rows, 1]."""
    check_type(inputs, "inputs", (list, tuple), "multiplex")
    if len(inputs) < 2:
        raise ValueError(f"multiplex takes two tensors or more, but received {len(inputs)}")
    for number, variable in enumerate(inputs):
        check_variable_and_dtype(variable, f"inputs[{number}]", NUMBERS, "multiplex")
    check_variable_and_dtype(index, "index", INDEX_DTYPES, "multiplex")
    return append_simple_op("multiplex", {"X": list(inputs), "Ids": index})


def where(condition: Variable) -> Variable:
    """Return the indices of the true elements, int64 [count, rank]."""
    check_variable(condition, "condition", "where")
    return append_simple_op("where_index", {"Condition": condition}, dtype="int64")


def nonzero(input: Variable, as_tuple: bool = False) -> Variable | tuple[Variable, ...]:
    """Return the indices of the nonzero elements like `where`; `as_tuple`: one column per axis."""
    indices = where(input)
    if not as_tuple:
        return indices
    count = len(input.shape)
    if count == 1:
        return (indices,)
    return tuple(slice(indices, [1], [axis], [axis + 1]) for axis in range(count))


# ---- reversing and rolling ----------------------------------------------------------------------


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """Reverse a tensor along one or more axes."""
    check_variable_and_dtype(x, "x", (*NUMBERS, "uint8"), "reverse")
    check_type(axis, "axis", (int, tuple, list), "reverse")
    axes = [axis] if isinstance(axis, int) else list(axis)
    return append_simple_op("reverse", {"X": x}, {"axis": axes})


def flip(input: Variable, dims: Sequence[int], name: str | None = None) -> Variable:
    """Reverse a tensor along the axes `dims`; the result is named `name` if it is not None."""
    check_variable_and_dtype(input, "input", ("float16", *NUMBERS, "bool"), "flip")
    check_type(dims, "dims", (list, tuple), "flip")
    if not dims:
        raise ValueError("dims of flip is empty, expected one axis or more")
    return append_named(name, "flip", {"X": input}, {"dims": list(dims)})


def roll(
    input: Variable, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Variable:
    """Shift elements cyclically by `shifts` along `dims`.

    Without `dims` the flattened tensor is shifted.
    """
    check_variable(input, "input", "roll")
    helper = LayerHelper("roll")
    steps = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else None if dims is None else list(dims)
    out = helper.create_variable_for_type_inference(input.dtype)
    x = reshape(input, [-1, 1]) if axes is None else input
    attrs = {"dims": [0] if axes is None else axes, "shifts": steps}
    helper.append_op("roll", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    several = input.shape.count(-1) > 1 and axes is not None
    return out if several else reshape(out, list(input.shape), inplace=True)


# ---- index encodings ----------------------------------------------------------------------------


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """One-hot encode `input`, [.., 1], as rows of length `depth`.

    An index outside [0, depth) is an error, or an all-zero row if `allow_out_of_range`.

    A number that is no place is an error, unless `allow_out_of_range` leaves its row at 0.

    >>> import fluid
    >>> digit = fluid.data("digit", [None, 1], dtype="int64")
    >>> one_hot(digit, depth=10).shape
    (-1, 10)
    """
    return one_hot_rows("one_hot", input, depth, allow_out_of_range)


def one_hot_rows(
    op_type: str, input: Variable, depth: int | Variable, allow_out_of_range: bool
) -> Variable:
    """Append `one_hot` or `one_hot_v2`, which differ in their treatment of the last axis."""
    check_variable_and_dtype(input, "input", INDEX_DTYPES, "one_hot")
    check_type(depth, "depth", (int, Variable), "one_hot")
    inputs: dict[str, SlotValue] = {"X": input}
    attrs: dict[str, object] = {"allow_out_of_range": allow_out_of_range}
    if isinstance(depth, Variable):
        depth.stop_gradient = True
        inputs["depth_tensor"] = depth
    else:
        attrs["depth"] = depth
    out = append_simple_op(op_type, inputs, attrs, dtype="float32")
    out.stop_gradient = op_type == "one_hot"
    return out


def shard_index(
    input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1
) -> Variable:
    """Convert ids to shard-local ids; `ignore_value` for ids of other shards.

    The `index_num` ids are divided among `nshards` shards in order; all shards but the last have
    the same size.
    """
    check_variable_and_dtype(input, "input", ["int64"], "shard_index")
    if not 0 <= shard_id < nshards:
        raise ValueError(f"The shard_id({shard_id}) should be in [0, {nshards})")
    attrs = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id}
    return append_simple_op("shard_index", {"X": input}, {**attrs, "ignore_value": ignore_value})


def unique(x: Variable, dtype: DTypeLike = "int32") -> tuple[Variable, Variable]:
    """Return the distinct values of a vector by first occurrence, and each element's index in
    them.
    """
    values, index = _unique("unique", x, dtype, ("Index",))
    return values, index


def unique_with_counts(
    x: Variable, dtype: DTypeLike = "int32"
) -> tuple[Variable, Variable, Variable]:
    """Return the results of `unique` and the count of each distinct value."""
    check_dtype(dtype, "dtype", INDEX_DTYPES, "unique_with_counts")
    check_variable_and_dtype(x, "x", NUMBERS, "unique_with_counts")
    if len(x.shape) != 1:
        raise ValueError(f"unique_with_counts takes a vector, but {x.name!r} is {list(x.shape)}")
    values, index, count = _unique("unique_with_counts", x, dtype, ("Index", "Count"))
    return values, index, count


def _unique(
    op_type: str, x: Variable, dtype: DTypeLike, slots: Sequence[str]
) -> tuple[Variable, ...]:
    check_variable_and_dtype(x, "x", NUMBERS, op_type)
    helper = LayerHelper(op_type)
    outputs = {"Out": helper.create_variable_for_type_inference(x.dtype)}
    outputs |= {slot: helper.create_variable_for_type_inference(dtype) for slot in slots}
    attrs = {"dtype": convert_np_dtype_to_dtype_(dtype)}
    helper.append_op(op_type, inputs={"X": x}, outputs=outputs, attrs=attrs)
    return tuple(outputs.values())
