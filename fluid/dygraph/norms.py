"""Normalization layer objects."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

from fluid.dygraph.layers import Layer
from fluid.framework import Variable, default_main_program
from fluid.initializer import Constant, Normal
from fluid.param_attr import ParamAttr, ParamAttrLike
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.checks import FLOATS, check_variable_and_dtype

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "SpectralNorm"]


class _Norm(Layer):
    """Base class of normalizations: a scale initialized to 1, a bias, and two statistics."""

    _statistics = ("Mean", "Variance")

    def _ones(self, size: int, attr: ParamAttrLike) -> Variable | None:
        return self.create_parameter([size], attr, self._dtype, default_initializer=Constant(1.0))

    def _zeros(self, size: int, attr: ParamAttrLike) -> Variable | None:
        return self.create_parameter([size], attr, self._dtype, is_bias=True)

    def _normalized(
        self,
        op: str,
        inputs: Slots,
        attrs: Attributes,
        outputs: Slots | None = None,
        into: Variable | None = None,
    ) -> Variable:
        make = self._helper.create_variable_for_type_inference
        statistics = {slot: make(self._dtype, stop_gradient=True) for slot in self._statistics}
        out = into or make(self._dtype)
        self._helper.append_op(op, inputs, {**statistics, **(outputs or {}), "Y": out}, attrs)
        return out


class BatchNorm(_Norm):
    """Batch normalization; see `layers.batch_norm`."""

    _statistics = ("SavedMean", "SavedVariance")

    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        dtype: DTypeLike = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        assert bias_attr is not False, "bias_attr should not be False in batch_norm."
        super().__init__(dtype="float32" if dtype == "float16" else dtype)
        self._act, self._in_place = act, in_place
        self._attrs = {
            "momentum": momentum,
            "epsilon": epsilon,
            "is_test": is_test,
            "data_layout": data_layout,
            "use_global_stats": use_global_stats,
            "trainable_statistics": trainable_statistics,
        }
        self.weight = self._ones(num_channels, param_attr)
        self.bias = self._zeros(num_channels, bias_attr)
        averaged = do_model_average_for_mean_and_var
        self._mean = self._moving(num_channels, moving_mean_name, 0.0, averaged)
        self._variance = self._moving(num_channels, moving_variance_name, 1.0, averaged)

    def _moving(self, size: int, name: str | None, start: float, averaged: bool) -> Variable:
        attr = ParamAttr(name, Constant(start), trainable=False, do_model_average=averaged)
        statistic = cast(Variable, self.create_parameter([size], attr, self._dtype))
        statistic.stop_gradient = True
        return statistic

    def forward(self, input: Variable) -> Variable:
        """Normalize `input`, [batch, channels, …]."""
        check_variable_and_dtype(input, "input", FLOATS, "BatchNorm")
        inputs = {
            "X": input,
            "Scale": self.weight,
            "Bias": self.bias,
            "Mean": self._mean,
            "Variance": self._variance,
        }
        moving = {"MeanOut": self._mean, "VarianceOut": self._variance}
        into = input if self._in_place else None
        attrs = self._attrs
        if default_main_program().follows_layers:
            attrs = attrs | {"is_test": not self.training}
        out = self._normalized("batch_norm", inputs, attrs, moving, into)
        return self._helper.append_activation(out, self._act)


class InstanceNorm(_Norm):
    """Normalization per channel and image; see `layers.instance_norm`."""

    _statistics = ("SavedMean", "SavedVariance")

    def __init__(
        self,
        num_channels: int,
        epsilon: float = 1e-5,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        assert bias_attr is not False, "bias_attr should not be False in InstanceNorm."
        super().__init__(dtype=dtype)
        self._epsilon = epsilon
        self.scale = self._ones(num_channels, param_attr)
        self.bias = self._zeros(num_channels, bias_attr)

    def forward(self, input: Variable) -> Variable:
        """Normalize `input`, [batch, channels, …]."""
        check_variable_and_dtype(input, "input", ["float32", "float64"], "InstanceNorm")
        inputs = {"X": input, "Scale": self.scale, "Bias": self.bias}
        return self._normalized("instance_norm", inputs, {"epsilon": self._epsilon})


class LayerNorm(_Norm):
    """Normalization over the last axes, whose sizes are `normalized_shape`."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        scale: bool = True,
        shift: bool = True,
        epsilon: float = 1e-5,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        act: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act, self._epsilon = act, epsilon
        shape = [normalized_shape] if isinstance(normalized_shape, int) else normalized_shape
        self._normalized_shape = list(shape)
        assert not shift or bias_attr is not False, "bias_attr should not be False with shift"
        size = prod(self._normalized_shape)
        self.weight = self._ones(size, param_attr) if scale else None
        self.bias = self._zeros(size, bias_attr) if shift else None

    def forward(self, input: Variable) -> Variable:
        """Normalize `input`; ValueError if its last sizes differ from `normalized_shape`."""
        check_variable_and_dtype(input, "input", ["float32", "float64"], "LayerNorm")
        axis = len(input.shape) - len(self._normalized_shape)
        if axis < 0 or list(input.shape[axis:]) != self._normalized_shape:
            raise ValueError(
                f"normalized_shape is {self._normalized_shape}, but the input {input.name!r} has "
                f"shape {list(input.shape)}"
            )
        inputs = {"X": input, "Scale": self.weight, "Bias": self.bias}
        attrs = {"epsilon": self._epsilon, "begin_norm_axis": axis}
        out = self._normalized("layer_norm", inputs, attrs)
        return self._helper.append_activation(out, self._act)


class GroupNorm(_Norm):
    """Normalization over groups of channels; see `layers.group_norm`.

    It has a scale and a bias only if their attributes are set, as in release 1.8.5.
    """

    def __init__(
        self,
        channels: int,
        groups: int,
        epsilon: float = 1e-5,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        act: str | None = None,
        data_layout: str = "NCHW",
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        if data_layout != "NCHW":
            raise ValueError(f"unsupported data layout: {data_layout}")
        self._act = act
        self._attrs = {"epsilon": epsilon, "groups": groups}
        self.weight = self._ones(channels, param_attr or False)
        self.bias = self._zeros(channels, bias_attr or False)

    def forward(self, input: Variable) -> Variable:
        """Normalize `input`, [batch, channels, …]."""
        inputs = {"X": input, "Scale": self.weight, "Bias": self.bias}
        out = self._normalized("group_norm", inputs, self._attrs)
        return self._helper.append_activation(out, self._act)


class SpectralNorm(Layer):
    """Division of a weight by its largest singular value; see `layers.spectral_norm`."""

    def __init__(
        self,
        weight_shape: Sequence[int],
        dim: int = 0,
        power_iters: int = 1,
        eps: float = 1e-12,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._attrs = {"dim": dim, "power_iters": power_iters, "eps": eps}
        rows = weight_shape[dim]
        self.weight_u = self._vector(rows)
        self.weight_v = self._vector(prod(weight_shape) // rows)

    def _vector(self, size: int) -> Variable:
        start = Normal(0.0, 1.0)
        vector = self.create_parameter([size], ParamAttr(), self._dtype, default_initializer=start)
        vector = cast(Variable, vector)
        vector.stop_gradient = True
        return vector

    def forward(self, weight: Variable) -> Variable:
        """Return the normalized weight."""
        check_variable_and_dtype(weight, "weight", ["float32", "float64"], "SpectralNorm")
        inputs = {"Weight": weight, "U": self.weight_u, "V": self.weight_v}
        return self._helper.append_result("spectral_norm", inputs, self._attrs)
