"""Programs over sequences on a device: sizes that only LoD decides, and what the host does first."""

import numpy as np
import pytest

import compiler
import fluid
from compiler.codegen.triton.target import TritonTarget
from compiler.ir.analysis.data_dependent_sizes import infer_with_distinct_sizes
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.graph import Graph
from compiler.ir.types import DType, TensorType
from compiler.passes.base import Context
from compiler.passes.device.name_sizes import NameSizes

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

LENGTHS = [([2, 1, 3], [2, 0, 1]), ([2, 5], [1, 3]), ([4], [2])]


def layers(build):
    main, start = fluid.Program(), fluid.Program()
    main.random_seed = start.random_seed = 3
    with fluid.program_guard(main, start), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4], "float32", lod_level=1)
        y = fluid.data("y", [None, 1], "float32", lod_level=1)
        loss = fluid.layers.reduce_mean(build(x, y))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, start, loss


def losses(program, place):
    main, start, loss = program
    exe, numbers, result = fluid.Executor(place), np.random.default_rng(0), []
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor(fluid.CPUPlace()).run(start)
        for x, y in LENGTHS:
            feed = {
                "x": lod(numbers.random((sum(x), 4)), x),
                "y": lod(numbers.random((sum(y), 1)), y),
            }
            result += exe.run(main, feed=feed, fetch_list=[loss])
    return result


def lod(values, lengths):
    return fluid.create_lod_tensor(values.astype(np.float32), [lengths], fluid.CPUPlace())


def expanded(x, y):
    """Rows that nobody can count before the lengths are there go through layers like others."""
    hidden = fluid.layers.fc(fluid.layers.sequence_expand(x, y), 8, act="relu")
    padding = fluid.layers.fill_constant([1], "float32", 0.0)
    padded, length = fluid.layers.sequence_pad(hidden, padding)
    kept = fluid.layers.sequence_unpad(fluid.layers.softmax(padded) * 3.0, length)
    return fluid.layers.sequence_pool(kept, "max")


def recurrent(x, y):
    """A memory behind units, forwards and backwards, over lengths that differ from run to run."""
    there = fluid.layers.dynamic_gru(fluid.layers.fc(x, 15), 5, is_reverse=True)
    hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(there, 24), 24)
    both = fluid.layers.sequence_concat([hidden, fluid.layers.fc(x, 6)])
    return fluid.layers.sequence_pool(both, "sqrt")


@pytest.mark.parametrize("build", [expanded, recurrent])
def test_training_over_sequences_is_the_same_on_a_device(build) -> None:
    program = layers(build)
    there, here = losses(program, fluid.CUDAPlace(0)), losses(program, fluid.CPUPlace())
    np.testing.assert_allclose(there, here, rtol=2e-5)


@pytest.mark.parametrize("build", [expanded, recurrent])
def test_no_op_of_sequences_waits_for_the_host(build) -> None:
    main, _, loss = layers(build)
    source = compiler.compile(main, feed=["x", "y"], fetch=[loss], target="triton").source
    assert "_reference(" not in source
    step = source[source.index("def step(") : source.index("return step")]
    assert step.count("download(") <= 1


def test_values_from_lod_are_computed_and_copied_once_a_step() -> None:
    main, _, loss = layers(recurrent)
    source = compiler.compile(main, feed=["x", "y"], fetch=[loss], target="triton").source
    assert source.count("= steps_of(") == 2
    assert source.count("uploaded(take, steps_of_2[1])") <= 1


def chain() -> tuple[Graph, list]:
    """Two sizes that only data decides, and sums over one of them and over both."""
    g = Graph()
    x = g.feed("x", TensorType(DType.BOOL, (Dim.named("N"),)))
    created = [g.fresh("found", TensorType(DType.INT64, (UNKNOWN, 1))) for _ in range(2)]
    for each in created:
        g.op("where_index", {"Condition": [x]}, {"Out": [each]})
    sums = [g.fresh("sum", TensorType(DType.INT64, (UNKNOWN, 1))) for _ in range(2)]
    for pair, out in zip(((created[0], created[0]), created), sums, strict=True):
        g.op("elementwise_add", {"X": [pair[0]], "Y": [pair[1]]}, {"Out": [out]})
    g.results = sums
    return g, sums


def test_sizes_that_may_differ_are_not_taken_for_one() -> None:
    g, sums = chain()
    NameSizes().run(g, Context())
    same, other = (g.producer(var) for var in sums)
    assert infer_with_distinct_sizes(same) is not None
    assert infer_with_distinct_sizes(other) is None
    assert same["X"].type.shape == same["Out"].type.shape
    assert TritonTarget().supports(same) == ""
    assert TritonTarget().supports(other) == "its sizes are data-dependent"
