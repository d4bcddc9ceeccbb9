"""`LayerHelper` for layer objects, which is named after the layer."""

from __future__ import annotations

from typing import Any

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper

__all__ = ["LayerObjectHelper"]


class LayerObjectHelper(LayerHelper):
    """`LayerHelper` of a layer called `name`; inputs and activation are passed as arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(name, name=name)

    def input_dtype(self, inputs: Any) -> Any:
        """Return the dtype of one or several variables; ValueError if they differ."""
        self.kwargs["input"] = inputs
        return super().input_dtype("input")

    def append_activation(
        self, input_var: Variable, act: str | None = None, use_cudnn: bool | None = None
    ) -> Variable:
        """Append the activation op, if `act` is not None."""
        self.kwargs |= {"act": act, "use_cudnn": use_cudnn}
        return super().append_activation(input_var)
