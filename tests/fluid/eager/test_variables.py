"""Eager variables: values, gradients, what they print, and what is kept of them."""

import copy
import gc
import weakref

import numpy as np
import pytest

import fluid
from compiler.errors import ShapeError
from fluid import layers
from fluid.dygraph import to_variable
from fluid.eager import plans
from fluid.eager.sizes import Sizes


@pytest.fixture(autouse=True)
def eager_mode():
    with fluid.dygraph.guard():
        yield


def variable(*values, stops=True):
    var = to_variable(np.array(values, "float32"))
    var.stop_gradient = stops
    return var


def test_print_shows_value():
    var = to_variable(np.arange(6, dtype="float32").reshape(2, 3), "x")
    assert str(var * 2).partition(",")[2] == (
        " dtype: VarType.FP32 shape: [2, 3] \tlod: {}\n\tdim: 2, 3\n\tlayout: NCHW\n"
        "\tdtype: float\n\tdata: [0 2 4 6 8 10]\n"
    )


def test_conversions_to_python():
    var = variable(2.5, 1.0)
    assert (float(var[0]), int(var[0]), len(var)) == (2.5, 2, 2)
    assert [item.shape for item in var] == [[1], [1]]
    assert np.array_equal(np.array(var), [2.5, 1.0])
    assert var[0] > 2
    with pytest.raises(AssertionError, match="only one element variable can be converted to float"):
        float(var)


def test_outputs_get_names_when_they_are_read():
    x = variable(1.0)
    outputs = [x * 2, x * 2, layers.relu(x)]
    names = [var.name for var in outputs]
    assert sorted(names) == ["relu_0.tmp_0", "tmp_0", "tmp_1"]
    assert [var.name for var in outputs] == names


def test_shape_is_also_a_list():
    sizes = Sizes((2, 3))
    assert sizes == [2, 3] == list(sizes)
    assert sizes == (2, 3)
    assert sizes[:1] + [4] == [2, 4]  # noqa: RUF005 - as scripts do
    assert (str(sizes), hash(sizes)) == ("[2, 3]", hash((2, 3)))


def test_backward_replaces_gradients():
    x = variable(1.0, 2.0, stops=False)
    for factor in (1.0, 3.0):
        layers.reduce_sum(x * x * factor).backward()
    assert x.gradient().tolist() == [6.0, 12.0]
    x.clear_gradient()
    assert x.gradient().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("printed", [False, True])
def test_backward_after_value_was_needed(printed):
    x = variable(0.5, 2.0, stops=False)
    y = layers.dropout(layers.tanh(layers.exp(x)), 0.5, seed=3)
    loss = layers.reduce_sum(y * y)
    if printed:
        assert loss.numpy().shape == (1,)
    kept = y.numpy() if printed else None
    loss.backward()
    gradient = x.gradient()
    value = y.numpy() if kept is None else kept
    inner = np.exp([0.5, 2.0])
    expected = np.where(value != 0, 2 * np.tanh(inner) * (1 - np.tanh(inner) ** 2) * inner, 0)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def test_graph_is_released_by_backward():
    x = variable(1.0, stops=False)
    shared = x * 2
    first, second = layers.reduce_sum(shared), layers.reduce_sum(shared * shared)
    first.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        second.backward()
    first.backward()
    assert x.gradient().tolist() == [2.0]


def test_retained_graph_is_used_again():
    x = variable(3.0, stops=False)
    loss = layers.reduce_sum(x * x)
    loss.backward(retain_graph=True)
    assert x.gradient().tolist() == [6.0]
    x.clear_gradient()
    loss.backward()
    assert x.gradient().tolist() == [6.0]


def test_gradients_stop():
    x = variable(1.0, stops=False)
    with fluid.dygraph.no_grad():
        assert (x * 2).stop_gradient
    stopped = x * 3
    stopped.stop_gradient = True
    layers.reduce_sum(stopped * x + (x * x).detach()).backward()
    assert x.gradient().tolist() == [3.0]
    assert stopped.gradient() is None


def test_gradients_of_gradients():
    x = variable(2.0, stops=False)
    (first,) = fluid.dygraph.grad(layers.reduce_sum(x * x * x), x, create_graph=True)
    layers.reduce_sum(first * first).backward()
    assert first.numpy().tolist() == [12.0]
    assert x.gradient().tolist() == [2 * 12.0 * 12.0]
    unused = variable(1.0, stops=False)
    loss = layers.reduce_sum(x)
    assert fluid.dygraph.grad(loss, [unused], allow_unused=True) == [None]
    with pytest.raises(RuntimeError, match="does not appear in the backward graph"):
        fluid.dygraph.grad(layers.reduce_sum(x), [unused])


def test_overwritten_variable():
    x = variable(1.0)
    doubled = x * 2
    same = layers.increment(x)
    assert same is x
    assert (x.numpy().item(), doubled.numpy().item()) == (2.0, 2.0)
    x.set_value(np.array([7.0], "float32"))
    assert (x * 2).numpy().item() == 14.0
    with pytest.raises(AssertionError, match="Variable Shape not match"):
        x.set_value(np.ones([2], "float32"))


def test_gradient_of_variable_written_between_uses_is_their_sum():
    x = variable(3.0, stops=False)
    first = x * x
    x.set_value(np.array([5.0], "float32"))
    (first * x).backward()
    assert x.gradient().tolist() == [2 * 3.0 * 5.0 + 3.0 * 3.0]
    layers.increment(x)
    layers.reduce_sum(x * x).backward()
    assert x.gradient().tolist() == [2 * 6.0]


def test_reshape_in_place_keeps_its_input():
    x = variable(1.0, 2.0, stops=False)
    y = layers.reshape(x, [2, 1], inplace=True)
    assert (x.shape, y.shape) == ([2], [2, 1])


def test_parameter_that_cannot_be_created_raises():
    x, attr = layers.ones([1, 1], "float32"), fluid.ParamAttr(name="shared")
    layers.fc(x, 1, param_attr=attr)
    with pytest.raises(ValueError, match=r"parameter name \[shared\] have be been used"):
        layers.fc(x, 1, param_attr=attr)
    with fluid.unique_name.guard():
        layers.fc(x, 1, param_attr=attr)
    with pytest.raises(RuntimeError, match="don't support WeightNormParamAttr"):
        layers.fc(x, 1, param_attr=fluid.WeightNormParamAttr(dim=0))


def test_size_that_depends_on_data():
    found = layers.where(variable(1.0, 0.0, 3.0) > 0.5)
    assert found.shape == [2, 1]
    assert (found * 2).numpy().ravel().tolist() == [0, 4]


def test_values_are_dropped_with_their_variables():
    x = variable(1.0, stops=False)
    middle = layers.exp(x)
    node = weakref.ref(middle.node)
    loss = layers.reduce_sum(middle * 2)
    del middle
    assert node() is not None
    loss.numpy()
    gc.disable()
    try:
        loss.backward()
        x.gradient()
        assert node() is None
    finally:
        gc.enable()


def test_error_names_line_and_variables():
    with pytest.raises(ShapeError, match=r"X f32\[3\].*\n.*X=left(.|\n)*test_variables.py"):
        layers.matmul(to_variable(np.ones(3, "float32"), "left"), variable(1.0, 2.0))
    with pytest.raises(RuntimeError, match="write the loop or branch in Python"):
        layers.While(variable(1.0) > 0).block().__enter__()
    with pytest.raises(TypeError, match="expected type is 'ndarray'"):
        to_variable([1.0])


def test_failed_trace_is_not_run_again(monkeypatch):
    x = variable(1.0)
    y = x + 1
    monkeypatch.setattr("fluid.eager.plans.write", None)
    with pytest.raises(TypeError):
        y.numpy()
    with pytest.raises(RuntimeError, match="has failed, see the error before"):
        y.numpy()


def test_numbers_that_change_compile_nothing():
    x, known = variable(1.0, 2.0), []
    for step in range(4):
        part = (x * (step * 0.5) + step) + layers.fill_constant([1], "float32", step)
        assert part.numpy().tolist() == [2.5 * step, 3.0 * step]
        known.append(plans.count())
    assert known[1] == known[2] == known[3]


def test_control_flow_functions_run_in_python():
    x = variable(3.0)
    assert layers.cond(x > 1, lambda: x * 2, lambda: x).numpy().item() == 6.0
    (i,) = layers.while_loop(lambda i: i < 5, lambda i: i + 2, [x])
    assert i.numpy().item() == 5.0


def test_tensor_array_is_list():
    x, y = variable(1.0, 2.0), variable(3.0, 4.0)
    first, second = (layers.fill_constant([1], "int64", index) for index in (0, 1))
    array = layers.array_write(x, first)
    assert layers.array_write(y, second, array) is array
    assert layers.array_read(array, second) is y
    layers.array_write(y, first, array)
    assert (array, layers.array_length(array), layers.create_array("float32")) == ([y, y], 2, [])
    joined, sizes = layers.tensor_array_to_tensor([x, y], axis=0)
    assert joined.numpy().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert sizes.numpy().tolist() == [2, 2]
    with pytest.raises(AssertionError, match="greater than the length 0"):
        layers.array_write(x, second)


def test_native_tensor():
    x = variable(1.0, 2.0)
    tensor = x.value().get_tensor()
    assert (tensor.shape(), tensor.lod(), np.array(tensor).tolist()) == ([2], [], [1.0, 2.0])
    tensor.set(np.array([3.0, 4.0], "float32"), fluid.CPUPlace())
    assert x.numpy().tolist() == np.array(tensor).tolist() == [3.0, 4.0]


def test_eval_disables_gradients_and_dropout_until_train():
    net, x = fluid.dygraph.Linear(2, 1), variable(1.0, 1.0)
    net.eval()
    loss = layers.reduce_sum(layers.dropout(net(x), 1.0))
    loss.backward()
    assert loss.stop_gradient
    assert loss.numpy().item() == 0.0
    assert net.weight.gradient() is None
    with fluid.dygraph.no_grad():
        net.train()
    assert net(x).stop_gradient
    net.train()
    layers.reduce_sum(net(x)).backward()
    assert net.weight.gradient().ravel().tolist() == [1.0, 1.0]


def test_loader_yields_variables():
    loader = fluid.io.DataLoader.from_generator(capacity=2)
    samples = [[(np.ones(3, "float32"), 1), (np.zeros(3, "float32"), 2)]]
    loader.set_sample_list_generator(lambda: iter(samples), places=fluid.CPUPlace())
    ((rows, labels),) = list(loader())
    assert (rows.shape, labels.numpy().tolist()) == ([2, 3], [1, 2])


def test_condition_is_value_for_scripts_only():
    x, zero = variable(0.0, 1.0), variable(0.0)
    out = variable(0.0, 0.0)
    layers.fill_constant([2], "float32", 3.0, out=out)
    assert out.numpy().tolist() == [3.0, 3.0]
    assert not zero
    with pytest.raises(AssertionError, match="used as the condition of if/while"):
        bool(x)


def test_split_into_one_part():
    (part,) = layers.split(variable(1.0, 2.0), 1, dim=0)
    assert part.numpy().tolist() == [1.0, 2.0]


def test_variables_are_not_copied_or_pickled():
    layer = fluid.dygraph.Linear(2, 2)
    for copied in (copy.copy, copy.deepcopy, lambda value: value.__reduce_ex__(2)):
        for value in (layer.weight, variable(1.0)):
            with pytest.raises(TypeError, match="can be neither copied nor pickled"):
                copied(value)


def test_trainable_and_stop_gradient_are_set_apart():
    layer = fluid.dygraph.Linear(2, 2)
    layer.weight.trainable = False
    before = layer.weight.numpy()
    loss = layers.reduce_sum(layer(variable([1.0, 2.0])))
    loss.backward()
    fluid.optimizer.SGD(0.1, parameter_list=layer.parameters()).minimize(loss)
    assert layer.weight.gradient().any()
    assert np.array_equal(layer.weight.numpy(), before)


def test_backward_takes_only_a_strategy():
    x = variable(1.0, stops=False)
    with pytest.raises(TypeError, match="3 is no BackwardStrategy"):
        layers.reduce_sum(x).backward(3)
    with pytest.raises(AssertionError, match="needs outputs and inputs"):
        fluid.dygraph.grad([], [x])
