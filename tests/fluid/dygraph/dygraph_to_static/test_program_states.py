"""What a tried recording leaves when it is taken back."""

from collections import OrderedDict

import fluid
from fluid.dygraph.dygraph_to_static.program_states import ProgramState


def test_variables_keep_the_class_of_their_table() -> None:
    """Tools of release 1.8 tell it from other fields by its class."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        state = ProgramState()
        fluid.layers.scale(x, 2.0)
        state.restore()
        block = fluid.default_main_program().global_block()
    assert type(block.vars) is OrderedDict and list(block.vars) == ["x"]
    assert not block.ops
