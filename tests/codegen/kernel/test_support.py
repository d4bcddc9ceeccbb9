"""Which ops have kernels."""

import pytest

import fluid
from compiler.codegen.kernel.support import has_kernel_body, why_no_kernel
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.types import DType


@pytest.mark.usefixtures("fresh_programs")
def test_an_op_without_an_input_that_its_kernel_reads_has_none() -> None:
    x, label = fluid.data("x", [4, 3]), fluid.data("label", [4, 1], "int64")
    loss = fluid.layers.sampled_softmax_with_cross_entropy(x, label, 2)
    graph = to_graph(fluid.default_main_program(), {"x": (4, 3), "label": (4, 1)}, [loss.name])
    op = next(op for op in graph.ops() if op.kind == "sample_logits")
    assert has_kernel_body(type(op.defn))
    assert "need CustomizedProbabilities" in why_no_kernel(op, set(DType), has_kernel=True)
