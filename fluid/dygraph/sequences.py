"""Layer objects on sequences: they append ops to programs, and are not for eager mode."""

from __future__ import annotations

from typing import cast

from fluid.dygraph.layers import Layer
from fluid.framework import Variable, in_dygraph_mode
from fluid.param_attr import ParamAttrLike

__all__ = ["RowConv", "SequenceConv"]


def _expect_program(layer: Layer) -> None:
    assert not in_dygraph_mode(), (
        f"{type(layer).__name__} is not supported by dynamic graph mode yet!"
    )


class RowConv(Layer):
    """A convolution of each row with `future_context_size` later ones; see `layers.row_conv`.

    Raises AssertionError in eager mode.
    """

    def __init__(
        self,
        name_scope: str,
        future_context_size: int,
        param_attr: ParamAttrLike = None,
        act: str | None = None,
    ) -> None:
        _expect_program(self)
        super().__init__(name_scope)
        self._act, self._param_attr = act, param_attr
        self._future_context_size = future_context_size

    def _build_once(self, *inputs: object, **kwargs: object) -> None:
        input = cast(Variable, inputs[0])
        shape = [self._future_context_size + 1, input.shape[1]]
        self.weight = self.create_parameter(shape, self._param_attr, input.dtype)

    def forward(self, input: Variable) -> Variable:
        """Return a variable of the shape of `input`, which is [(batch,) rows, features]."""
        inputs = {"X": input, "Filter": self.weight}
        out = self._helper.append_result("row_conv", inputs)
        return self._helper.append_activation(out, self._act)


class SequenceConv(Layer):
    """A convolution over the rows of sequences; see `layers.sequence_conv`.

    As in the reference, `filter_stride` is 1 and `padding` has no effect. Raises AssertionError in
    eager mode.
    """

    def __init__(
        self,
        name_scope: str,
        num_filters: int,
        filter_size: int = 3,
        filter_stride: int = 1,
        padding: bool | None = None,
        bias_attr: ParamAttrLike = None,
        param_attr: ParamAttrLike = None,
        act: str | None = None,
    ) -> None:
        _expect_program(self)
        super().__init__(name_scope)
        self._num_filters, self._filter_size = num_filters, filter_size
        self._filter_stride = filter_stride
        self._param_attr, self._bias_attr, self._act = param_attr, bias_attr, act

    def _build_once(self, *inputs: object, **kwargs: object) -> None:
        input = cast(Variable, inputs[0])
        shape = [self._filter_size * input.shape[1], self._num_filters]
        self.weight = self.create_parameter(shape, self._param_attr, input.dtype)
        bias_shape = [self._num_filters]
        self.bias = self.create_parameter(bias_shape, self._bias_attr, input.dtype, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """Return sequences of `num_filters` features."""
        attrs = {
            "contextStride": self._filter_stride,
            "contextStart": -int(self._filter_size // 2),
            "contextLength": self._filter_size,
        }
        inputs = {"X": input, "Filter": self.weight}
        out = self._helper.append_result("sequence_conv", inputs, attrs)
        if self.bias is not None:
            ends = {"X": out, "Y": self.bias}
            out = self._helper.append_result("elementwise_add", ends, {"axis": 1})
        return self._helper.append_activation(out, self._act)
