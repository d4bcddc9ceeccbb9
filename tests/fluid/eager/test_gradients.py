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


def variable(seed: int):
    """A variable of random numbers that gets a gradient."""
    x = to_variable(np.random.RandomState(seed).rand(2, 3).astype("float32"))
    x.stop_gradient = False
    return x


@pytest.mark.parametrize("printed", range(3))
def test_printed_gradients_are_differentiated(printed: int) -> None:
    """Values read in Python in between change no gradient of a gradient."""
    x = variable(0)
    y = layers.reduce_sum(x * x * x * x)
    first = fluid.dygraph.grad(y, x, create_graph=True)[0]
    if printed > 0:
        np.testing.assert_allclose(first.numpy(), 4 * x.numpy() ** 3, rtol=1e-5)
    second = fluid.dygraph.grad(first * x, x, create_graph=True)[0]
    if printed > 1:
        np.testing.assert_allclose(second.numpy(), 16 * x.numpy() ** 3, rtol=1e-5)
    (layers.reduce_sum(second) + layers.reduce_sum(first) + y).backward()
    expected = 48 * x.numpy() ** 2 + 12 * x.numpy() ** 2 + 4 * x.numpy() ** 3
    np.testing.assert_allclose(x.gradient(), expected, rtol=1e-5)


def test_penalty_of_a_gradient_that_is_printed() -> None:
    """A penalty of Wasserstein GANs trains as before if a norm is printed every step."""

    def trained(is_printed: bool) -> object:
        constant = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.3))
        hidden = fluid.dygraph.Linear(3, 4, constant, act="tanh")
        last = fluid.dygraph.Linear(4, 1, constant)
        parameters = hidden.parameters() + last.parameters()
        sgd = fluid.optimizer.SGD(0.1, parameter_list=parameters)
        for step in range(2):
            x = variable(step)
            (gradient,) = fluid.dygraph.grad(last(hidden(x)), x, create_graph=True)
            norm = layers.reduce_sum(layers.square(gradient), dim=1)
            if is_printed:
                assert norm.numpy().min() > 0
            loss = layers.reduce_mean(layers.square(norm - 1.0))
            loss.backward()
            sgd.minimize(loss)
            for parameter in parameters:
                parameter.clear_gradient()
        return hidden.weight.numpy()

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-5)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_weight_decay_stays_out_of_the_gradient(is_sparse: bool) -> None:
    embedding = table(is_sparse)
    decay = fluid.regularizer.L2Decay(0.5)
    sgd = fluid.optimizer.SGD(0.1, parameter_list=embedding.parameters(), regularization=decay)
    weight = embedding.weight.numpy()
    gradient = np.array([0, 1, 0, 1, 0])[:, None] * np.ones(2)
    for _ in range(2):
        loss = looked_up(embedding, 3, 1)
        loss.backward()
        sgd.minimize(loss)
        weight = weight - 0.1 * (gradient + 0.5 * weight)
        np.testing.assert_array_equal(embedding.weight._grad_ivar().numpy(), gradient)
        np.testing.assert_allclose(embedding.weight.numpy(), weight, rtol=1e-5)
