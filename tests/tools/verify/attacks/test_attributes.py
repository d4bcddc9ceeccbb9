"""The short form of the attack with attributes, and the smallest case of each bug it found."""

import math
import os
import time
from typing import Any

import pytest

from tools.verify.attacks.attribute_values import Case, calls, cases
from tools.verify.attacks.attributes import RESULT, TYPED, UNDERFLOW, attempt, run
from tools.verify.support.children import Limits, call_in_children

EVERY = 127
"""Takes few cases, spread over all ops: no divisor of the number of values of an attribute."""


def case(op: str, name: str, value: Any) -> Case:
    result = next(call for call in calls() if call.op == op)
    return Case(result, name, value)


def test_a_sample_of_all_ops() -> None:
    chosen = cases(1)[::EVERY]
    outcomes = run(chosen, "numpy", Limits(seconds=20.0), workers=2)
    failed = [(str(c), o) for c, o in zip(chosen, outcomes, strict=True) if o.failed]
    assert not failed


@pytest.mark.parametrize(
    ("op", "name", "value", "message"),
    [
        ("relu6", "threshold", "x", "relu6: attribute 'threshold' is str 'x', not float"),
        (
            "slice",
            "ends",
            [2**40, 3],
            "item 0 of attribute 'ends' is 1099511627776, expected -2147",
        ),
        ("slice", "ends", [None, 3], "item 0 of attribute 'ends' is NoneType None, not int"),
        ("softmax", "axis", 7, "axis 7 is out of range"),
        ("softmax_grad", "axis", -9, "axis -9 is out of range"),
        ("spectral_norm", "power_iters", 10**6, "power_iters' is 1000000, expected 0 to 1000"),
        ("spp", "pyramid_height", 2**31 - 1, "expected 1 to 15"),
        ("roi_align", "sampling_ratio", 10**6, "expected -2147483648 to 128"),
        ("roi_align", "spatial_scale", math.nan, "'spatial_scale' is nan, expected"),
        ("density_prior_box", "densities", [10**6, 3], "expected 1 to 256"),
        ("prior_box", "aspect_ratios", [-math.inf], "item 0 of attribute 'aspect_ratios' is -inf"),
        ("distribute_fpn_proposals", "max_level", 10**6, "expected -64 to 64"),
        ("cudnn_lstm", "num_layers", 10**6, "expected 1 to 1024"),
        ("cudnn_lstm_grad", "num_layers", 10**6, "expected 1 to 1024"),
        ("gen_nccl_id", "nccl_comm_num", 10**9, "expected 1 to 256"),
        ("fake_channel_wise_dequantize_max_abs", "quant_bits", [10**9], "expected 1 to 64"),
        ("split_byref", "num", 2**15, "expected 0 to 4096"),
        ("split_selected_rows", "height_sections", [2] * 5000, "has 5000 entries, expected"),
        ("split_ids", "Out_names", ["a"] * 5000, "'Out_names' has 5000 entries, expected at most"),
        ("group_norm_grad", "groups", 10**6, "expected 1 to 4, the channels"),
        ("hierarchical_sigmoid", "num_classes", 2**31 - 1, "expected at least 2147483646 nodes"),
        ("dropout_by_key", "place", 2**31 - 1, "'place' is 2147483647, expected an index"),
        ("crop_grad", "offsets", [1, -(2**31)], "exceeds X"),
        ("im2sequence_grad", "kernels", [-2, 3], "im2sequence"),
        ("pool2d_grad", "paddings", [2**31 - 1, 0], "expected"),
        ("transpose2_grad", "axis", [0, 2, -2], "expected all axes of X"),
        ("fill_constant", "dtype", -1, "dtype=-1"),
    ],
)
def test_an_attribute_is_rejected(op: str, name: str, value: Any, message: str) -> None:
    outcome = attempt(case(op, name, value), "numpy")
    assert outcome.kind == TYPED
    assert message in outcome.text
    assert "model.py:7" in outcome.text


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        ("trace", "offset", -(2**31)),
        ("trace", "offset", 2**31 - 1),
        ("split_byref", "num", 2),
        ("lrn", "n", 2**31 - 1),
        ("pool2d", "paddings", [0, 7]),
        ("reduce_all", "out_dtype", 2),
        ("reduce_sum", "out_dtype", 2),
        ("detection_map", "class_num", 2**15),
        ("scale", "scale", -1e300),
    ],
)
def test_a_number_comes_out_as_the_reference_implementation_specifies(
    op: str, name: str, value: Any
) -> None:
    assert not attempt(case(op, name, value), "numpy").failed


def test_native_code_may_differ_where_the_reference_implementation_underflows() -> None:
    outcome = attempt(case("adadelta", "rho", -1e38), "native")
    assert outcome.kind == UNDERFLOW


@pytest.mark.parametrize(
    ("op", "name", "value"), [("yolo_box", "conf_thresh", math.nan), ("group_norm", "groups", 3)]
)
def test_native_code_has_nan_where_the_reference_implementation_does(
    op: str, name: str, value: Any
) -> None:
    assert attempt(case(op, name, value), "native").kind == RESULT


def call_of(index: int) -> int:
    """Return 7, end the process, or never return."""
    if index == 1:
        os._exit(3)
    while index == 2:
        time.sleep(0.1)
    return 7


def test_crashes_and_hangs_are_reported() -> None:
    limits = Limits(seconds=1.0, first_seconds=2.0)
    result = call_in_children(call_of, 3, limits, lambda index, why: why, workers=1)
    assert result == [7, "crash: exit code 3", "hang: more than 2 s"]
