"""`StaticModelRunner`: a saved inference model as a layer of eager mode, to train or to call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import numpy as np

from compiler.support.tracebacks import entry_point
from fluid.core.native_names import loaded_var_suffix
from fluid.dygraph.layers import Layer
from fluid.eager.mode import to_variable
from fluid.eager.programs import EagerBlock
from fluid.eager.replayed_programs import replay
from fluid.eager.variables import ParamBase, VarBase
from fluid.framework import default_main_program, in_dygraph_mode
from fluid.saving.inference_model import read_inference_model

__all__ = ["StaticModelRunner"]


class StaticModelRunner(Layer):
    """A model that `save_inference_model` wrote, as a layer: its parameters can be trained.

    They have the names of the model and the suffix `@LOADED`. What ops of the model update, such as
    statistics of batch norms, gets no gradient. Sequences (LoD) cannot be fed.

    Raises AssertionError outside eager mode, ValueError for a folder that is not there and what
    `load_inference_model` raises.
    """

    @entry_point
    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        model_filename: str | None = None,
        params_filename: str | None = None,
    ) -> None:
        assert in_dygraph_mode(), (
            "StaticModelRunner runs in dygraph mode: create it within fluid.dygraph.guard()"
        )
        super().__init__()
        if not Path(model_dir).is_dir():
            raise ValueError(f"There is no directory named {str(model_dir)!r}")
        model = read_inference_model(model_dir, model_filename, params_filename)
        self._program = model.program
        self._inputs = [var.name for var in model.feeds]
        self._outputs = [var.name for var in model.fetches]
        ops = [op for block in model.program.blocks for op in block.ops]
        written = {name for op in ops for name in op.writes()}
        self._params: dict[str, ParamBase] = {}
        for name, tensor in model.params.items():
            array = np.asarray(tensor)
            param = ParamBase(array.shape, array.dtype, name=name + loaded_var_suffix())
            param.put(array)
            param.stop_gradient = name in written or not param.element.is_float
            self._params[name] = param
            self.add_parameter(param.name, param)
        self._is_test = False

    def train(self) -> None:
        """Run dropouts and batch norms as in training."""
        self._is_test = False

    def eval(self) -> None:
        """Run dropouts and batch norms as in inference."""
        self._is_test = True

    def forward(self, *args: object) -> VarBase | list[VarBase]:
        """Return the output, or a list of several, for arrays or variables in the order of feeds.

        Variables get the names of the feeds. Raises TypeError for other values, ValueError for
        another number of them.
        """
        for value in args:
            if not isinstance(value, np.ndarray | VarBase):
                raise TypeError(
                    "The type of inputs.value in StaticModelRunner.forward must be numpy array or "
                    f"Variable(VarBase), but received {type(value)}."
                )
        if len(args) != len(self._inputs):
            raise ValueError(
                f"the model has the inputs {', '.join(self._inputs)}, but received {len(args)}"
            )
        given: dict[str, VarBase] = dict(self._params)
        for name, value in zip(self._inputs, args, strict=True):
            given[name] = to_variable(value)
            vars(given[name])["name"] = name
        block = cast(EagerBlock, default_main_program().current_block())
        values = replay(self._program, block, given, is_test=self._is_test)
        outputs = [values[name] for name in self._outputs]
        for index, output in enumerate(outputs):
            vars(output)["name"] = f"static_model_runner/scale_{index}.tmp_0"
        return outputs[0] if len(outputs) == 1 else outputs
