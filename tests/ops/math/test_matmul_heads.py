"""`matmul` with a `head_number`: gradients in programs, and invalid shapes.

Its results are compared with the reference in test_recorded.py.
"""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from tests.ops.samples import numbers

SHAPES = [
    ((3, 4), (4, 2), {}, (3, 4)),
    ((3, 4), (2, 6), {}, (3, 6)),
    ((2, 3, 4), (4, 2), {"alpha": 0.5}, (2, 3, 4)),
    ((2, 4, 3), (2, 5, 4), {"transpose_X": True, "transpose_Y": True}, (2, 3, 10)),
    ((4, 3), (6, 2), {"transpose_X": True, "transpose_Y": True}, (3, 6)),
]


def trained(x: Any, y: Any, attrs: dict[str, Any], weight: Any) -> list[Any]:
    """Run a program: the sum of Out times a weight, and its gradients by X and Y."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        block, feed = program.global_block(), {"x": x, "y": y, "w": weight}
        for name, array in feed.items():
            block.create_var(name=name, shape=array.shape, dtype="float32", stop_gradient=False)
        out = block.create_var(name="out", dtype="float32")
        inputs = {"X": ["x"], "Y": ["y"]}
        block.append_op("matmul", inputs, {"Out": ["out"]}, {"head_number": 2, **attrs})
        weighted = fluid.layers.elementwise_mul(out, block.var("w"))
        loss = fluid.layers.reduce_sum(weighted)
        gradients = fluid.gradients([loss], [block.var(name) for name in "xy"])
        return fluid.Executor(fluid.CPUPlace()).run(program, feed, [loss, *gradients])


@pytest.mark.parametrize(("x", "y", "attrs", "out"), SHAPES)
def test_gradients_are_those_of_the_heads(x: Any, y: Any, attrs: dict[str, Any], out: Any) -> None:
    feeds, weight = [numbers(*x), numbers(*y, seed=1)], numbers(*out, seed=2)
    _, *gradients = trained(*feeds, attrs, weight)
    for place, gradient in enumerate(gradients):
        step = numbers(*feeds[place].shape, seed=3)
        moved = [
            trained(
                *(a + sign * step if i == place else a for i, a in enumerate(feeds)), attrs, weight
            )
            for sign in (1, -1)
        ]
        change = (moved[0][0] - moved[1][0]) / 2
        np.testing.assert_allclose((gradient * step).sum(), change[0], rtol=1e-4, atol=1e-5)


def inferred(x: Any, y: Any, heads: int) -> Any:
    """Return the shape of Out."""
    types = {slot: TensorType(DType.FP32, shape) for slot, shape in (("X", x), ("Y", y))}
    return find("matmul")({"head_number": heads}).infer_types(types)["Out"].shape


def test_out_has_the_columns_of_all_heads() -> None:
    assert inferred((3, 4), (4, 5), 2) == (3, 10)
    assert inferred((3, 4), (2, 6), 2) == (3, 6)


@pytest.mark.parametrize(
    ("x", "y", "heads"),
    [((3, 4), (4, 5), 3), ((3, 4), (2, 5), 2), ((3, 6), (4, 6), 2), ((4,), (4, 5), 2)],
)
def test_operands_that_do_not_fit_are_named_with_the_heads(x: Any, y: Any, heads: int) -> None:
    with pytest.raises(ShapeError, match=f"X .* and Y .*head_number={heads}"):
        inferred(x, y, heads)


def test_there_is_one_head_at_least() -> None:
    with pytest.raises(BadAttribute, match="head_number"):
        find("matmul")({"head_number": 0})
