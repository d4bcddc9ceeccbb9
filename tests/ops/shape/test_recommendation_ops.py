"""Ops of models that recommend: hashes as the reference has them, gradients, and what is refused."""

import re
from typing import Any

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ops.shape.hashing import hash_rows
from tests.ops.backward import gradient_op, gradients, types_of
from tests.ops.samples import numbers
from tests.ops.samples.sequence import column, lod

COUNTS = np.array([[3, 1], [5, 2], [9, 4]], np.float32)
TAGS = {"Ins_tag": column(0, 1, 4, 1), "Ins_tag_lod": lod((2, 0, 1, 1))}
TABLES = [numbers(2, 4), numbers(2, 4, seed=1)]


def run(kind: str, inputs: dict[str, Any], **attrs: Any) -> dict[str, Any]:
    """Check the types of the inputs and compute."""
    op = find(kind)(attrs)
    op.infer_types(types_of(inputs))
    return op.evaluate(inputs)


# ---- hash ---------------------------------------------------------------------------------------

RECORDED = {
    (np.int32, 1): [[954535, 977997], [73146, 927552]],
    (np.int32, 2): [[464857, 346286], [225784, 59902]],
    (np.int32, 3): [[793496, 400196], [330098, 195561]],
    (np.int32, 5): [[805759, 29739], [157975, 223245]],
    (np.int64, 1): [[966632, 619200], [874100, 807858]],
    (np.int64, 2): [[277289, 589073], [917558, 824160]],
    (np.int64, 3): [[895738, 909467], [72159, 235258]],
    (np.int64, 5): [[1917, 277530], [551340, 785766]],
}
"""Results of release 1.8.5 for rows counted from 7, modulo 1000003, for the seeds 0 and 1."""


@pytest.mark.parametrize(("dtype", "width"), RECORDED)
def test_hashes_of_the_reference(dtype: Any, width: int) -> None:
    rows = np.arange(7, 7 + 2 * width, dtype=dtype).reshape(2, width)
    result = run("hash", {"X": rows}, num_hash=2, mod_by=1000003)["Out"]
    assert (result.shape, result.dtype) == ((2, 2, 1), dtype)
    assert result[:, :, 0].tolist() == RECORDED[dtype, width]


def test_hash_beyond_its_element_type_wraps() -> None:
    result = run("hash", {"X": np.array([[1, 2]], np.int32)}, num_hash=2, mod_by=2**63 - 1)
    assert result["Out"].ravel().tolist() == [518264891, -1689332505]


def test_hash_of_no_rows() -> None:
    assert hash_rows(np.zeros((0, 5), np.int64), 3).shape == (0, 3)


def test_hash_does_not_depend_on_how_rows_lie_in_memory() -> None:
    part = np.arange(24).reshape(4, 6)[::2, ::3]
    np.testing.assert_array_equal(hash_rows(part, 2), hash_rows(part.copy(), 2))


@pytest.mark.parametrize(
    ("X", "attrs", "error", "says"),
    [
        (np.ones((2, 2)), {}, ShapeError, "expected element type i32 or i64"),
        (np.ones(2, np.int64), {}, ShapeError, "expected [rows, width]"),
        (np.ones((2, 2), np.int64), {"num_hash": 0}, BadAttribute, "'num_hash' is 0"),
        (np.ones((2, 2), np.int64), {"mod_by": -5}, BadAttribute, "'mod_by' is -5"),
    ],
)
def test_hash_rejects(X: Any, attrs: dict[str, int], error: Any, says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        run("hash", {"X": X}, **attrs)


# ---- cvm ----------------------------------------------------------------------------------------


def test_show_and_click_become_logarithms() -> None:
    X = np.array([[3, 1, 7], [0, 0, 8]], np.float32)
    shown = run("cvm", {"X": X, "CVM": COUNTS})["Y"]
    np.testing.assert_allclose(shown, [[np.log(4), np.log(2 / 4), 7], [0, 0, 8]], rtol=1e-6)
    np.testing.assert_array_equal(run("cvm", {"X": X, "CVM": COUNTS}, use_cvm=False)["Y"], X[:, 2:])


@pytest.mark.parametrize(
    ("lengths", "rows"), [(None, (0, 1, 2)), ((2, 0, 1), (0, 0, 2)), ((0, 3), (1, 1, 1))]
)
@pytest.mark.parametrize("use_cvm", [True, False])
def test_cvm_gradient_columns_are_counts(lengths: Any, rows: Any, use_cvm: bool) -> None:
    inputs = {"X": numbers(3, 4, low=1, high=2), "CVM": COUNTS}
    inputs |= {"X_lod": lod(lengths)} if lengths else {}
    attrs, weight = {"use_cvm": use_cvm}, numbers(3, 4 if use_cvm else 2, seed=3)
    result = gradients("cvm", attrs, inputs, {"Y": weight})["X"]
    np.testing.assert_array_equal(result[:, :2], COUNTS[[*rows]])
    np.testing.assert_array_equal(result[:, 2:], weight[:, -2:])


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"X": numbers(3, 1)}, "expected [rows, 2 + width]"),
        ({"X": numbers(3, 4, 2)}, "expected [rows, 2 + width]"),
        ({"X": numbers(3, 4), "X_lod": lod((2, 1), (1, 1, 1))}, "2 LoD levels"),
    ],
)
def test_cvm_rejects(inputs: dict[str, Any], says: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(says)):
        run("cvm", {**inputs, "CVM": COUNTS})


@pytest.mark.parametrize(
    ("CVM", "error", "says"),
    [
        (COUNTS[:2], ShapeError, "CVM is f32[2, 2], expected [3, 2]"),
        (numbers(3, 3), ShapeError, "CVM is f32[3, 3], expected [3, 2]"),
        (COUNTS.astype(np.int64), ShapeError, "must have one element type"),
    ],
)
def test_gradient_of_cvm_rejects(CVM: Any, error: Any, says: str) -> None:
    X = numbers(3, 4, low=1, high=2)
    with pytest.raises(error, match=re.escape(says)):
        gradient_op("cvm", {}, {"X": X, "CVM": CVM}, {"Y": X})


# ---- filter_by_instag ---------------------------------------------------------------------------


def filtered(wanted: Any, is_lod: bool = True, **given: Any) -> dict[str, Any]:
    inputs = {"Ins": numbers(6, 2), "Ins_lod": lod((1, 2, 0, 3)), **TAGS, **given}
    inputs["Filter_tag"] = np.array(wanted, np.int64)
    inputs = {slot: value for slot, value in inputs.items() if value is not None}
    return run("filter_by_instag", inputs, is_lod=is_lod)


def test_sequences_of_a_tag_pass() -> None:
    result = filtered([1, 7])
    np.testing.assert_array_equal(result["Out"], numbers(6, 2)[[0, 3, 4, 5]])
    assert result["Out_lod"][0].tolist() == [0, 1, 4]
    assert result["LossWeight"].tolist() == [[1], [1]]
    assert result["IndexMap"].tolist() == [[0, 0, 1], [1, 3, 3]]
    assert result["IndexMap_lod"][0].tolist() == result["LossWeight_lod"][0].tolist() == [0, 1, 2]


def test_a_sequence_without_rows_may_pass() -> None:
    result = filtered([4])
    assert (result["Out"].shape, result["Out_lod"][0].tolist()) == ((0, 2), [0, 0])
    assert result["LossWeight"].tolist() == [[1]]


def test_rows_without_tags_are_filtered() -> None:
    result = filtered([1], is_lod=False)
    assert result["IndexMap"].tolist() == [[0, 0, 1], [1, 3, 1]]


@pytest.mark.parametrize(
    ("given", "is_lod", "says"),
    [
        ({"Ins_lod": None}, True, "no sequences; without is_lod each row is an instance"),
        ({"Ins_lod": lod((3, 3))}, True, "tags of instance 3, but Ins has only 2 instances"),
        (
            {"Ins_tag": np.ones((4, 2), np.int64)},
            True,
            "Ins_tag is [4, 2], expected one tag per row",
        ),
    ],
)
def test_filter_rejects_data(given: dict[str, Any], is_lod: bool, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        filtered([1], is_lod, **given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"Ins": numbers(6, 2, 1)}, "expected [rows, width]"),
        ({"Ins_tag": column(0, 1, 4, 1, dtype=np.int32)}, "expected element type i64"),
        ({"Ins_lod": lod((2, 2), (1, 2, 0, 3))}, "Ins has 2 LoD levels, expected 1"),
    ],
)
def test_filter_rejects_types(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(says)):
        filtered([1], **given)


# ---- partial_concat, partial_sum ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["partial_concat", "partial_sum"])
@pytest.mark.parametrize(("start", "length"), [(4, 1), (-5, 1), (3, 2), (0, 5)])
def test_columns_that_are_not_there(kind: str, start: int, length: int) -> None:
    with pytest.raises(BadAttribute, match="are not columns of a table of 4"):
        run(kind, {"X": TABLES}, start_index=start, length=length)


@pytest.mark.parametrize(
    ("X", "says"),
    [
        ([numbers(2, 4), numbers(3, 4)], "their shapes differ"),
        ([numbers(2, 4), numbers(2, 5)], "their shapes differ"),
        ([numbers(2, 4, 1)], "expected [rows, columns]"),
        ([numbers(2, 4), np.ones((2, 4))], "must have one element type"),
    ],
)
def test_table_shape_errors(X: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(says)):
        run("partial_sum", {"X": X})
