"""Layers on variable-length sequences, concatenated in one tensor with LoD."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_dtype, check_type, check_variable, check_variable_and_dtype

__all__ = [
    "lod_append",
    "lod_reset",
    "row_conv",
    "sequence_concat",
    "sequence_conv",
    "sequence_enumerate",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_mask",
    "sequence_pad",
    "sequence_pool",
    "sequence_reshape",
    "sequence_reverse",
    "sequence_scatter",
    "sequence_slice",
    "sequence_softmax",
    "sequence_unpad",
]

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
NUMBERS = FLOATS + INTEGERS
POOLS = ("average", "sum", "sqrt", "max", "last", "first")


# ---- convolution, pooling, softmax --------------------------------------------------------------


def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: ParamAttrLike = None,
    param_attr: ParamAttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve each sequence: row t depends on a window of `filter_size` rows of `input` [rows,
    size].

    The window begins at row t + `padding_start` (None: centered) and is zero-padded at the sequence
    ends. `padding` has no effect; `filter_stride` must be 1.

    >>> import fluid
    >>> words = fluid.data("convolved_words", [None, 8], lod_level=1)
    >>> fluid.layers.sequence_conv(words, num_filters=5).shape
    (-1, 5)
    """
    check_variable_and_dtype(input, "input", FLOATS, "sequence_conv")
    helper = LayerHelper(
        "sequence_conv", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    shape = [filter_size * input.shape[1], num_filters]
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype)
    attrs = {
        "contextStride": filter_stride,
        "contextStart": -(filter_size // 2) if padding_start is None else padding_start,
        "contextLength": filter_size,
    }
    out = helper.append_result("sequence_conv", {"X": input, "Filter": weight}, attrs)
    return helper.append_activation(helper.append_bias_op(out))


def row_conv(
    input: Variable,
    future_context_size: int,
    param_attr: ParamAttrLike = None,
    act: str | None = None,
) -> Variable:
    """Lookahead convolution: a per-column weighted sum of each row and the next rows.

    The window has `future_context_size` + 1 rows. `input` is [rows, size] with LoD, or [batch,
    length, size].
    """
    check_variable_and_dtype(input, "input", ("float32",), "row_conv")
    helper = LayerHelper("row_conv", param_attr=param_attr, act=act)
    shape = [future_context_size + 1, input.shape[-1]]
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype)
    return helper.append_activation(
        helper.append_result("row_conv", {"X": input, "Filter": weight})
    )


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Softmax within each sequence; `input` is [rows] or [rows, 1]."""
    check_variable_and_dtype(input, "input", FLOATS, "sequence_softmax")
    return append_simple_op("sequence_softmax", {"X": input}, {"use_cudnn": use_cudnn}, name=name)


def sequence_pool(
    input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0
) -> Variable:
    """Reduce each sequence of the innermost LoD level to one row.

    `pool_type` is "average", "sum", "sqrt" (sum / sqrt(length)), "max", "last" or "first"; empty
    sequences become `pad_value`. Raises ValueError for other types.

    >>> import fluid
    >>> words = fluid.data("pooled_words", [None, 8], lod_level=1)
    >>> pooled = fluid.layers.sequence_pool(words, "max")
    >>> pooled.shape, pooled.lod_level
    ((-1, 8), 0)
    """
    check_variable_and_dtype(input, "input", FLOATS, "sequence_pool")
    if str(pool_type).lower() not in POOLS:
        raise ValueError(f"pool_type of sequence_pool is {pool_type!r}, not one of {POOLS}")
    helper = LayerHelper("sequence_pool")
    out = helper.create_variable_for_type_inference(input.dtype)
    max_index = helper.create_variable_for_type_inference("int32", stop_gradient=True)
    helper.append_op(
        "sequence_pool",
        inputs={"X": input},
        outputs={"Out": out, "MaxIndex": max_index},
        attrs={"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": float(pad_value)},
    )
    return out


def sequence_first_step(input: Variable) -> Variable:
    """Return the first row of each sequence."""
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """Return the last row of each sequence."""
    return sequence_pool(input, "last")


# ---- concat, slice, reorder ---------------------------------------------------------------------


def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Variable:
    """Concatenate the i-th sequences of all inputs, for each i.

    Raises TypeError if `input` is not a list of variables.
    """
    check_type(input, "input", list, "sequence_concat")
    for index, variable in enumerate(input):
        check_variable(variable, f"input[{index}]", "sequence_concat")
        check_dtype(variable.dtype, f"input[{index}]", ("int64", *FLOATS), "sequence_concat")
    return append_simple_op("sequence_concat", {"X": list(input)}, name=name)


def sequence_slice(
    input: Variable, offset: Variable, length: Variable, name: str | None = None
) -> Variable:
    """Slice `length` rows from row `offset` of each sequence; both are [count, 1]."""
    check_variable_and_dtype(input, "input", NUMBERS, "sequence_slice")
    check_variable_and_dtype(offset, "offset", INTEGERS, "sequence_slice")
    check_variable_and_dtype(length, "length", INTEGERS, "sequence_slice")
    offset.stop_gradient = length.stop_gradient = True
    inputs = {"X": input, "Offset": offset, "Length": length}
    return append_simple_op("sequence_slice", inputs, name=name)


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Reverse each sequence."""
    check_variable_and_dtype(x, "x", (*FLOATS, "int8", *INTEGERS), "sequence_reverse")
    helper = LayerHelper("sequence_reverse", name=name)
    return helper.append_result("sequence_reverse", {"X": x}, slot="Y")


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Reshape each sequence to rows of `new_dim` elements, which must divide its size."""
    check_variable_and_dtype(input, "input", NUMBERS, "sequence_reshape")
    return append_simple_op("sequence_reshape", {"X": input}, {"new_dim": new_dim})


def sequence_scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """Add sequence i of `updates` to row i of `input`, at the columns in `index`."""
    check_variable_and_dtype(input, "input", NUMBERS, "sequence_scatter")
    check_variable_and_dtype(index, "index", INTEGERS, "sequence_scatter")
    check_variable_and_dtype(updates, "updates", NUMBERS, "sequence_scatter")
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return append_simple_op("sequence_scatter", inputs, name=name)


def sequence_enumerate(
    input: Variable, win_size: int, pad_value: int = 0, name: str | None = None
) -> Variable:
    """Windows of `win_size` ids from each row, padded with `pad_value`: [rows, win_size]."""
    check_variable_and_dtype(input, "input", INTEGERS, "sequence_enumerate")
    helper = LayerHelper("sequence_enumerate", name=name)
    out = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    attrs = {"win_size": win_size, "pad_value": pad_value}
    helper.append_op("sequence_enumerate", inputs={"X": input}, outputs={"Out": out}, attrs=attrs)
    return out


# ---- expansion by LoD, LoD changes --------------------------------------------------------------


def sequence_expand(
    x: Variable, y: Variable, ref_level: int = -1, name: str | None = None
) -> Variable:
    """Repeat each sequence of x (each row if it has no LoD) as often as y's level has items.

    `ref_level` counts from the outermost level of y; -1 is the innermost.
    """
    check_variable_and_dtype(x, "x", NUMBERS, "sequence_expand")
    check_variable(y, "y", "sequence_expand")
    attrs = {"ref_level": ref_level}
    return append_simple_op("sequence_expand", {"X": x, "Y": y}, attrs, name=name)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeat row i of x for the length of sequence i of y; the result has y's LoD."""
    check_variable_and_dtype(x, "x", NUMBERS, "sequence_expand_as")
    check_variable(y, "y", "sequence_expand_as")
    return append_simple_op("sequence_expand_as", {"X": x, "Y": y}, name=name)


def lod_reset(
    x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None
) -> Variable:
    """Return `x` with the LoD of `y`, or with offsets from the elements of `y` or `target_lod`.

    Raises ValueError if both are None.
    """
    check_variable_and_dtype(x, "x", NUMBERS, "lod_reset")
    if y is not None:
        check_variable(y, "y", "lod_reset")
        return append_simple_op("lod_reset", {"X": x, "Y": y})
    if target_lod is None:
        raise ValueError("lod_reset needs y or target_lod, but both are None")
    return append_simple_op("lod_reset", {"X": x}, {"target_lod": list(target_lod)})


def lod_append(x: Variable, level: Variable | Sequence[int]) -> Variable:
    """Return `x` with an additional innermost LoD level: offsets, or a variable that has them.

    Raises ValueError for another type of `level`.
    """
    check_variable_and_dtype(x, "x", NUMBERS, "lod_append")
    if not isinstance(level, Variable | list | tuple):
        raise ValueError(f"level of lod_append must be a Variable or offsets, not {level!r}")
    helper = LayerHelper("lod_append")
    if isinstance(level, Variable):
        return helper.append_result("lod_reset", {"X": x, "Y": level}, {"append": True})
    attrs = {"append": True, "target_lod": list(level)}
    return helper.append_result("lod_reset", {"X": x}, attrs)


# ---- padding and masks --------------------------------------------------------------------------


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Pad sequences to equal length [count, length, …]; also return their lengths (int64).

    The length is `maxlen`, or that of the longest if None. `pad_value` has one element, or the
    shape of a row.
    """
    check_variable_and_dtype(x, "x", NUMBERS, "sequence_pad")
    check_variable_and_dtype(pad_value, "pad_value", NUMBERS, "sequence_pad")
    helper = LayerHelper("sequence_pad", name=name)
    out = helper.create_variable_for_type_inference(x.dtype)
    length = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    pad_value.stop_gradient = True
    helper.append_op(
        "sequence_pad",
        inputs={"X": x, "PadValue": pad_value},
        outputs={"Out": out, "Length": length},
        attrs={"padded_length": -1 if maxlen is None else maxlen},
    )
    return out, length


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Concatenate the first `length[i]` rows of each x[i] to LoD sequences."""
    check_variable_and_dtype(x, "x", NUMBERS, "sequence_unpad")
    check_variable_and_dtype(length, "length", ("int64",), "sequence_unpad")
    length.stop_gradient = True
    return append_simple_op("sequence_unpad", {"X": x, "Length": length}, name=name)


def sequence_mask(
    x: Variable,
    maxlen: int | Variable | None = None,
    dtype: DTypeLike = "int64",
    name: str | None = None,
) -> Variable:
    """Return a mask [..., maxlen], 1 where j < x, else 0; `maxlen` None is the maximum of x.

    >>> import fluid
    >>> lengths = fluid.data("masked_lengths", [None], dtype="int64")
    >>> fluid.layers.sequence_mask(lengths, maxlen=5, dtype="float32").shape
    (-1, 5)
    """
    check_variable(x, "x", "sequence_mask")
    helper = LayerHelper("sequence_mask", name=name)
    out = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    is_tensor = isinstance(maxlen, Variable)
    helper.append_op(
        "sequence_mask",
        inputs={"X": x, "MaxLenTensor": maxlen if is_tensor else None},
        outputs={"Y": out},
        attrs={"out_dtype": out.dtype, "maxlen": None if is_tensor else maxlen},
    )
    return out
