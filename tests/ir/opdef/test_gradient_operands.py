"""Operands that do not belong together raise ShapeError: of gradient ops, by the forward op's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.opdef.type_inference import infer_types
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, TensorType

N, M = Dim.named("N"), Dim.named("M")
Sizes = tuple[Any, ...]
INTEGERS = ("Indices", "Label", "X_rows", "Grad_rows", "Out_lod", "Samples")
POOL = {"pooling_type": "avg", "adaptive": True, "ksize": [1, 1]}
ROWS = {"Param": (7, 3), "Grad": (5, 3), "Grad_rows": (5,)}


def inferred(op: str, attrs: dict[str, Any], **shapes: Sizes) -> dict[str, Any]:
    types: dict[str, Any] = {
        slot.replace("d_", "") + "@GRAD" * slot.startswith("d_"): TensorType(
            DType.INT64 if slot in INTEGERS else DType.FP32, shape
        )
        for slot, shape in shapes.items()
    }
    types |= {slot: [type] for slot, type in types.items() if slot.endswith("_lod")}
    return infer_types(find(op)(attrs), types, OpDesc(op, {}, {}, attrs, "model.py:7"))


@pytest.mark.parametrize(
    ("op", "attrs", "shapes", "message"),
    [
        (
            "flatten2_grad",
            {"axis": 0},
            {"XShape": (0, 100_000), "d_Out": (1, 2)},
            "flatten2_grad: Out@GRAD is f32[1, 2], expected f32[1, 100000]",
        ),
        (
            "transpose2_grad",
            {"axis": [1, 0]},
            {"XShape": (3, 2, 5), "d_Out": (5, 2)},
            "XShape is f32[3, 2, 5], expected 0 on axis 0",
        ),
        (
            "cross_entropy_grad2",
            {},
            {"Label": (3, 1), "MatchX": (2, 1), "XShape": (3, 4, 0), "d_Y": (3, 1)},
            "MatchX is f32[2, 1], expected f32[3, 1]",
        ),
        (
            "argsort_grad",
            {"axis": 1},
            {"X": (100, 4), "Indices": (100, 4), "d_Out": (1, 4)},
            "Out@GRAD is f32[1, 4], expected f32[100, 4]",
        ),
        (
            "reduce_min_grad",
            {"dim": [1]},
            {"X": (3, 4), "Out": (2,), "d_Out": (3,)},
            "Out is f32[2], expected f32[3]",
        ),
        (
            "top_k_grad",
            {"k": 2},
            {"X": (100, 4), "Indices": (100, 2), "d_Out": (1, 2)},
            "Indices i64[100, 2] and Out@GRAD f32[1, 2] and a selection of X f32[100, 2] must",
        ),
        (
            "reshape2_grad",
            {"shape": [6]},
            {"XShape": (0, 2, 4), "d_Out": (6,)},
            "X f32[2, 4] and Out@GRAD f32[6] must have as many elements",
        ),
        (
            "batch_norm_grad",
            {},
            {"X": (2, 3, 4, 4), "Scale": (3,), "Bias": (3,), "SavedMean": (2,)}
            | {"SavedVariance": (3,), "d_Y": (2, 3, 4, 4)},
            "SavedMean is f32[2], expected f32[3]",
        ),
        (
            "softmax_with_cross_entropy_grad",
            {},
            {"Label": (2, 1), "Softmax": (3, 4), "d_Loss": (3, 1)},
            "Label is i64[2, 1]",
        ),
        (
            "clip_by_norm_rows",
            {"max_norm": 1.0},
            {"X": (5, 3), "X_rows": (4,)},
            "X is f32[5, 3] and X_rows i64[4], expected an index for each row",
        ),
        (
            "lamb",
            {"weight_decay": 0.1},
            dict.fromkeys(("Param", "Grad", "Moment2"), (3, 4))
            | dict.fromkeys(("LearningRate", "Beta1Pow", "Beta2Pow"), (1,))
            | {"Moment1": (4, 4)},
            "Moment1 f32[4, 4]",
        ),
        (
            "elementwise_add_grad_grad",
            {"axis": 1},
            {"DOut": (1, 1, 1), "DDX": (2, 3, 4), "DDY": (3,)},
            "DDX f32[2, 3, 4] does not broadcast to f32[1, 1, 1] at axis 1",
        ),
        (
            "sequence_unpad_grad",
            {},
            {"X": (1, 1, 1), "Out_lod": (4,), "d_Out": (6, 2)},
            "Out@GRAD f32[6, 2] and rows of X f32[?, 1] must have one shape",
        ),
        (
            "conv2d",
            {},
            {"Input": (3, 1, 7, 8), "Filter": (4, 1, 2, 0)},
            "Filter is f32[4, 1, 2, 0], expected filters with elements",
        ),
        (
            "box_coder",
            {},
            {"PriorBox": (4, 4), "PriorBoxVar": (4, 3), "TargetBox": (5, 4)},
            "PriorBox f32[4, 4] and PriorBoxVar f32[4, 3] must have one shape",
        ),
        (
            "roi_pool",
            {},
            {"X": (3, 2, 5, 7), "ROIs": (4, 4), "ROIs_lod": (3,)},
            "X is f32[3, 2, 5, 7], expected 2 images, as ROIs belong to",
        ),
        (
            "deformable_psroi_pooling",
            {"no_trans": False, "output_dim": 4, "group_size": [1, 1], "pooled_height": 1}
            | {"pooled_width": 1, "part_size": [2, 2], "sample_per_part": 1, "trans_std": 0.1}
            | {"spatial_scale": 1.0},
            {"Input": (2, 4, 5, 7), "ROIs": (3, 4), "Trans": (3, 6, 2, 2)},
            "expected two channels for each of the classes, which divide output_dim=4",
        ),
        (
            "crop_tensor_grad",
            {"shape": [-1, 2], "offsets": [1, 0]},
            {"X": (5, 3), "d_Out": (8, 2)},
            "crop_tensor_grad: [8, 2] from [1, 0] exceeds X f32[5, 3]",
        ),
        (
            "expand_v2_grad",
            {"shape": [4, -1]},
            {"X": (1, 3), "d_Out": (4, 2)},
            "X is f32[1, 3], which does not broadcast to Out@GRAD f32[4, 2]",
        ),
        (
            "nce",
            {"num_total_classes": 11},
            {"Input": (4, 3), "Label": (4, 2), "Weight": (11, 3), "Bias": (1, 1)},
            "Bias is f32[1, 1], expected 11 rows",
        ),
        (
            "hierarchical_sigmoid",
            {"num_classes": 9},
            {"X": (5, 3), "W": (8, 3), "Label": (5, 1), "Bias": (0, 1)},
            "Bias f32[0, 1], expected at least 8 nodes",
        ),
        (
            "sample_logits_grad",
            {"num_samples": 3},
            {"Samples": (4, 0), "LogitsDim": (4, 9, 0), "LabelsDim": (4, 2, 0)}
            | {"d_SampledLogits": (4, 5)},
            "Samples i64[4, 0] and SampledLogits@GRAD f32[4, 5] must have one shape",
        ),
        (
            "center_loss_grad",
            {"cluster_num": 4, "need_update": False},
            {"X": (5, 3), "SampleCenterDiff": (1, 3), "d_Loss": (5, 1)},
            "X f32[5, 3] and SampleCenterDiff f32[1, 3] must have one shape",
        ),
        ("cvm_grad", {}, {"X": (5, 4), "CVM": (4, 2), "d_Y": (5, 4)}, "CVM is f32[4, 2]"),
        ("accuracy", {}, {"Out": (5, 2), "Indices": (5, 0), "Label": (5, 1)}, "one or more for"),
        ("arg_max", {"axis": 1}, {"X": (2, 0, 5)}, "expected elements to choose from"),
        ("p_norm", {"porder": -np.inf}, {"X": (2, 0)}, "expected elements to take the extreme of"),
        ("softmax", {}, {"X": (2, 0)}, "expected one element or more along axis -1"),
        ("layer_norm", {"begin_norm_axis": 2}, {"X": (1, 3, 0)}, "one element or more in a row"),
        ("instance_norm", {}, {"X": (2, 3, 0)}, "expected one element or more in each channel"),
        ("pad2d", {"mode": "edge", "paddings": [1] * 4}, {"X": (2, 3, 0, 5)}, "size 0 can repeat"),
        ("pool2d", POOL, {"X": (2, 3, 0, 5)}, "one element or more"),
        ("bilinear_interp", {"out_h": 7, "out_w": 3}, {"X": (2, 3, 4, 0)}, "one element or more"),
        (
            "set_value",
            {"axes": [0], "starts": [0], "ends": [1], "steps": [1], "decrease_axes": [0]},
            {"Input": (0, 3, 5), "ValueTensor": (3, 1)},
            "expected one index of each single axis",
        ),
        (
            "bilinear_tensor_product",
            {},
            {"X": (3, 4), "Y": (3, 2), "Weight": (1, 4, 2), "Bias": (1, 5)},
            "Bias f32[1, 5], expected [1, k]",
        ),
        (
            "nce",
            {"num_total_classes": 11},
            {"Input": (4, 3), "Label": (4, 2), "Weight": (11, 3), "SampleWeight": (4, 2)},
            "SampleWeight f32[4, 2], expected a weight for each row",
        ),
        ("set_value", {}, {"Input": (4, 1, 5), "ValueTensor": (3, 1)}, "broadcast from [3, 1] to"),
        ("sgd_rows", {}, ROWS | {"LearningRate": (9,)}, "LearningRate is f32[9], expected one"),
        ("softmax_grad", {}, {"Out": (3, 4), "d_Out": (3, 5)}, "Out@GRAD is f32[3, 5], expected"),
        ("softmax_grad", {}, {"Out": (N, 4), "d_Out": (M, 4)}, "Out@GRAD is f32[M, 4], expected"),
        ("softmax_grad", {}, {"Out": (N, 4), "d_Out": (4,)}, "Out@GRAD is f32[4], expected f32[N"),
    ],
)
def test_a_wrong_shape_is_refused(
    op: str, attrs: dict[str, Any], shapes: dict[str, Sizes], message: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        inferred(op, attrs, **shapes)
    assert message in str(caught.value)
    assert "model.py:7" in str(caught.value)


def test_unknown_sizes_are_accepted() -> None:
    result = inferred("softmax_grad", {}, Out=(UNKNOWN, 4), d_Out=(N, 4))
    assert result["X@GRAD"].shape == (UNKNOWN, 4)


def test_sizes_that_a_missing_input_decides_are_not_inferred() -> None:
    """The forward op may have read its shape from a tensor, which the gradient op lacks."""
    result = inferred("expand_v2_grad", {}, X=(5, 1), d_Out=(5, 7))
    assert result["X@GRAD"].shape == (5, 1)
