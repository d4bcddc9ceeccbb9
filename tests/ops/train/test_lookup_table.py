"""What samples cannot say of look-ups: sparse gradients, padding, and ids that are no rows."""

import re

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from compiler.ops.train.selected_rows import merge_in_place, merge_rows

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
ABOVE = np.arange(1.0, 10.0, dtype=np.float32).reshape(3, 3)
IDS = np.array([[2], [0], [2]])


def test_sparse_gradient_is_a_row_for_each_id() -> None:
    inputs = {"W": TABLE, "Ids": IDS, "Out@GRAD": ABOVE}
    gradient = find("lookup_table_grad")
    result = gradient({"is_sparse": True}).evaluate(inputs)
    np.testing.assert_array_equal(result["W@GRAD"], ABOVE)
    np.testing.assert_array_equal(result["W_rows@GRAD"], [2, 0, 2])
    whole = find("densify_rows")({"height": 4}).evaluate(
        {"X": result["W@GRAD"], "X_rows": result["W_rows@GRAD"]}
    )
    dense = gradient({}).evaluate(inputs)
    np.testing.assert_array_equal(whole["Out"], dense["W@GRAD"])


@pytest.mark.parametrize("sparse", [False, True])
def test_padding_gets_no_gradient(sparse: bool) -> None:
    inputs = {"W": TABLE, "Ids": IDS, "Out@GRAD": ABOVE}
    result = find("lookup_table_grad")({"is_sparse": sparse, "padding_idx": 2}).evaluate(inputs)
    rows = result["W@GRAD"][[0, 2]] if sparse else result["W@GRAD"][[2]]
    assert not rows.any()
    np.testing.assert_array_equal(result["W@GRAD"][1 if sparse else 0], ABOVE[1])


def test_types_of_gradients() -> None:
    types = {
        "W": TensorType(DType.FP32, (4, 3)),
        "Ids": TensorType(DType.INT64, (UNKNOWN, 7, 1)),
        "Out@GRAD": TensorType(DType.FP32, (UNKNOWN, 7, 3)),
    }
    gradient = find("lookup_table_grad")
    assert gradient({}).infer_types(types) == {"W@GRAD": types["W"]}
    result = gradient({"is_sparse": True}).infer_types(types)
    assert [str(each) for each in result.values()] == ["f32[?, 3]", "i64[?]"]


@pytest.mark.parametrize(("ids", "wrong"), [([1, 4], "id 4 at position 1"), ([-1], "id -1 at")])
def test_ids_that_are_no_rows(ids: list[int], wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong) + ".*: expected 0 to 3"):
        find("lookup_table_v2")({}).evaluate({"W": TABLE, "Ids": np.array(ids)})


def test_types_that_do_not_fit() -> None:
    table, ids = TensorType(DType.FP32, (4, 3)), TensorType(DType.INT64, (5, 2))
    with pytest.raises(ShapeError, match=re.escape("Ids are i64[5, 2], expected a last axis")):
        find("lookup_table")({}).infer_types({"W": table, "Ids": ids})
    with pytest.raises(ShapeError, match="Ids is i32"):
        find("lookup_table_v2")({}).infer_types({"W": table, "Ids": ids.with_dtype(DType.INT32)})
    with pytest.raises(ShapeError, match=re.escape("the table W is f32[4], expected two axes")):
        find("lookup_table_v2")({}).infer_types({"W": table.with_shape((4,)), "Ids": ids})
    types = {"X": table, "Y": table.with_shape((1, 3))}
    with pytest.raises(ShapeError, match="X is sparse, but Y is"):
        find("elementwise_mul_rows")({}).infer_types(types)
    with pytest.raises(ShapeError, match=re.escape("rows of Param f32[4, 3] and Grad f32[2, 5]")):
        find("sgd_rows")({}).infer_types({"Param": table, "Grad": table.with_shape((2, 5))})


def test_merging_rows() -> None:
    rows, total = merge_rows(ABOVE, IDS[:, 0])
    np.testing.assert_array_equal(rows, [0, 2])
    np.testing.assert_array_equal(total, [ABOVE[1], ABOVE[0] + ABOVE[2]])
    merged, kept, count = merge_in_place(ABOVE, IDS[:, 0])
    assert (count, list(kept)) == (2, [0, 2, 0])
    np.testing.assert_array_equal(merged, [*total, [0.0, 0.0, 0.0]])


def test_no_rows_at_all() -> None:
    rows, total = merge_rows(np.empty((0, 3), np.float32), np.empty(0, np.int64))
    assert (rows.shape, total.shape) == ((0,), (0, 3))
    inputs = {"Param": TABLE, "Grad": total, "Grad_rows": rows, "LearningRate": np.ones(1)}
    np.testing.assert_array_equal(find("sgd_rows")({}).evaluate(inputs)["ParamOut"], TABLE)


def test_only_sparse_gradients_are_merged() -> None:
    with pytest.raises(ValueError, match="takes a sparse gradient, but X is dense"):
        find("merge_selected_rows")({}).evaluate({"X": TABLE})
