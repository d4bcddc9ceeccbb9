"""Contributed layers for text matching: match matrices of sequence pairs, tree convolution."""

from __future__ import annotations

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.control.nested import convert_to_list
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike

__all__ = ["match_matrix_tensor", "sequence_topk_avg_pooling", "tree_conv", "var_conv_2d"]


def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: ParamAttrLike = None,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Compute `channel_num` match matrices between the rows of sequences of `x` and `y`.

    Both are [rows, size] with one LoD level. Returns a column of values, whose sequences are
    [channel_num, rows of x, rows of y], and the product of `x` and the new weight. Raises
    ValueError if the sizes differ.
    """
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x is {x.shape} and y {y.shape}, expected two axes and the same columns")
    helper = LayerHelper("match_matrix_tensor", param_attr=param_attr, act=act, name=name)
    shape = [x.shape[-1], channel_num, y.shape[-1]]
    weight = helper.create_parameter(helper.param_attr, shape, dtype)
    out = helper.create_variable_for_type_inference(dtype)
    product = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    helper.append_op(
        "match_matrix_tensor",
        inputs={"X": x, "Y": y, "W": weight},
        outputs={"Out": out, "Tmp": product},
        attrs={"dim_t": channel_num},
    )
    return helper.append_activation(out), product


def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: list[int], channel_num: int
) -> Variable:
    """Average the largest `k` values in each row of match matrices, for each k of `topks`.

    `input` is a column of values, whose sequences are [channel_num, rows of row, rows of col].
    Returns [rows of row, len(topks) · channel_num] with the LoD of `row`.
    """
    helper = LayerHelper("sequence_topk_avg_pooling")
    out = helper.create_variable_for_type_inference(input.dtype)
    positions = helper.create_variable_for_type_inference("int32", stop_gradient=True)
    helper.append_op(
        "sequence_topk_avg_pooling",
        inputs={"X": input, "ROW": row, "COLUMN": col},
        outputs={"Out": out, "pos": positions},
        attrs={"topks": topks, "channel_num": channel_num},
    )
    return out


def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    param_attr: ParamAttrLike = None,
    act: str | None = None,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Variable:
    """Zero-padded 2-D convolution of images of different sizes.

    `input` is a column of values, whose sequences are [input_channel, rows of row, rows of col].
    Returns such a column, of [output_channel, …].
    """
    helper = LayerHelper("var_conv_2d", param_attr=param_attr, act=act, name=name)
    kernel, strides = (
        convert_to_list(value, 2, name)
        for value, name in ((filter_size, "filter_size"), (stride, "stride"))
    )
    shape = [output_channel, input_channel * kernel[0] * kernel[1]]
    weight = helper.create_parameter(helper.param_attr, shape, dtype)
    out = helper.create_variable_for_type_inference(dtype)
    windows = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    attrs = {"InputChannel": input_channel, "OutputChannel": output_channel}
    attrs |= {"StrideH": strides[0], "StrideW": strides[1]}
    attrs |= {"KernelH": kernel[0], "KernelW": kernel[1]}
    inputs = {"X": input, "ROW": row, "COLUMN": col, "W": weight}
    helper.append_op(
        "var_conv_2d", inputs=inputs, outputs={"Out": out, "Col": windows}, attrs=attrs
    )
    return helper.append_activation(out)


def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    name: str | None = None,
) -> Variable:
    """Tree convolution: each node depends on its descendants up to `max_depth` - 1 levels below.

    `nodes_vector` is [batch, nodes, features], `edge_set` int32 [batch, edges, 2]: (parent, child),
    counted from 1, up to the first 0. Returns [batch, nodes, output_size, num_filters].
    """
    helper = LayerHelper(
        "tree_conv", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    shape = [nodes_vector.shape[2], 3, output_size, num_filters]
    weight = helper.create_parameter(helper.param_attr, shape, nodes_vector.dtype)
    inputs = {"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": weight}
    out = helper.append_result("tree_conv", inputs, {"max_depth": max_depth})
    return helper.append_activation(helper.append_bias_op(out) if helper.bias_attr else out)
