"""All steps of a recurrence in one launch, whose programs wait for each other."""

import re

import numpy as np
import pytest

import compiler
import fluid
import runtime
from compiler.codegen.triton.step_loops import most_of, step_table
from compiler.codegen.triton.tiling.tiles import step_tiles
from compiler.options import Options

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

WIDTH = 40


def built(build):
    main, start = fluid.Program(), fluid.Program()
    main.random_seed = start.random_seed = 3
    with fluid.program_guard(main, start), fluid.unique_name.guard():
        out = build(fluid.data("x", [None, 4 * WIDTH], "float32", lod_level=1))
    return main, start, out


def gru(x):
    return fluid.layers.dynamic_gru(fluid.layers.slice(x, [1], [0], [3 * WIDTH]), WIDTH)


def projected(x):
    return fluid.layers.dynamic_lstmp(x, 4 * WIDTH, 7)[0]


def field(x):
    emission = fluid.layers.fc(x, 4)
    label = fluid.layers.cast(fluid.layers.reduce_sum(emission * 0.0, 1, keep_dim=True), "int64")
    return fluid.layers.linear_chain_crf(emission, label)


@pytest.mark.parametrize(("build", "waits"), [(gru, 2), (projected, 2), (field, 0)])
def test_steps_of_products_are_one_launch(build, waits):
    main, _, out = built(build)
    source = compiler.compile(main, feed=["x"], fetch=[out], target="triton").source
    step = source[source.index("def step(") : source.index("return step")]
    assert source.count("    meet(arrived, ") == waits
    assert step.count("[(resident(") == bool(waits)
    assert len(re.findall("^ +for .* in ", step, re.MULTILINE)) == (not waits)


def test_programs_wait_for_each_other_after_every_product(monkeypatch):
    main, start, out = built(gru)
    lengths = [2, 0, 3]
    rows = np.random.default_rng(0).standard_normal((sum(lengths), 4 * WIDTH)).astype("f")
    feed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(start)
        (expected,) = executor.run(main, feed=feed, fetch_list=[out], return_numpy=False)
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        monkeypatch.setenv("FLUID_GPU", "ptx:80")
        monkeypatch.setenv("FLUID_CHECK", "1")
        executor = fluid.Executor(fluid.CUDAPlace(0))
        for _ in range(2):  # the counter is 0 again
            (result,) = executor.run(main, feed=feed, fetch_list=[out], return_numpy=False)
            np.testing.assert_allclose(np.array(result), np.array(expected), rtol=2e-5, atol=1e-6)


def lstm(x):
    return fluid.layers.dynamic_lstm(x, 4 * WIDTH)[0]


@pytest.mark.parametrize("build", [lstm, gru])
@pytest.mark.parametrize("sequences", [3, 20])
def test_steps_multiply_parts_of_float32_on_tensor_cores(build, sequences):
    """Forward with any number of sequences, gradients with more than 16."""
    main, start, out = built(build)
    with fluid.program_guard(main):
        x = main.block(0).var("x")
        x.stop_gradient = False
        loss = fluid.layers.reduce_sum(out * out)
        grads = [grad for _, grad in fluid.backward.append_backward(loss)]
    lengths = [2, 0, *[1] * (sequences - 2)]
    rows = np.random.default_rng(0).standard_normal((sum(lengths), 4 * WIDTH)).astype("f")
    feed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
    fetched = [out.name, "x@GRAD", *(grad.name for grad in grads)]
    module = compiler.compile(
        main, feed=["x"], fetch=fetched, target="triton", options=Options(gpu="cuda:90")
    )
    assert "few_dots(" in module.source and "float32_dot(" in module.source
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(start)
        params = dict(fluid.global_scope().arrays())
        expected = executor.run(main, feed=feed, fetch_list=fetched, return_numpy=False)
    offsets = np.cumsum([0, *lengths])
    results = runtime.load(module, runtime.CUDAPlace(0), params=params)(
        {"x": rows, "x@LOD0": offsets}
    )
    values = [array for array in results if array.dtype == np.float32]  # the others are offsets
    for result, want in zip(values, expected, strict=True):
        np.testing.assert_allclose(result, np.array(want), rtol=2e-5, atol=2e-6)


def test_threads_add_several_products_before_they_exchange_sums():
    *summed, many = step_tiles(24, by_parts=False)
    assert many.most is None
    for tile in (choice.tile for choice in summed):
        assert tile.rows * tile.inner >= 4 * 32 * tile.warps


def test_the_table_of_no_steps_is_empty():
    assert step_table([], 3).shape == (0, 3)
    assert most_of([], 1) == 0
    assert most_of([(1, 5), (2, 4)], 1) == 5
