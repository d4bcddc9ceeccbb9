"""Tensor arrays: what each op makes of one, that it leaves it alone, and its gradient."""

from typing import Any

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import find
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, TensorType
from compiler.support.limits import MAX_ARRAY_ITEMS
from tests.ops.samples import numbers

A, B, C = (numbers(2, 3, seed=seed) for seed in range(3))
LOD = np.array([0, 1, 2])
TABLE = np.array([[0, 3], [2, 2], [1, 1]])
SEQUENCES = [np.array([0, 3, 4, 6])]


def evaluate(kind: str, **values: Any) -> dict[str, Any]:
    attrs = values.pop("attrs", {})
    return find(kind)(attrs).evaluate(values)


def index(place: int) -> Any:
    return np.array([place])


def array_type(*shape: Any) -> TensorType:
    return TensorType(DType.FP32, shape, is_array=True)


# ---- writing and reading


def test_writing_makes_another_array():
    before = [A]
    after = evaluate("write_to_array", X=B, I=index(2), Array=before)["Out"]
    assert [item is None for item in after] == [False, True, False]
    assert after[2] is B
    assert before == [A]


def test_the_first_item_makes_an_array():
    out = evaluate("write_to_array", X=A, I=index(1), Array=None)
    assert out["Out"][0] is None
    assert out["Out_lod"] == []


def test_reading_returns_an_item():
    assert evaluate("read_from_array", X=[A, B], I=index(1))["Out"] is B


@pytest.mark.parametrize("place", [1, 5])
def test_reading_an_unwritten_item(place):
    with pytest.raises(IndexError, match=f"item {place} of the array was never written"):
        evaluate("read_from_array", X=[A, None], I=index(place))


@pytest.mark.parametrize("place", [-1, MAX_ARRAY_ITEMS, 2**40])
def test_an_index_that_no_array_has(place):
    with pytest.raises(ValueError, match=f"array index is {place}, expected 0 to 16777215"):
        evaluate("write_to_array", X=A, I=index(place), Array=None)


def test_missing_gradient_is_zeros_like_the_value():
    out = evaluate("read_from_array", X=[None, B.astype("float64")], I=index(0), X_W=A)["Out"]
    assert (out.tolist(), out.dtype) == (np.zeros((2, 3)).tolist(), np.float64)


def test_items_keep_their_sequences():
    written = evaluate("write_to_array", X=A, X_lod=[LOD], I=index(1), Array=[B])
    assert written["Out_lod"] == [[None, LOD]]
    read = evaluate("read_from_array", X=written["Out"], X_lod=written["Out_lod"], I=index(1))
    assert read["Out_lod"] == [LOD]


def test_types_of_arrays_are_open_where_items_differ():
    op = find("write_to_array")()
    item = TensorType(DType.FP32, (4, 3))
    result = op.infer_types({"X": item, "Array": array_type(2, 3)})
    assert result["Out"] == array_type(UNKNOWN, 3)
    assert op.infer_types({"X": item})["Out"] == array_type(4, 3)
    read = find("read_from_array")().infer_types({"X": array_type(UNKNOWN, 3)})
    assert read["Out"] == TensorType(DType.FP32, (UNKNOWN, 3))


def test_items_of_different_ranks_are_rejected():
    with pytest.raises(ShapeError, match="X is f32\\[3\\], but the items of the array are"):
        op = find("write_to_array")()
        op.infer_types({"X": TensorType(DType.FP32, (3,)), "Array": array_type(2, 3)})


@pytest.mark.parametrize(
    ("kind", "back", "read"),
    [
        ("write_to_array", "read_from_array", {"X": ["o@G"], "I": ["i"], "X_W": ["x"]}),
        ("read_from_array", "write_to_array", {"X": ["o@G"], "I": ["i"]}),
    ],
)
def test_each_is_the_gradient_of_the_other(kind, back, read):
    op = OpDesc(kind, {"X": ["x"], "I": ["i"]}, {"Out": ["o"]})
    (created,) = find(kind)().grad_ops(op, "{}@G".format)
    assert (created.type, created.inputs, created.outputs) == (back, read, {"Out": ["x@G"]})


# ---- the gradient of an array is a pot


def test_adding_to_an_array():
    first = evaluate("add_to_array", X=A, I=index(1), Array=None)["Out"]
    second = evaluate("add_to_array", X=B, I=index(1), Array=first)["Out"]
    assert first[0] is None
    assert first[1] is A
    np.testing.assert_array_equal(second[1], A + B)


def test_taking_leaves_a_hole():
    before = [A, B]
    out = evaluate("take_from_array", X=before, I=index(1), X_W=C)
    assert out["Out"] is B
    assert out["XOut"] == [A, None]
    assert before[1] is B
    again = evaluate("take_from_array", X=out["XOut"], I=index(1), X_W=C)
    assert not again["Out"].any()


# ---- as a whole


def test_length_counts_holes():
    assert evaluate("lod_array_length", X=[A, None, B]).popitem()[1].tolist() == [3]


@pytest.mark.parametrize(("axis", "use_stack"), [(0, False), (1, False), (-1, False), (1, True)])
def test_array_to_tensor_and_its_gradient(axis, use_stack):
    items = [A, B, C] if use_stack else [A, numbers(2, 3, seed=7)]
    attrs = {"axis": axis, "use_stack": use_stack}
    out = evaluate("tensor_array_to_tensor", X=items, attrs=attrs)
    join = np.stack if use_stack else np.concatenate
    np.testing.assert_array_equal(out["Out"], join(items, axis=axis))
    assert out["OutIndex"].tolist() == [item.shape[axis] for item in items]
    grad = find("tensor_array_to_tensor_grad")(attrs)
    result = grad.evaluate({"X": items, "Out@GRAD": out["Out"]})["X@GRAD"]
    for got, want in zip(result, items, strict=True):
        np.testing.assert_array_equal(got, want)


def test_type_of_an_array_that_becomes_a_tensor():
    op = find("tensor_array_to_tensor")
    result = op({"axis": 1}).infer_types({"X": array_type(2, 3)})
    assert result["Out"] == TensorType(DType.FP32, (2, UNKNOWN))
    stacked = op({"axis": 1, "use_stack": True}).infer_types({"X": array_type(2, 3)})
    assert stacked["Out"] == TensorType(DType.FP32, (2, UNKNOWN, 3))
    with pytest.raises(ShapeError, match="axis 2 of items"):
        op({"axis": 2}).infer_types({"X": array_type(2, 3)})


# ---- sequences, step by step


def test_steps_of_sequences_the_longest_first():
    x = np.arange(6.0).reshape(6, 1)
    out = evaluate("lod_tensor_to_array", X=x, X_lod=SEQUENCES, RankTable=TABLE)
    assert [item.ravel().tolist() for item in out["Out"]] == [[0, 4, 3], [1, 5], [2]]
    back = evaluate("array_to_lod_tensor", X=out["Out"], RankTable=TABLE)
    np.testing.assert_array_equal(back["Out"], x)
    assert [level.tolist() for level in back["Out_lod"]] == [[0, 3, 4, 6]]


def test_steps_that_are_sequences_themselves():
    x = np.arange(7.0).reshape(7, 1)
    levels = [np.array([0, 2, 3]), np.array([0, 3, 4, 7])]
    table = evaluate("lod_rank_table", X=x, X_lod=levels)["Out"]
    out = evaluate("lod_tensor_to_array", X=x, X_lod=levels, RankTable=table)
    assert [item.ravel().tolist() for item in out["Out"]] == [[0, 1, 2, 4, 5, 6], [3]]
    assert [[part.tolist() for part in level] for level in out["Out_lod"]] == [[[0, 3, 6], [0, 1]]]
    back = evaluate("array_to_lod_tensor", X=out["Out"], X_lod=out["Out_lod"], RankTable=table)
    np.testing.assert_array_equal(back["Out"], x)
    assert [level.tolist() for level in back["Out_lod"]] == [level.tolist() for level in levels]


def test_steps_at_the_inner_level():
    x = np.arange(7.0).reshape(7, 1)
    levels = [np.array([0, 2, 3]), np.array([0, 3, 4, 7])]
    ranked = evaluate("lod_rank_table", X=x, X_lod=levels, attrs={"level": 1})
    table = {"RankTable": ranked["Out"], "RankTable_lod": ranked["Out_lod"]}
    out = evaluate("lod_tensor_to_array", X=x, X_lod=levels, **table)
    assert [item.ravel().tolist() for item in out["Out"]] == [[0, 4, 3], [1, 5], [2, 6]]
    back = evaluate("array_to_lod_tensor", X=out["Out"], **table)
    np.testing.assert_array_equal(back["Out"], x)
    assert [level.tolist() for level in back["Out_lod"]] == [level.tolist() for level in levels]


def test_a_level_that_is_not_there():
    with pytest.raises(ShapeError, match="X has 1 LoD levels, expected a level 1"):
        offsets = TensorType(DType.INT64, (4,))
        find("lod_rank_table")({"level": 1}).infer_types({"X_lod": [offsets]})


def test_missing_step_gradients_are_zeros():
    steps = [None, numbers(2, 1), None]
    back = evaluate("array_to_lod_tensor", X=steps, RankTable=TABLE)["Out"].ravel()
    assert np.flatnonzero(back).tolist() == [1, 5]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0, 2**60], [2, 2], [1, 1]], f"of {2**60} entries, expected at most {MAX_ARRAY_ITEMS}"),
        ([[0, 3], [2, 1], [1, 2]], "do not descend"),
        ([[0, 3], [2, 2], [1, -1]], "do not descend to 0"),
        ([[0, 3], [0, 2], [1, 1]], "each sequence once"),
    ],
)
def test_rank_tables_of_no_sequences(table, message):
    with pytest.raises(ValueError, match=message):
        evaluate("array_to_lod_tensor", X=[numbers(3, 1)], RankTable=np.array(table))
    with pytest.raises(ValueError, match=message):
        x = {"X": numbers(6, 1), "X_lod": SEQUENCES}
        evaluate("lod_tensor_to_array", **x, RankTable=np.array(table))


def test_a_rank_table_of_longer_sequences():
    with pytest.raises(ValueError, match="RankTable has longer sequences than X"):
        table = TABLE + np.array([0, 1])
        evaluate("lod_tensor_to_array", X=numbers(6, 1), X_lod=SEQUENCES, RankTable=table)


# ---- beams


def test_sentences_of_beams():
    """Two steps after the first words: one sentence ends, the other continues both beams."""
    ids = [np.array([[0]]), np.array([[3], [5]]), np.array([[1], [4], [6]])]
    scores = [np.array([[0.0]]), np.array([[-1.0], [-2.0]]), np.array([[-3.0], [-1.5], [-2.5]])]
    source = [np.array([0, 1]), np.array([0, 1]), np.array([0, 2])]
    prefix = [np.array([0, 1]), np.array([0, 2]), np.array([0, 2, 3])]
    out = evaluate(
        "beam_search_decode",
        Ids=ids,
        Ids_lod=[source, prefix],
        Scores=scores,
        attrs={"beam_size": 3, "end_id": 1},
    )
    assert out["SentenceIds"].tolist() == [0, 3, 4, 0, 5, 6, 0, 3, 1]
    assert out["SentenceScores"].tolist() == [0, -1, -1.5, 0, -2, -2.5, 0, -1, -3]
    assert [level.tolist() for level in out["SentenceIds_lod"]] == [[0, 3], [0, 3, 6, 9]]


def test_sentences_need_two_levels():
    with pytest.raises(ShapeError, match="Ids has 1 levels of LoD, expected 2"):
        offsets = TensorType(DType.INT64, (UNKNOWN,), is_array=True)
        op = find("beam_search_decode")({"beam_size": 2, "end_id": 1})
        op.infer_types({"Ids_lod": [offsets]})


# ---- arrays as converting a program uses them


def test_copies_and_sums_of_arrays():
    assert evaluate("copy_array", X=[A, None])["Out"] == [A, None]
    out = evaluate("sum_arrays", X=[[A, None], [B, C, A]])["Out"]
    np.testing.assert_array_equal(out[0], A + B)
    assert out[1] is C
    assert out[2] is A


def test_an_empty_array_knows_what_it_will_hold():
    op = find("empty_array")({"dtype": 5, "sizes": ["?", "3"]})
    assert op.evaluate({})["Out"] == []
    assert op.infer_types({})["Out"] == array_type(UNKNOWN, 3)
    assert op.infer_types({"X": array_type(2, 3)})["Out"] == array_type(2, 3)


def test_steps_behind_one_another():
    op = find("stack_steps")({"sizes": ["?", "2", "3"]})
    np.testing.assert_array_equal(op.evaluate({"X": [A, B]})["Out"], np.stack([A, B]))
    assert op.infer_types({"X": array_type(2, 3)})["Out"].shape == (UNKNOWN, 2, 3)
