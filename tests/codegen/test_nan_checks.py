"""FLAGS_check_nan_inf: a run stops at the first op whose result is no finite number."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

pytestmark = pytest.mark.usefixtures("fresh_programs")
ONES = np.ones((1, 3), "float32")


@pytest.fixture(autouse=True)
def checking() -> Iterator[None]:
    """Set the flag for one test."""
    fluid.set_flags({"FLAGS_check_nan_inf": 1})
    yield
    fluid.set_flags({"FLAGS_check_nan_inf": False})


def test_the_op_and_the_tensor_are_named(exe: Any) -> None:
    mean = layers.mean(layers.relu(layers.log(fluid.data("x", [None, 3]))))
    assert exe.run(feed={"x": ONES}, fetch_list=[mean])[0] == 0.0
    message = r"log: 3 NaN and 0 .* in \[op=log\] \[tensor=log_0.tmp_0\] find nan or inf"
    with pytest.raises(fluid.core.EnforceNotMet, match=message) as caught:
        exe.run(feed={"x": -ONES}, fetch_list=[mean])
    assert "test_nan_checks.py" in str(caught.value)


def test_gradients_are_checked(exe: Any) -> None:
    x = fluid.data("x", [None, 3])
    x.stop_gradient = False
    mean = layers.mean(layers.sqrt(x))
    fluid.gradients(mean, x)
    exe.run(feed={"x": ONES}, fetch_list=[mean])
    with pytest.raises(ValueError, match=r"in \[op=sqrt_grad\] \[tensor=x@GRAD\]"):
        exe.run(feed={"x": 0 * ONES}, fetch_list=[mean])


def test_nan_checks_in_branches_and_of_unfetched_results(exe: Any) -> None:
    x, p = fluid.data("x", [None, 3]), fluid.data("p", [1])
    out = layers.cond(p > 0.0, lambda: layers.log(x), lambda: x)
    layers.relu(x) / p
    one, zero = np.ones(1, "float32"), np.zeros(1, "float32")
    assert exe.run(feed={"x": ONES, "p": one}, fetch_list=[out])[0].sum() == 0.0
    with pytest.raises(ValueError, match=r"op=log"):
        exe.run(feed={"x": -ONES, "p": one}, fetch_list=[out])
    with pytest.raises(ValueError, match=r"op=elementwise_div\] \[tensor=tmp_2"):
        exe.run(feed={"x": ONES, "p": zero}, fetch_list=[out])


def test_nan_checks_are_compiled_by_the_flag(exe: Any) -> None:
    out = layers.log(fluid.data("x", [None, 3]))
    fluid.set_flags({"FLAGS_check_nan_inf": 0})
    assert np.isnan(exe.run(feed={"x": -ONES}, fetch_list=[out])[0]).all()
    fluid.set_flags({"FLAGS_check_nan_inf": 1})
    with pytest.raises(ValueError, match="find nan or inf"):
        exe.run(feed={"x": -ONES}, fetch_list=[out])
    fluid.set_flags({"FLAGS_check_nan_inf": 0})
    assert np.isnan(exe.run(feed={"x": -ONES}, fetch_list=[out])[0]).all()


def test_training(exe: Any) -> None:
    loss = layers.mean(layers.fc(layers.fc(fluid.data("x", [None, 3]), 4, act="relu"), 1))
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    exe.run(feed={"x": ONES}, fetch_list=[loss])
    weights = fluid.global_scope().find_var("fc_1.w_0").get_tensor()
    weights.set(np.full((4, 1), np.inf, "float32"), fluid.CPUPlace())
    with pytest.raises(ValueError, match=r"\[op=mul\] \[tensor=fc_1.tmp_0\]"):
        exe.run(feed={"x": ONES}, fetch_list=[loss])


def test_kernels_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    exe = fluid.Executor(fluid.CUDAPlace(0))
    out = layers.mean(layers.log(fluid.data("x", [None, 3])))
    exe.run(feed={"x": ONES}, fetch_list=[out])
    with pytest.raises(ValueError, match=r"\[op=log\] \[tensor=log_0.tmp_0\]"):
        exe.run(feed={"x": -ONES}, fetch_list=[out])
