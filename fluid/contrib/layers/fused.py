"""Contributed layers that fuse several ops into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike

__all__ = ["fused_elemwise_activation", "fused_embedding_seq_pool"]


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: str | list[str],
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """Return `outer(x, inner(y))` or `outer(inner(x, y))`; `functor_list` is [outer, inner].

    One is elementwise_add or elementwise_mul, which broadcasts `y` from `axis`, the other scale (by
    `scale`), relu, tanh or sigmoid. Raises ValueError unless there are two names.
    """
    names = functor_list.split(",") if isinstance(functor_list, str) else functor_list
    _expect_two(names, functor_list)
    helper = LayerHelper("fused_elemwise_activation")
    outputs = {
        slot: helper.create_variable_for_type_inference(x.dtype)
        for slot in ("Out", "IntermediateOut")
    }
    attrs: dict[str, object]
    attrs = {"axis": axis, "scale": scale, "save_intermediate_out": save_intermediate_out}
    attrs |= {"functor_list": names}
    inputs = {"X": x, "Y": y}
    helper.append_op("fused_elemwise_activation", inputs=inputs, outputs=outputs, attrs=attrs)
    return outputs["Out"]


def _expect_two(names: object, text: str | list[str]) -> None:
    if not isinstance(names, list) or len(cast(list[object], names)) != 2:
        raise ValueError(f"functor_list is {text!r}, expected a list of two names of ops")


def fused_embedding_seq_pool(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: ParamAttrLike = None,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Sum the rows of a new table of shape `size` over each sequence of int64 ids.

    `padding_idx` (negative: from the end) contributes zeros; with `is_sparse` the gradient of the
    table is SelectedRows.
    """
    helper = LayerHelper("fused_embedding_seq_pool", param_attr=param_attr)
    table = helper.create_parameter(helper.param_attr, list(size), dtype)
    padding = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and padding_idx < 0:
        padding = size[0] + padding_idx
    attrs = {"is_sparse": is_sparse, "combiner": combiner, "padding_idx": padding}
    return helper.append_result("fused_embedding_seq_pool", {"Ids": input, "W": table}, attrs)
