"""Layers for recommender models: hashed ids, filtering by tag, click counts."""

from __future__ import annotations

import numpy as np

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype

__all__ = ["continuous_value_model", "filter_by_instag", "hash"]


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Transform or drop the show and click columns of embeddings [N, 2 + D].

    With `use_cvm` the two columns become log(show + 1) and log(click + 1) - log(show + 1); without
    it they are removed: [N, D]. `cvm`, [N, 2] or two values per sequence of `input`, is the
    gradient of these columns.

    >>> import fluid
    >>> shown = fluid.data("continuous_value_doc", [None, 10])
    >>> counts = fluid.data("continuous_value_counts", [None, 2])
    >>> continuous_value_model(shown, counts, use_cvm=False).shape
    (-1, 8)
    """
    check_variable_and_dtype(input, "input", FLOATS, "cvm")
    check_variable(cvm, "cvm", "cvm")
    helper = LayerHelper("cvm")
    out = helper.create_variable(dtype=input.dtype)
    inputs = {"X": input, "CVM": cvm}
    helper.append_op("cvm", inputs=inputs, outputs={"Y": out}, attrs={"use_cvm": use_cvm})
    return out


def filter_by_instag(
    ins: Variable,
    ins_tag: Variable,
    filter_tag: Variable,
    is_lod: bool,
    out_val_if_empty: int = 0,
) -> list[Variable]:
    """Select the instances of `ins` that have a tag of `filter_tag`; also return loss weights.

    An instance is a sequence of `ins`, or a row if not `is_lod`; its tags are the corresponding
    sequence of `ins_tag`. Tags are int64, one per row. The weights, [instances, 1], are ones; if no
    instance is selected, the result is one instance of weight 0 filled with `out_val_if_empty`.

    >>> import fluid
    >>> instances = fluid.data("filter_by_instag_doc", [None, 4])
    >>> tags = fluid.data("filter_by_instag_tags", [None, 1], "int64", lod_level=1)
    >>> wanted = fluid.data("filter_by_instag_wanted", [None], "int64")
    >>> passed, weights = filter_by_instag(instances, tags, wanted, is_lod=False)
    >>> passed.shape, weights.shape
    ((-1, 4), (-1, 1))
    """
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    for slot, var in inputs.items():
        check_variable(var, slot.lower(), "filter_by_instag")
    helper = LayerHelper("filter_by_instag")
    dtypes = {"Out": ins.dtype, "LossWeight": np.float64, "IndexMap": ins_tag.dtype}
    outputs = {
        slot: helper.create_variable_for_type_inference(dtype) for slot, dtype in dtypes.items()
    }
    attrs = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    helper.append_op("filter_by_instag", inputs=inputs, outputs=outputs, attrs=attrs)
    return [outputs["Out"], outputs["LossWeight"]]


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Hash rows of integers [N, D] to [0, `hash_size`): [N, num_hash, 1], by xxHash64.

    The `num_hash` hashes of a row use the seeds 0, 1, …

    >>> import fluid
    >>> words = fluid.data("hash_doc", [None, 2], "int64", lod_level=1)
    >>> fluid.layers.hash(words, hash_size=1000, num_hash=4).shape
    (-1, 4, 1)
    """
    check_variable_and_dtype(input, "input", ("int32", "int64"), "hash")
    for argument, number in (("hash_size", hash_size), ("num_hash", num_hash)):
        check_type(number, argument, (int, np.integer), "hash")
    helper = LayerHelper("hash", name=name)
    out = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    attrs = {"num_hash": int(num_hash), "mod_by": int(hash_size)}
    helper.append_op("hash", inputs={"X": input}, outputs={"Out": out}, attrs=attrs)
    return out
