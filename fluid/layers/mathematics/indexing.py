"""Layers of places: parts of tensors, elements by their places, and places as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.framework import Variable, convert_np_dtype_to_dtype_
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.mathematics.arithmetic import result_called
from fluid.layers.nn import reshape
from fluid.layers.size_arguments import Sizes, has_variable, spelled
from fluid.layers.tensor import NUMBERS, zeros
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

PLACES = ("int32", "int64")


# ---- parts --------------------------------------------------------------------------------------


def _part(
    helper: LayerHelper, op_type: str, input: Variable, axes: Sequence[int], **lists: Sizes
) -> Variable:
    """Append a slice: each of `lists` is starts, ends or strides."""
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    flags = [1] * len(axes)
    for name, values in lists.items():
        slot = name.capitalize()
        told, numbers = spelled(helper, values, name, (f"{slot}Tensor", f"{slot}TensorList"))
        inputs |= told
        attrs[name] = numbers
        waiting = [has_variable(each) for each in values] if numbers else [True] * len(axes)
        flags = [-1 if wait else flag for wait, flag in zip(waiting, flags, strict=False)]
    return helper.append_result(op_type, inputs, {**attrs, "infer_flags": flags})


def slice(input: Variable, axes: Sequence[int], starts: Sizes, ends: Sizes) -> Variable:
    """The places `starts` to `ends` of each of `axes`, negative ones counted from behind.

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
    return _part(LayerHelper("slice"), "slice", input, axes, starts=starts, ends=ends)


def strided_slice(
    input: Variable, axes: Sequence[int], starts: Sizes, ends: Sizes, strides: Sizes
) -> Variable:
    """Every so many of the places `starts` to `ends` of each of `axes`.

    A negative stride takes backwards what the positive one takes of the same places; an end of -1
    then lies before the first place.
    """
    check_variable_and_dtype(input, "input", NUMBERS, "strided_slice")
    check_type(axes, "axes", (list, tuple), "strided_slice")
    lists = {"starts": starts, "ends": ends, "strides": strides}
    for name, values in lists.items():
        check_type(values, name, (list, tuple, Variable), "strided_slice")
    return _part(LayerHelper("strided_slice"), "strided_slice", input, axes, **lists)


def crop(
    x: Variable,
    shape: Sequence[int] | Variable | None = None,
    offsets: Sequence[int] | Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The part that begins at `offsets` and has a shape, or that of a variable; see `crop_tensor`.

    A size of -1 is that of the axis.
    """
    check_variable_and_dtype(x, "x", ["float32"], "crop")
    check_type(shape, "shape", (list, tuple, Variable), "crop")
    offsets = [0] * len(x.shape) if offsets is None else offsets
    inputs, attrs = {"X": x}, dict[str, Any]()
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
    """The part that begins at `offsets` and has these sizes; a size of -1 is all that is left.

    Both are numbers, int32 variables of one number, or one variable of all of them.

    >>> import fluid
    >>> volume = fluid.data("volume", [None, 5, 6])
    >>> crop_tensor(volume, shape=[-1, 2, 3], offsets=[0, 1, 2]).shape
    (-1, 2, 3)
    """
    check_variable_and_dtype(x, "x", NUMBERS, "crop_tensor")
    check_type(shape, "shape", (list, tuple, Variable), "crop_tensor")
    check_type(offsets, "offsets", (list, tuple, Variable, type(None)), "crop_tensor")
    helper = LayerHelper("crop_tensor", name=name)
    offsets = [0] * len(x.shape) if offsets is None else offsets
    _check_numbers(shape, "shape", lambda size: size != 0 and size >= -1)
    _check_numbers(offsets, "offsets", lambda offset: offset >= 0)
    starts, first = spelled(helper, offsets, "offsets", ("Offsets", "OffsetsTensor"))
    sizes, attr = spelled(helper, shape, "shape", ("Shape", "ShapeTensor"), unknown=0)
    inputs = {"X": x, **starts, **sizes}
    return helper.append_result("crop_tensor", inputs, {"offsets": first, "shape": attr})


def _check_numbers(values: Any, name: str, allowed: Any) -> None:
    listed = [] if isinstance(values, Variable) else values
    wrong = [each for each in listed if isinstance(each, int) and not allowed(each)]
    if wrong:
        raise ValueError(f"{name} of crop_tensor can not hold {wrong[0]}: {list(listed)}")


# ---- elements by their places -------------------------------------------------------------------


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """The rows of `input` at the places `index`, [count] or [count, 1].

    With `overwrite` the gradient of a row that is taken several times is that of its last use
    alone, else their sum.
    """
    check_variable(input, "input", "gather")
    check_variable_and_dtype(index, "index", PLACES, "gather")
    inputs = {"X": input, "Index": index}
    return append_simple_op("gather", inputs, {"overwrite": overwrite})


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """What `input` has at each place that `index` lists along its last axis.

    >>> import fluid
    >>> lattice = fluid.data("lattice", [3, 4, 5])
    >>> nodes = fluid.data("nodes", [7, 2], dtype="int64")
    >>> gather_nd(lattice, nodes).shape
    (7, 5)
    """
    check_variable(input, "input", "gather_nd")
    check_variable_and_dtype(index, "index", PLACES, "gather_nd")
    return append_simple_op("gather_nd", {"X": input, "Index": index}, name=name)


def scatter(
    input: Variable,
    index: Variable,
    updates: Variable,
    name: str | None = None,
    overwrite: bool = True,
) -> Variable:
    """`input` with the rows `updates` at the places `index`.

    Of several updates of a place the last counts with `overwrite`, else their sum; the row that was
    there is gone in both cases.
    """
    for value, argument in ((input, "input"), (updates, "updates")):
        check_variable(value, argument, "scatter")
    check_variable_and_dtype(index, "index", PLACES, "scatter")
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return append_simple_op("scatter", inputs, {"overwrite": overwrite}, name=name)


def scatter_nd_add(
    ref: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """`ref` plus each update at the place that `index` lists for it along its last axis."""
    for value, argument in ((ref, "ref"), (updates, "updates")):
        check_variable(value, argument, "scatter_nd_add")
    check_variable_and_dtype(index, "index", PLACES, "scatter_nd_add")
    if ref.dtype != updates.dtype:
        raise ValueError(
            f"ref and updates of scatter_nd_add must have one element type, but are "
            f"{ref.dtype.name} and {updates.dtype.name}"
        )
    inputs = {"X": ref, "Index": index, "Updates": updates}
    return append_simple_op("scatter_nd_add", inputs, name=name)


def scatter_nd(
    index: Variable, updates: Variable, shape: Sequence[int], name: str | None = None
) -> Variable:
    """The sum of updates at their places in zeros of a shape, see `scatter_nd_add`."""
    check_variable(updates, "updates", "scatter_nd")
    return scatter_nd_add(zeros(shape, updates.dtype), index, updates, name)


def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """The slices of `input` at the places `index` of an axis."""
    check_variable_and_dtype(input, "input", NUMBERS, "index_select")
    check_variable_and_dtype(index, "index", PLACES, "index_select")
    return append_simple_op("index_select", {"X": input, "Index": index}, {"dim": dim})


def index_sample(x: Variable, index: Variable) -> Variable:
    """For each row of `x` the elements at the places in the same row of `index`."""
    check_variable_and_dtype(x, "x", NUMBERS, "index_sample")
    check_variable_and_dtype(index, "index", PLACES, "index_sample")
    return append_simple_op("index_sample", {"X": x, "Index": index})


def multiplex(inputs: Sequence[Variable], index: Variable) -> Variable:
    """Each row from that of several tensors whose number `index`, int32 [rows, 1], has for it."""
    check_type(inputs, "inputs", (list, tuple), "multiplex")
    if len(inputs) < 2:
        raise ValueError(f"multiplex takes two tensors or more, but received {len(inputs)}")
    for number, each in enumerate(inputs):
        check_variable_and_dtype(each, f"inputs[{number}]", NUMBERS, "multiplex")
    check_variable_and_dtype(index, "index", PLACES, "multiplex")
    return append_simple_op("multiplex", {"X": list(inputs), "Ids": index})


def where(condition: Variable) -> Variable:
    """The places of the elements that are true, int64 [count, axes]."""
    check_variable(condition, "condition", "where")
    return append_simple_op("where_index", {"Condition": condition}, dtype="int64")


def nonzero(input: Variable, as_tuple: bool = False) -> Variable | tuple[Variable, ...]:
    """The places of the elements that are not 0, as `where`; or a column for each axis."""
    places = where(input)
    if not as_tuple:
        return places
    count = len(input.shape)
    if count == 1:
        return (places,)
    return tuple(slice(places, [1], [axis], [axis + 1]) for axis in range(count))


# ---- the other way round ------------------------------------------------------------------------


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """The same backwards along one axis, or several."""
    check_variable_and_dtype(x, "x", (*NUMBERS, "uint8"), "reverse")
    check_type(axis, "axis", (int, tuple, list), "reverse")
    axes = [axis] if isinstance(axis, int) else list(axis)
    return append_simple_op("reverse", {"X": x}, {"axis": axes})


def flip(input: Variable, dims: Sequence[int], name: str | None = None) -> Variable:
    """The same backwards along the axes `dims`; the result is called `name` if that is given."""
    check_variable_and_dtype(input, "input", ("float16", *NUMBERS, "bool"), "flip")
    check_type(dims, "dims", (list, tuple), "flip")
    if not dims:
        raise ValueError("dims of flip is empty, expected one axis or more")
    return result_called(name, "flip", {"X": input}, {"dims": list(dims)})


def roll(
    input: Variable, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Variable:
    """Every element so many places on along axes, and round at the end.

    Without axes it goes through all elements in order.
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


# ---- numbers as places --------------------------------------------------------------------------


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """Rows of `depth` with a 1 at the place that each number of `input`, [.., 1], says.

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
    """Append `one_hot` or `one_hot_v2`, which differ in what they do with the last axis."""
    check_variable_and_dtype(input, "input", PLACES, "one_hot")
    check_type(depth, "depth", (int, Variable), "one_hot")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
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
    """Each number as its shard counts it, `ignore_value` for numbers of other shards.

    `index_num` numbers fall to `nshards` shards in order, equally many to each but the last.
    """
    check_variable_and_dtype(input, "input", ["int64"], "shard_index")
    if not 0 <= shard_id < nshards:
        raise ValueError(f"The shard_id({shard_id}) should be in [0, {nshards})")
    attrs = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id}
    return append_simple_op("shard_index", {"X": input}, {**attrs, "ignore_value": ignore_value})


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """The values of a vector in the order of first use, and which of them each element is."""
    return _unique("unique", x, dtype, ("Index",))


def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """The same as `unique`, and how often each value comes."""
    check_dtype(dtype, "dtype", PLACES, "unique_with_counts")
    check_variable_and_dtype(x, "x", NUMBERS, "unique_with_counts")
    if len(x.shape) != 1:
        raise ValueError(f"unique_with_counts takes a vector, but {x.name!r} is {list(x.shape)}")
    return _unique("unique_with_counts", x, dtype, ("Index", "Count"))


def _unique(op_type: str, x: Variable, dtype: Any, slots: Sequence[str]) -> Any:
    check_variable_and_dtype(x, "x", NUMBERS, op_type)
    helper = LayerHelper(op_type)
    outputs = {"Out": helper.create_variable_for_type_inference(x.dtype)}
    outputs |= {slot: helper.create_variable_for_type_inference(dtype) for slot in slots}
    attrs = {"dtype": convert_np_dtype_to_dtype_(dtype)}
    helper.append_op(op_type, inputs={"X": x}, outputs=outputs, attrs=attrs)
    return tuple(outputs.values())
