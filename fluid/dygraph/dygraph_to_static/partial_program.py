"""`PartialProgramLayer`: the program of a function as a layer of eager mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from fluid.dygraph.layers import Layer
from fluid.eager.mode import to_variable
from fluid.eager.programs import EagerBlock
from fluid.eager.replayed_programs import replay
from fluid.eager.variables import ParamBase, VarBase
from fluid.framework import Program, Variable, default_main_program

__all__ = ["PartialProgramLayer"]


class PartialProgramLayer(Layer):
    """Runs a program on variables; `parameters` are those that it reads, with their names.

    Its outputs have gradients, as those of the function that the program was recorded from.
    """

    def __init__(
        self,
        main_program: Program,
        inputs: Sequence[object],
        outputs: Sequence[object],
        parameters: Sequence[VarBase] | None = None,
    ) -> None:
        super().__init__()
        self._program = main_program
        self._inputs = [var.name for var in inputs if isinstance(var, Variable)]
        self._outputs = [var.name for var in outputs if isinstance(var, Variable)]
        self._params = list(parameters or ())
        for param in self._params:
            if isinstance(param, ParamBase):
                self.add_parameter(param.name, param)

    def forward(self, inputs: Sequence[object]) -> VarBase | list[VarBase]:
        """Return the outputs for variables and arrays in the order of the inputs; others are
        ignored.

        One output is returned itself, several in a list. Raises ValueError for another number of
        inputs.
        """
        values = [to_variable(v) for v in inputs if isinstance(v, np.ndarray | VarBase)]
        if len(values) != len(self._inputs):
            raise ValueError(f"the program takes {self._inputs}, but received {len(values)}")
        given = {param.name: param for param in self._params}
        given |= dict(zip(self._inputs, values, strict=True))
        block = cast(EagerBlock, default_main_program().current_block())
        computed = replay(self._program, block, given, is_test=not self.training)
        outputs = [computed[name] for name in self._outputs]
        return outputs[0] if len(outputs) == 1 else outputs
