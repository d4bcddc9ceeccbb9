"""Training in half precision: filters are transposed by the kernel that casts them."""

import numpy as np
import pytest

import compiler
import fluid
from fluid.contrib import mixed_precision

pytest.importorskip("triton")
pytest.importorskip("torch")


def training(images):
    """Two convolutions of 8 by 8 pixels, trained in float16."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = fluid.data("x", [images, 8, 8, 8])
        for size in (3, 1, 3):
            hidden = fluid.layers.conv2d(hidden, 8, size, padding=size // 2, act="relu")
        loss = fluid.layers.reduce_mean(fluid.layers.pool2d(hidden, 8, "avg"))
        mixed_precision.decorate(
            fluid.optimizer.SGD(0.5), use_dynamic_loss_scaling=False, init_loss_scaling=4.0
        ).minimize(loss)
    return main, startup, loss


def lines(images):
    main, _, loss = training(images)
    return compiler.compile(main, feed=["x"], fetch=[loss], target="triton").source.split("\n")


def test_filters_of_several_taps_that_many_pixels_read_are_transposed():
    created = [line for line in lines(4) if ".w_0@" in line and "= transpose(" in line]
    filters = {line.partition("transpose(")[2].partition(")")[0] for line in created}
    assert filters == {"conv2d_0.w_0", "conv2d_2.w_0"}
    assert any("def transpose_cast(" in line for line in lines(4)), "one kernel"
    assert not [line for line in lines(3) if ".w_0@" in line and "= transpose(" in line]


def test_the_numbers_are_those_of_the_cpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("FLUID_GPU", "ptx:80")
    x, result = np.random.default_rng(0).random((4, 8, 8, 8), "f4"), []
    for place in (fluid.CUDAPlace(0), fluid.CPUPlace()):
        main, startup, loss = training(4)
        with fluid.scope_guard(fluid.Scope()):
            fluid.Executor(fluid.CPUPlace()).run(startup)
            executor = fluid.Executor(place)
            result.append([executor.run(main, {"x": x}, [loss])[0] for _ in range(3)])
    np.testing.assert_allclose(*result, rtol=3e-3)
    assert result[0][2] < result[0][0]
