"""Gradients in eager mode: those of sparse embeddings are values of rows and their numbers."""

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.dygraph import Embedding, to_variable

SPARSE, DENSE = fluid.core.VarDesc.VarType.SELECTED_ROWS, fluid.core.VarDesc.VarType.LOD_TENSOR


@pytest.fixture(autouse=True)
def eager():
    with fluid.dygraph.guard():
        yield


def table(is_sparse=True):
    rows = fluid.initializer.NumpyArrayInitializer(np.arange(10, dtype="float32").reshape(5, 2))
    return Embedding([5, 2], is_sparse=is_sparse, param_attr=fluid.ParamAttr(initializer=rows))


def looked_up(embedding, *ids):
    return layers.reduce_sum(embedding(to_variable(np.array(ids, "int64"))))


def test_values_and_row_numbers() -> None:
    embedding = table()
    assert embedding.weight.gradient() is None
    looked_up(embedding, 3, 1, 3).backward()
    values, rows = embedding.weight.gradient()
    assert values.tolist() == [[1, 1]] * 3
    assert (rows.tolist(), rows.dtype) == ([3, 1, 3], np.int64)
    gradient = embedding.weight._grad_ivar()
    assert gradient.type == SPARSE
    selected = gradient.value().get_selected_rows()
    assert (selected.rows(), selected.height()) == ([3, 1, 3], 5)
    np.testing.assert_array_equal(selected.get_tensor(), values)
    assert gradient.numpy().tolist() == [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]
    embedding.clear_gradients()
    assert embedding.weight.gradient() is None


def test_rows_of_two_lookups_are_added() -> None:
    embedding = table()
    (looked_up(embedding, 3, 1, 3) * 2 + looked_up(embedding, 4, 3) * 3).backward()
    values, rows = embedding.weight.gradient()
    assert (values.tolist(), rows.tolist()) == ([[2, 2], [7, 7], [3, 3]], [1, 3, 4])


@pytest.mark.parametrize("kind", ["not sparse", "used as a whole"])
def test_dense_gradient(kind: str) -> None:
    embedding = table(is_sparse=kind != "not sparse")
    loss = looked_up(embedding, 3, 1)
    if kind == "used as a whole":
        loss = loss + layers.reduce_sum(embedding.weight * 5)
    loss.backward()
    each = 5.0 if kind == "used as a whole" else 0.0
    expected = each + np.array([0, 1, 0, 1, 0])[:, None] * np.ones(2)
    np.testing.assert_array_equal(embedding.weight.gradient(), expected)
    gradient = embedding.weight._grad_ivar()
    assert gradient.type == DENSE
    with pytest.raises(TypeError, match="is dense: use get_tensor"):
        gradient.get_selected_rows()
    embedding.clear_gradients()
    assert not embedding.weight.gradient().any()


CLIPS = {
    "none": None,
    "global norm": fluid.clip.GradientClipByGlobalNorm(0.5),
    "norm": fluid.clip.GradientClipByNorm(0.3),
}
OPTIMIZERS = {
    "lazy Adam": lambda **kwargs: fluid.optimizer.Adam(0.1, lazy_mode=True, **kwargs),
    "Momentum": lambda **kwargs: fluid.optimizer.Momentum(0.1, 0.9, **kwargs),
}


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_reading_a_gradient_changes_no_update(kind: str, clip: str) -> None:
    """Batches of several sizes, of which rows without a gradient keep their values if it is lazy."""

    def trained(is_read: bool) -> object:
        embedding = table()
        parameters = embedding.parameters()
        optimizer = OPTIMIZERS[kind](parameter_list=parameters, grad_clip=CLIPS[clip])
        for ids in ([3, 1, 3], [0, 1], [2], [2, 0, 4, 0]):
            loss = looked_up(embedding, *ids)
            loss.backward()
            if is_read:
                assert embedding.weight.gradient()[1].tolist() == ids
            optimizer.minimize(loss)
            embedding.clear_gradients()
        return embedding.weight.numpy()

    np.testing.assert_array_equal(trained(True), trained(False))
