"""Contributed layers of one op: partial concat and sum, batch shuffling, NMS with indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluid import unique_name
from fluid.contrib.layers.fused import fused_elemwise_activation, fused_embedding_seq_pool
from fluid.contrib.layers.matching import (
    match_matrix_tensor,
    sequence_topk_avg_pooling,
    tree_conv,
    var_conv_2d,
)
from fluid.contrib.layers.retrieval import (
    rank_attention,
    search_pyramid_hash,
    tdm_child,
    tdm_sampler,
)
from fluid.framework import Variable
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.detection import append_outputs
from fluid.recording.checks import check_type, check_variable_and_dtype

__all__ = [
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]

NUMBERS = ["float32", "float64", "int32", "int64"]


def partial_concat(
    input: Variable | Sequence[Variable], start_index: int = 0, length: int = -1
) -> Variable:
    """Concatenate columns `start_index` to `start_index + length` of each [batch, size] input.

    `length` -1 takes all columns from `start_index`. Returns [batch, inputs × length].
    """
    inputs = [input] if isinstance(input, Variable) else list(input)
    return _append_partial("partial_concat", inputs, start_index, length, ["float16", *NUMBERS])


def partial_sum(input: Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Add columns `start_index` to `start_index + length` of [batch, size] inputs.

    `length` -1 takes all columns from `start_index`. Returns [batch, length].
    """
    return _append_partial("partial_sum", list(input), start_index, length, NUMBERS)


def _append_partial(
    op: str, inputs: list[Variable], start_index: int, length: int, dtypes: Sequence[str]
) -> Variable:
    for number, variable in enumerate(inputs):
        check_variable_and_dtype(variable, f"input[{number}]", dtypes, op)
    check_type(start_index, "start_index", int, op)
    check_type(length, "length", int, op)
    return append_simple_op(op, {"X": inputs}, {"start_index": start_index, "length": length})


def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """Permute all rows of `x` (all axes but the last) randomly; same shape.

    `seed` is an int64 variable of one element that each run updates, or its initial value; default:
    the program's random seed, else a random one.
    """
    helper = LayerHelper("shuffle_batch")
    attrs: dict[str, object] = {}
    if seed is None:
        seed = helper.main_program.random_seed or int(np.random.randint(-65536, 65535))
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        seed = _seed_variable(helper, seed)
    out = helper.create_variable_for_type_inference(x.dtype)
    order = helper.create_variable_for_type_inference("int64")
    outputs = {"Out": out, "ShuffleIdx": order, "SeedOut": seed}
    helper.append_op("shuffle_batch", inputs={"X": x, "Seed": seed}, outputs=outputs, attrs=attrs)
    return out


def _seed_variable(helper: LayerHelper, seed: int) -> Variable:
    """Create a persistable int64 [1] that the startup program sets to `seed`."""
    name = unique_name.generate("shuffle_batch_seed")
    variable = helper.create_global_variable(name=name, persistable=True, dtype="int64", shape=[1])
    helper.set_variable_initializer(variable, Constant(seed))
    return variable


def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, ...]:
    """`layers.multiclass_nms`; with `return_index` also the index of each box that is kept."""
    attrs = {
        "background_label": background_label, "score_threshold": score_threshold,
        "nms_top_k": nms_top_k, "nms_threshold": nms_threshold, "nms_eta": nms_eta,
        "keep_top_k": keep_top_k, "normalized": normalized,
    }  # fmt: skip
    helper = LayerHelper("multiclass_nms2", name=name)
    inputs = {"BBoxes": bboxes, "Scores": scores}
    outputs = append_outputs(helper, inputs, {"Out": bboxes.dtype, "Index": "int32"}, attrs)
    return outputs if return_index else outputs[0]
