"""Layers of models that recommend: what they record, compute and train."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import default_main_program, default_startup_program

pytestmark = pytest.mark.usefixtures("fresh_programs")

EMBEDDED = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
FILTER = "filter_by_instag"
COUNTS = np.array([[1, 0], [1, 1], [1, 0]], np.float32)


def in_sequences(array: Any, lengths: list[int]) -> Any:
    return fluid.create_lod_tensor(np.array(array), [lengths], fluid.CPUPlace())


def fetched(exe: fluid.Executor, feed: Any, *fetches: Any) -> list[np.ndarray]:
    """Fetched arrays without their LoD."""
    result = exe.run(feed=feed, fetch_list=[*fetches], return_numpy=False)
    return [np.array(each) for each in result]


def attributes(*names: str) -> list[Any]:
    """Return what the last op has under each of the names."""
    return [default_main_program().global_block().ops[-1].attr(name) for name in names]


# ---- continuous_value_model ---------------------------------------------------------------------


@pytest.mark.parametrize(("use_cvm", "width"), [(True, 4), (False, 2)])
def test_counts_of_clicks(exe: fluid.Executor, use_cvm: bool, width: int) -> None:
    embedded, counts = fluid.data("x", [None, 4], lod_level=1), fluid.data("c", [None, 2])
    out = layers.continuous_value_model(embedded, counts, use_cvm)
    assert (out.name, out.shape, out.lod_level) == ("_generated_var_0", (-1, width), 1)
    assert attributes("use_cvm") == [use_cvm]
    feed = {"x": in_sequences(EMBEDDED, [1, 2]), "c": COUNTS}
    (result,) = fetched(exe, feed, out)
    np.testing.assert_array_equal(result[:, -2:], EMBEDDED[:, 2:])


def test_counts_are_what_the_table_learns(exe: fluid.Executor) -> None:
    ids, counts = fluid.data("ids", [None, 1], "int64"), fluid.data("c", [None, 2])
    table = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(0.5))
    embedded = layers.embedding(ids, [5, 4], param_attr=table)
    lost = layers.mean(layers.continuous_value_model(embedded, counts))
    fluid.optimizer.SGD(0.5).minimize(lost)
    exe.run(default_startup_program())
    exe.run(feed={"ids": np.array([[0], [3], [3]]), "c": COUNTS}, fetch_list=[lost])
    learnt = np.array(fluid.global_scope().find_var("table").get_tensor())
    np.testing.assert_allclose(learnt[[0, 3], :2], [[0, 0.5], [-0.5, 0]])
    np.testing.assert_allclose(learnt[[0, 3], 2:], 0.5 - 0.5 * np.array([[1], [2]]) / [[12, 12]])


def test_counts_of_whole_numbers_are_rejected() -> None:
    with pytest.raises(TypeError, match="data type of 'input' in cvm"):
        layers.continuous_value_model(fluid.data("x", [None, 4], "int64"), fluid.data("c", [-1, 2]))


# ---- filter_by_instag ---------------------------------------------------------------------------


def weighted_instances() -> list[Any]:
    """Record instances that pass, the weights of their losses, and the gradient of all."""
    instances = fluid.data("x", [None, 4])
    instances.stop_gradient = False
    tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    wanted = fluid.data("wanted", [None], "int64")
    passed, weights = layers.filter_by_instag(instances, tags, wanted, False, out_val_if_empty=7)
    lost = layers.reduce_sum(layers.elementwise_mul(passed, weights, axis=0))
    return [passed, weights, *fluid.gradients(lost, instances)]


def tagged(*wanted: int) -> dict[str, Any]:
    """Return a feed of instances with the tags 1, 2, and 2 and 6."""
    tags = in_sequences([[1], [2], [2], [6]], [1, 1, 2])
    return {"x": EMBEDDED, "tags": tags, "wanted": np.array(wanted)}


def test_filter_by_instag_appends_one_op() -> None:
    passed, weights, _ = weighted_instances()
    (op,) = (op for op in default_main_program().global_block().ops if op.type == FILTER)
    assert (op.attr("is_lod"), op.attr("out_val_if_empty")) == (False, 7)
    assert [passed.name, weights.name] == [f"{FILTER}_0.tmp_{index}" for index in (0, 1)]
    assert (passed.shape, weights.shape) == ((-1, 4), (-1, 1))


@pytest.mark.parametrize(("wanted", "rows"), [((2,), [1, 2]), ((6, 1), [0, 2]), ((1,), [0])])
def test_instances_of_a_tag(exe: fluid.Executor, wanted: Any, rows: list[int]) -> None:
    passed, weights, slope = fetched(exe, tagged(*wanted), *weighted_instances())
    np.testing.assert_array_equal(passed, EMBEDDED[rows])
    np.testing.assert_array_equal(weights, np.ones((len(rows), 1)))
    np.testing.assert_array_equal(slope[:, 0], np.isin(np.arange(3), rows))


def test_no_instance_of_a_tag(exe: fluid.Executor) -> None:
    passed, weights, slope = fetched(exe, tagged(9), *weighted_instances())
    np.testing.assert_array_equal(passed, np.full((1, 4), 7))
    assert (weights.tolist(), slope.any()) == ([[0]], False)


def test_sequences_of_a_tag(exe: fluid.Executor) -> None:
    words = fluid.data("x", [None, 4], lod_level=1)
    tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    wanted = fluid.data("wanted", [None], "int64")
    passed, _ = layers.filter_by_instag(words, tags, wanted, is_lod=True)
    sums = layers.sequence_pool(passed, "sum")
    feed = {"x": in_sequences(EMBEDDED, [2, 1]), "tags": in_sequences([[1], [2]], [1, 1])}
    actual = exe.run(feed={**feed, "wanted": np.array([1])}, fetch_list=[sums])[0]
    np.testing.assert_array_equal(actual, EMBEDDED[:2].sum(0, keepdims=True))


# ---- hash ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [("int32", [[722, 407], [603, 590]]), ("int64", [[524, 896], [640, 562]])],
)
def test_hashed_words(exe: fluid.Executor, dtype: str, numbers: Any) -> None:
    words = fluid.data("words", [None, 2], dtype, lod_level=1)
    out = layers.hash(words, hash_size=1000, num_hash=2, name="places")
    assert (out.name, out.shape, out.lod_level) == ("places.tmp_0", (-1, 2, 1), 1)
    assert (out.dtype, out.stop_gradient) == (words.dtype, True)
    assert attributes("num_hash", "mod_by") == [2, 1000]
    feed = {"words": in_sequences(np.array([[1, 2], [3, 4]], dtype), [2])}
    result = exe.run(feed=feed, fetch_list=[out], return_numpy=False)[0]
    assert result.recursive_sequence_lengths() == [[2]]
    assert np.array(result)[:, :, 0].tolist() == numbers


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"hash_size": "1000"}, "type of 'hash_size' in hash"),
        ({"hash_size": 1000, "num_hash": 1.5}, "type of 'num_hash' in hash"),
    ],
)
def test_hash_rejects(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        layers.hash(fluid.data("words", [None, 2], "int64"), **arguments)
