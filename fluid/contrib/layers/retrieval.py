"""Contributed layers for retrieval and ranking: item trees, rank attention, n-gram hashing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

from fluid.framework import Variable, convert_np_dtype_to_dtype_
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.layers.mathematics.indexing import slice
from fluid.layers.nn import reshape
from fluid.param_attr import ParamAttr, ParamAttrLike
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_dtype

__all__ = ["rank_attention", "search_pyramid_hash", "tdm_child", "tdm_sampler"]

INDICES = ["int32", "int64"]

LayerSamples: TypeAlias = Variable | list[Variable]
"""A result of `tdm_sampler`: of all layers, or a list with one for each."""


def tdm_child(
    x: Variable,
    node_nums: int,
    child_nums: int,
    param_attr: ParamAttrLike = None,
    dtype: DTypeLike = "int32",
) -> tuple[Variable, Variable]:
    """Children of the nodes `x` of a tree, [*x, child_nums], and a mask of those with an item.

    A new parameter of shape [node_nums, 3 + child_nums] and dtype `dtype` has item, layer, parent
    and children of each node; 0 means none. Raises TypeError unless `dtype` is int32 or int64.
    """
    helper = LayerHelper("tdm_child", param_attr=param_attr)
    check_dtype(dtype, "dtype", INDICES, "fluid.contrib.layers.tdm_child")
    tree = _create_table(helper, helper.param_attr, [node_nums, 3 + child_nums], dtype)
    tree.stop_gradient = True
    outputs = [
        helper.create_variable_for_type_inference(dtype, stop_gradient=True) for _ in range(2)
    ]
    helper.append_op(
        "tdm_child",
        inputs={"X": x, "TreeInfo": tree},
        outputs={"Child": outputs[0], "LeafMask": outputs[1]},
        attrs={"child_nums": child_nums, "dtype": convert_np_dtype_to_dtype_(dtype)},
    )
    return outputs[0], outputs[1]


def tdm_sampler(
    x: Variable,
    neg_samples_num_list: Sequence[int],
    layer_node_num_list: Sequence[int],
    leaf_node_num: int,
    tree_travel_attr: ParamAttrLike = None,
    tree_layer_attr: ParamAttrLike = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: DTypeLike = "int32",
    dtype: DTypeLike = "int32",
) -> tuple[LayerSamples, LayerSamples, LayerSamples]:
    """Sample nodes per tree layer for each leaf `x` [rows, 1]; return nodes, labels and masks.

    New parameters have the path to each leaf, [leaf_node_num, layers], and the nodes of all layers,
    [nodes, 1]. `neg_samples_num_list` negative nodes are drawn per layer. Labels are 1 for nodes on
    the path, which come first if `output_positive`; masks are 0 beyond the end of the path. With
    `output_list` each result is a list of [rows, samples, 1], one per layer, else [rows, samples].
    Raises ValueError if the lists differ in length or a layer has too few nodes, TypeError for
    dtypes other than int32 and int64, AssertionError for more leaves than nodes.
    """
    helper = LayerHelper("tdm_sampler")
    for value, name in ((tree_dtype, "tree_dtype"), (dtype, "dtype")):
        check_dtype(value, name, INDICES, "fluid.contrib.layers.tdm_sampler")
    offsets = _layer_offsets(neg_samples_num_list, layer_node_num_list)
    assert leaf_node_num < offsets[-1], f"{leaf_node_num} leaves of {offsets[-1]} nodes"
    shape = [leaf_node_num, len(layer_node_num_list)]
    travel = _create_table(helper, tree_travel_attr, shape, tree_dtype)
    layer = _create_table(helper, tree_layer_attr, [offsets[-1], 1], tree_dtype)
    slots = ("Out", "Labels", "Mask")
    outputs = {
        s: helper.create_variable_for_type_inference(dtype, stop_gradient=True) for s in slots
    }
    attrs = {
        "neg_samples_num_list": list(neg_samples_num_list), "output_positive": output_positive,
        "layer_offset_lod": offsets, "seed": seed, "dtype": convert_np_dtype_to_dtype_(dtype),
    }  # fmt: skip
    inputs = {"X": x, "Travel": travel, "Layer": layer}
    helper.append_op("tdm_sampler", inputs=inputs, outputs=outputs, attrs=attrs)
    if not output_list:
        return outputs["Out"], outputs["Labels"], outputs["Mask"]
    counts = [count + bool(output_positive) for count in neg_samples_num_list]
    out, labels, mask = (_by_layer(outputs[slot], counts) for slot in slots)
    return out, labels, mask


def _create_table(
    helper: LayerHelper, attr: ParamAttrLike, shape: list[int], dtype: DTypeLike
) -> Variable:
    """Create a parameter of indices, zeros by default."""
    param_attr = ParamAttr.to_attr(attr)
    table = helper.create_parameter(param_attr, shape, dtype, default_initializer=Constant(0))
    return cast(Variable, table)


def _layer_offsets(drawn: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """Return the start offset of each layer's nodes, and the end; ValueError for too few nodes."""
    if len(drawn) != len(nodes):
        raise ValueError(
            f"neg_samples_num_list has {len(drawn)} layers, layer_node_num_list {len(nodes)}: "
            "expected as many"
        )
    for layer, (count, size) in enumerate(zip(drawn, nodes, strict=True)):
        if count >= size:
            raise ValueError(
                f"{count} negative samples of the {size} nodes of layer {layer}: expected fewer"
            )
    return [sum(nodes[:layer]) for layer in range(len(nodes) + 1)]


def _by_layer(value: Variable, counts: Sequence[int]) -> list[Variable]:
    """Split the columns by layer, each as [rows, samples, 1]."""
    layers_out: list[Variable] = []
    for layer, count in enumerate(counts):
        start = sum(counts[:layer])
        part = slice(value, axes=[1], starts=[start], ends=[start + count])
        part = reshape(part, [-1, count, 1])
        part.stop_gradient = True
        layers_out.append(part)
    return layers_out


def rank_attention(
    input: Variable,
    rank_offset: Variable,
    rank_param_shape: Sequence[int],
    rank_param_attr: ParamAttrLike,
    max_rank: int = 3,
) -> Variable:
    """Multiply rows of `input` by matrices selected by ranks, and sum them.

    `input` is [rows, features], `rank_offset` int32 [rows, 1 + 2 · max_rank]: the rank of the row
    (from 1), then rank and row of each related item, 0 for none. The new parameter has the shape
    `rank_param_shape`, [features · max_rank², columns]. Returns [rows, columns]. Raises
    AssertionError for inconsistent shapes.
    """
    rows = input.shape[1] * max_rank * max_rank
    assert rows == rank_param_shape[0], f"{rank_param_shape} of rank_param, expected {rows} rows"
    helper = LayerHelper("rank_attention", input=input)
    dtype = helper.input_dtype()
    param = helper.create_parameter(rank_param_attr, list(rank_param_shape), dtype)
    param = cast(Variable, param)
    param.stop_gradient = False
    inputs = {"X": input, "RankOffset": rank_offset, "RankParam": param}
    return helper.append_result("rank_attention", inputs, {"MaxRank": max_rank})


def search_pyramid_hash(
    input: Variable,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: bool,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
    lr: float,
    param_attr: ParamAttrLike = None,
    param_attr_wl: ParamAttrLike = None,
    param_attr_bl: ParamAttrLike = None,
    name: str | None = None,
    distribute_update_vars: list[str] | None = None,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Embed each n-gram of 2 to `pyramid_layer` ids of a sequence in `num_emb` dimensions.

    `input` is int32 [rows, 1] with one LoD level. An embedding consists of slices of `rand_len`
    elements at hashed offsets of a new table [space_len + rand_len, 1]. The white and black lists
    are Bloom filters, stored as bytes in float32 [length, 1]. The backward pass subtracts `lr`
    times the gradient from the table, if `input` does not stop gradients. Raises ValueError if
    `distribute_update_vars` names a parameter that is none of these.
    """
    helper = LayerHelper("search_pyramid_hash", name=name)
    tables: dict[str, tuple[ParamAttrLike, int]] = {"W": (param_attr, space_len + rand_len)}
    if white_list_len > 0:
        tables["WhiteList"] = (param_attr_wl, white_list_len)
    if black_list_len > 0:
        tables["BlackList"] = (param_attr_bl, black_list_len)
    inputs = {"X": input, **_create_tables(helper, tables, dtype)}
    updated = _updated_names(distribute_update_vars, (param_attr, param_attr_wl, param_attr_bl))
    attrs = {
        "num_emb": num_emb, "space_len": space_len, "pyramid_layer": pyramid_layer,
        "rand_len": rand_len, "drop_out_percent": drop_out_percent,
        "is_training": int(is_training), "use_filter": use_filter,
        "white_list_len": white_list_len, "black_list_len": black_list_len, "seed": seed, "lr": lr,
        "distribute_update_vars": updated,
    }  # fmt: skip
    out = helper.create_variable_for_type_inference(dtype)
    temporary = partial(helper.create_variable_for_type_inference, stop_gradient=True)
    others = {"DropPos": temporary("int32"), "X_Temp_Out": temporary(dtype)}
    helper.append_op("pyramid_hash", inputs=inputs, outputs={"Out": out, **others}, attrs=attrs)
    return out


def _create_tables(
    helper: LayerHelper, tables: Mapping[str, tuple[ParamAttrLike, int]], dtype: DTypeLike
) -> dict[str, Variable]:
    """Create the parameters [length, 1] of slots, whose gradients are not computed."""
    created: dict[str, Variable] = {}
    for slot, (attr, length) in tables.items():
        param = helper.create_parameter(ParamAttr.to_attr(attr), [length, 1], dtype)
        created[slot] = cast(Variable, param)
        created[slot].stop_gradient = True
    return created


def _updated_names(names: list[str] | None, attrs: Sequence[ParamAttrLike]) -> str:
    """Return the names of updated parameters as an attribute; ValueError for an unknown name."""
    param_names = [attr.name for attr in attrs if isinstance(attr, ParamAttr)]
    for name in names or ():
        if name not in param_names:
            raise ValueError(f"search_pyramid_hash has no parameter {name!r}, but {param_names}")
    return ",".join(names or ())
