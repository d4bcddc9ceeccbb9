"""Conversion of blocks that are run on a condition."""

import numpy as np
import pytest

import fluid
from compiler import interpret
from compiler.ir.conversion.program_to_graph import to_graph
from fluid import layers

pytestmark = pytest.mark.usefixtures("fresh_programs")


def test_a_branch_casts_to_the_dtype_of_the_state_that_it_writes() -> None:
    state = layers.create_global_var([1], 0.5, "float32", persistable=True, name="state")
    step = layers.data("step", [1], False, "int64")
    with layers.Switch() as switch:
        with switch.case(step < 3):
            layers.assign(step + 1, state)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 9.5), state)
    graph = to_graph(fluid.default_main_program(), {"step": (1,)}, ["state"])
    for number, wanted in ((1, 2.0), (5, 9.5)):
        params = {"state": np.array([0.5], "float32")}
        (value,) = interpret.run(graph, {"step": np.array([number])}, params)
        assert (value.dtype, value.tolist()) == (np.float32, [wanted])
