"""`LayerHelper` for layer objects, which is named after the layer."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.variable import VarType

__all__ = ["LayerObjectHelper"]


class LayerObjectHelper(LayerHelper):
    """`LayerHelper` of a layer called `name`; inputs and activation are passed as arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(name, name=name)

    # Paddle's class of this name, which derives from another one, takes the variables themselves.
    def input_dtype(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, inputs: Variable | Sequence[Variable]
    ) -> VarType:
        """Return the dtype of one or several variables; ValueError if they differ."""
        self.kwargs["input"] = inputs
        return super().input_dtype("input")

    def append_activation(
        self, input_var: Variable, act: str | None = None, use_cudnn: bool | None = None
    ) -> Variable:
        """Append the activation op, if `act` is not None."""
        if act is None:
            return input_var
        self.kwargs |= {"act": act, "use_cudnn": use_cudnn}
        return super().append_activation(input_var)
