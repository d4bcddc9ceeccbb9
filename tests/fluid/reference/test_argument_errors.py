"""Calls that release 1.8.5 refuses, by the kind of error that it raises."""

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.initializer import Constant, Normal, Uniform
from fluid.optimizer import Adam, Momentum

pytestmark = pytest.mark.usefixtures("fresh_programs")


def var(dtype="float32", shape=(2, 3), name="x"):
    return fluid.data(name, list(shape), dtype)


def scope_without_a_name():
    with fluid.name_scope(""):
        pass


CALLS = {
    AssertionError: (
        lambda: Momentum(0.1, None),
        lambda: Adam(beta1=None),
        lambda: Uniform(None, 1.0),
        lambda: Normal(None),
        lambda: Constant(None),
        lambda: layers.split(var(), 1),
        lambda: layers.split(var(), 2, dim=1),
        lambda: layers.unfold(var(), [2, 2]),
        lambda: layers.image_resize_short(var(shape=(1, 2, 4, 6)), -1),
        lambda: var("int64") * 1.5,
        scope_without_a_name,
    ),
    TypeError: (
        lambda: layers.sums([var("bool")]),
        lambda: layers.linspace(var("int32", [1]), 1, 2, "float32"),
        lambda: layers.linspace(0, 1, var("int64", [1]), "float32"),
        lambda: layers.random_crop(var("bool"), [3]),
        lambda: layers.unique_with_counts(var("bool")),
        lambda: layers.uniform_random_batch_size_like(var("int32"), [-1, 4]),
        lambda: fluid.framework.convert_np_dtype_to_dtype_("float128x"),
    ),
    ValueError: (
        lambda: fluid.framework.convert_np_dtype_to_dtype_("complex64"),
        lambda: fluid.io.prepend_feed_ops(fluid.default_main_program(), ["nothing"]),
    ),
}


@pytest.mark.parametrize(
    ("kind", "call"), [(kind, call) for kind, calls in CALLS.items() for call in calls]
)
def test_a_call_is_rejected(kind, call):
    with pytest.raises(kind):
        call()


def test_rows_of_the_newer_one_hot_do_not_stop_gradients():
    assert not fluid.one_hot(var("int64", [2]), 5).stop_gradient
    assert layers.one_hot(var("int64", [2, 1], "y"), 5).stop_gradient


def test_a_feeder_checks_what_it_feeds():
    feeder = fluid.DataFeeder([var(shape=(-1, 3))], fluid.CPUPlace())
    assert feeder.feed_names == ["x"]
    assert feeder.feed_shapes == [(-1, 3)]
    assert feeder.feed_dtypes == [fluid.core.VarDesc.VarType.FP32]
    assert feeder.feed_lod_level == [0]


def test_elements_of_a_tensor_have_the_type_of_variables():
    tensor = fluid.create_lod_tensor(np.ones((2, 1), "float32"), [[2]], fluid.CPUPlace())
    assert tensor._dtype() == fluid.core.VarDesc.VarType.FP32
