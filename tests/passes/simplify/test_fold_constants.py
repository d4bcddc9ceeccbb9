"""Constants of one value are stored up to a size, and filled by the step beyond it."""

from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.driver import compile_graph
from compiler.ir.text.printer import parse
from compiler.ir.types import DType
from compiler.passes.base import Context
from compiler.passes.simplify.fold_constants import LARGEST, FoldConstants

TARGETS = ["numpy", *["native"] * (detected() is not None)]
NUMBERS = {
    DType.FP32: (0.1, -0.0, np.inf, np.nan),
    DType.FP64: (0.1, 1e300, -np.inf),
    DType.FP16: (0.1, 65504.0),
    DType.INT32: (7, -(2**31)),
    DType.INT64: (2**53 + 1, 2**63 - 1, -(2**63)),
}


def graph_of(count: int, dtype: DType) -> Any:
    """A parameter of `count` elements as a row."""
    name = dtype.text
    return parse(f"""graph main {{
  param w: {name}[{count}]
  (Out=a: {name}[{count}, 1]) = reshape(X=w) {{'shape': [{count}, 1]}}
  (Out=b: {name}[1, {count}]) = transpose(X=a) {{'axis': [1, 0]}}
  return b
}}
""")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [LARGEST, LARGEST + 1, 3 * LARGEST + 5])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_folded_values_are_exact_on_both_sides_of_the_limit(
    dtype: DType, count: int, target: str
) -> None:
    for number in NUMBERS[dtype]:
        values = np.full(count, number, dtype.numpy)
        graph, context = graph_of(count, dtype), Context({"w": values})
        FoldConstants().run(graph, context)
        filled = [op for op in graph.ops() if op.kind == "fill_constant"]
        assert bool(filled) == (count > LARGEST and not np.isnan(float(number)))
        params = {"w": values}
        compiled = compile_graph(graph_of(count, dtype), target=target, params=params)
        (result,) = runtime.load(compiled.module, params=params)({})
        assert result.tobytes() == values.tobytes(), number
