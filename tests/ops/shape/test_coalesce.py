"""`coalesce_tensor` in programs: what is written by one name is seen by the others."""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import ShapeError

layers = fluid.layers


@pytest.fixture(autouse=True)
def block() -> Any:
    """Yield the block of a main program of its own."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield program.global_block()


def coalesced(block: Any, *tensors: Any, **attrs: Any) -> Any:
    """Put tensors into one, in place; returns the whole."""
    whole = block.create_var(name="whole", dtype="float32")
    names = [tensor.name for tensor in tensors]
    outputs = {"Output": names, "FusedOutput": ["whole"]}
    block.append_op("coalesce_tensor", {"Input": names}, outputs, {"copy_data": True, **attrs})
    return whole


def scaled(block: Any, name: str, by: float) -> None:
    """Multiply a variable in place."""
    block.append_op("scale", {"X": [name]}, {"Out": [name]}, {"scale": by})


def pair() -> tuple[Any, Any]:
    """Return two tensors."""
    return layers.fill_constant([2], "float32", 1.0), layers.fill_constant([1, 3], "float32", 2.0)


def run(block: Any, *fetches: Any) -> list[Any]:
    """Run the program."""
    return fluid.Executor(fluid.CPUPlace()).run(block.program, {}, list(fetches))


def test_writes_to_the_fused_tensor_change_its_parts(block: Any) -> None:
    x, y = pair()
    coalesced(block, x, y)
    scaled(block, "whole", 3.0)
    result = run(block, x, y, layers.elementwise_add(x, x))
    assert [each.tolist() for each in result] == [[3, 3], [[6, 6, 6]], [6, 6]]


def test_writes_to_parts_change_the_fused_tensor(block: Any) -> None:
    x, y = pair()
    whole = coalesced(block, x, y)
    scaled(block, x.name, 5.0)
    total = layers.reduce_sum(whole)
    scaled(block, "whole", 2.0)
    scaled(block, y.name, 10.0)
    result = run(block, total, x, y, layers.reduce_sum(whole))
    assert [each.tolist() for each in result] == [[16], [10, 10], [[40, 40, 40]], [140]]


def test_state_that_shares_memory_is_kept(block: Any) -> None:
    x = layers.create_global_var([2], 1.0, "float32", persistable=True, name="x")
    coalesced(block, x)
    scaled(block, "whole", 3.0)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    exe.run(block.program)
    exe.run(block.program)
    np.testing.assert_array_equal(fluid.global_scope().find_var("x").get_tensor(), [9.0, 9.0])


def test_constants_take_the_place_of_values(block: Any) -> None:
    x, y = pair()
    whole = coalesced(block, x, y, copy_data=False, set_constant=True, constant=0.5)
    result = run(block, x, y, whole)
    assert [each.tolist() for each in result[:2]] == [[0.5, 0.5], [[0.5] * 3]]
    assert result[2].shape == (2048,)


def test_inputs_have_the_declared_element_type(block: Any) -> None:
    x, y = pair()
    with pytest.raises(ShapeError, match=r"coalesce_tensor: Input 1 is f64\[1, 3\]"):
        coalesced(block, x, layers.cast(y, "float64"))
