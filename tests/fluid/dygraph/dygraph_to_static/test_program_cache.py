"""The programs of called functions, as `ProgramTranslator.get_program_cache` has them."""

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.dygraph import ProgramTranslator, declarative, to_variable
from fluid.dygraph.dygraph_to_static.program_translator import FunctionSpec


@pytest.fixture(autouse=True)
def eager_mode():
    ProgramTranslator.reset()
    with fluid.dygraph.guard():
        yield
    ProgramTranslator.reset()


def matrix(rows: int):
    return to_variable(np.full([rows, 2], 2.0, "float32"))


class Network(fluid.dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = fluid.dygraph.Linear(2, 1)

    @declarative
    def forward(self, x, factor=1.0):
        y = self.linear(x)
        if layers.reduce_sum(x) > 0:
            y = y * factor
        return y


def test_calls_of_one_kind_are_one() -> None:
    cache = ProgramTranslator().get_program_cache()
    network = Network()
    for rows, factor in ((2, 1.0), (2, 1.0), (3, 1.0), (2, 4.0)):
        network(matrix(rows), factor=factor)
    assert len(cache) == 3
    assert cache.last()[0].kwargs == {"factor": 4.0}


def test_last_program_is_the_function() -> None:
    network = Network()
    expected = network(matrix(2), factor=3.0).numpy()
    spec, (program, layer) = ProgramTranslator().get_program_cache().last()
    assert spec.is_method()
    assert {p.name for p in spec.parameters()} == {p.name for p in program.parameters}
    assert "conditional_block" in [op.type for op in program.main_program.global_block().ops]
    assert [len(program.inputs), len(program.outputs)] == [1, 1]
    out = layer([matrix(2)])
    assert np.allclose(out.numpy(), expected)
    layers.reduce_sum(out).backward()
    assert np.allclose(network.linear.weight.gradient(), [[12.0], [12.0]])
    with pytest.raises(ValueError, match="but received 0"):
        layer([])


def test_specs_compare_shapes_and_values() -> None:
    def function(x, y):
        return x

    first, other = (FunctionSpec(function, [matrix(rows), [1, 2]], {}) for rows in (2, 3))
    same = FunctionSpec(function, [matrix(2), [1, 2]], {})
    assert (first == same, hash(first) == hash(same), first == other) == (True, True, False)
    assert (first.dyfunc, first.is_method(), first.args[0].shape) == (function, False, (2, 2))
    assert first.parameters() == []


def test_empty_cache_raises() -> None:
    cache = ProgramTranslator().get_program_cache()
    with pytest.raises(AssertionError, match="no function with `declarative` was called"):
        cache.last()
    with pytest.raises(TypeError, match="key must be a FunctionSpec, not str"):
        cache["f"]
