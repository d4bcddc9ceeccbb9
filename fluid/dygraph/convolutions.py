"""Convolution and pooling layer objects."""

from __future__ import annotations

from fluid.dygraph.layers import Layer
from fluid.framework import Variable
from fluid.initializer import Normal
from fluid.layers.control.nested import convert_to_list
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike, IntOrInts
from fluid.recording.checks import FLOATS, check_variable_and_dtype

__all__ = ["Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Pool2D"]


def _expect_bool(use_cudnn: object) -> None:
    if not isinstance(use_cudnn, bool):
        raise ValueError("use_cudnn should be True or False")


class _Conv(Layer):
    """A convolution over `_rank` spatial axes, with bias and activation."""

    _rank, _transposed = 2, False

    def __init__(
        self,
        sizes: tuple[int, int, IntOrInts, int | None],
        window: tuple[IntOrInts, IntOrInts, IntOrInts],
        attrs: tuple[ParamAttrLike, ParamAttrLike],
        use_cudnn: bool,
        act: str | None,
        dtype: DTypeLike,
    ) -> None:
        channels, filters, filter_size, groups = sizes
        if attrs[0] is False:
            raise AssertionError("param_attr should not be False here.")
        _expect_bool(use_cudnn)
        if channels % (groups or 1):
            raise ValueError(f"num_channels {channels} must be divisible by groups {groups}")
        super().__init__(dtype=dtype)
        self._act, self._bias_attr, self._use_cudnn = act, attrs[1], use_cudnn
        self._groups = groups or 1
        names = ("strides", "paddings", "dilations")
        self._window = {n: self._listed(v, n) for n, v in zip(names, window, strict=True)}
        kernel = self._listed(filter_size, "filter_size")
        self.weight = self._filter(channels, filters, kernel, attrs[0])
        self.bias = self.create_parameter([filters], attrs[1], dtype, is_bias=True)
        self._op = self._op_type(channels, filters)

    def _listed(self, value: IntOrInts, name: str) -> list[int]:
        return convert_to_list(value, self._rank, name)

    def _filter(
        self, channels: int, filters: int, kernel: list[int], attr: ParamAttrLike
    ) -> Variable | None:
        if self._transposed:
            shape = [channels, filters // self._groups, *kernel]
            return self.create_parameter(shape, attr, self._dtype)
        elements = channels
        for size in kernel:
            elements *= size
        start = Normal(0.0, (2.0 / elements) ** 0.5)
        shape = [filters, channels // self._groups, *kernel]
        return self.create_parameter(shape, attr, self._dtype, default_initializer=start)

    def _op_type(self, channels: int, filters: int) -> str:
        """Return the op type, which differs for depthwise convolutions."""
        alone = filters == channels if self._transposed else filters % channels == 0
        deep = channels == self._groups and alone and not self._use_cudnn and self._rank == 2
        return f"{'depthwise_' * deep}conv{self._rank}d{'_transpose' * self._transposed}"

    def forward(self, input: Variable) -> Variable:
        """Convolve `input`, [batch, channels, …]."""
        check_variable_and_dtype(input, "input", FLOATS, type(self).__name__)
        attrs = {**self._window, "groups": self._groups, "use_cudnn": self._use_cudnn}
        inputs = {"Input": input, "Filter": self.weight}
        out = self._helper.append_result(
            self._op, inputs, attrs | self._extra_attributes(), self._dtype, slot="Output"
        )
        return self._helper.append_activation(self._append_bias(out), self._act)

    def _extra_attributes(self) -> dict[str, object]:
        return {}

    def _append_bias(self, out: Variable) -> Variable:
        if self.bias is None:
            return out
        return self._helper.append_result(
            "elementwise_add", {"X": out, "Y": self.bias}, {"axis": 1}
        )


class Conv2D(_Conv):
    """2-D convolution; see `layers.conv2d`."""

    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        groups: int | None = None,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        use_cudnn: bool = True,
        act: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        sizes = (num_channels, num_filters, filter_size, groups)
        window = (stride, padding, dilation)
        super().__init__(sizes, window, (param_attr, bias_attr), use_cudnn, act, dtype)


class Conv3D(Conv2D):
    """3-D convolution; see `layers.conv3d`."""

    _rank = 3


class Conv2DTranspose(_Conv):
    """2-D transposed convolution; see `layers.conv2d_transpose`."""

    _transposed = True

    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: IntOrInts,
        output_size: IntOrInts | None = None,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
        dilation: IntOrInts = 1,
        groups: int | None = None,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        use_cudnn: bool = True,
        act: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        if not isinstance(output_size, list | int | None):
            raise ValueError("output_size should be list or int")
        self._output_size = []
        if output_size is not None:
            self._output_size = convert_to_list(output_size, 2, "output_size")
        sizes = (num_channels, num_filters, filter_size, groups)
        window = (stride, padding, dilation)
        super().__init__(sizes, window, (param_attr, bias_attr), use_cudnn, act, dtype)

    def _extra_attributes(self) -> dict[str, object]:
        return {"output_size": self._output_size}


class Conv3DTranspose(_Conv):
    """3-D transposed convolution; see `layers.conv3d_transpose`.

    The bias is added only if `bias_attr` is set, as in release 1.8.5.
    """

    _rank, _transposed = 3, True

    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: IntOrInts,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
        dilation: IntOrInts = 1,
        groups: int | None = None,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        use_cudnn: bool = True,
        act: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        sizes = (num_channels, num_filters, filter_size, groups)
        window = (stride, padding, dilation)
        super().__init__(sizes, window, (param_attr, bias_attr), use_cudnn, act, dtype)

    def _append_bias(self, out: Variable) -> Variable:
        return super()._append_bias(out) if self._bias_attr else out


class Pool2D(Layer):
    """2-D pooling; see `layers.pool2d`."""

    def __init__(
        self,
        pool_size: IntOrInts = -1,
        pool_type: str = "max",
        pool_stride: IntOrInts = 1,
        pool_padding: IntOrInts = 0,
        global_pooling: bool = False,
        use_cudnn: bool = True,
        ceil_mode: bool = False,
        exclusive: bool = True,
    ) -> None:
        if pool_type not in ("max", "avg"):
            raise ValueError(f"pool_type should be 'max' or 'avg', but received {pool_type!r}")
        if not global_pooling and pool_size == -1:
            raise ValueError("pool_size must be given where global_pooling is False")
        _expect_bool(use_cudnn)
        super().__init__()
        self._attrs = {
            "pooling_type": pool_type,
            "ksize": convert_to_list(pool_size, 2, "pool_size"),
            "global_pooling": global_pooling,
            "strides": convert_to_list(pool_stride, 2, "pool_stride"),
            "paddings": convert_to_list(pool_padding, 2, "pool_padding"),
            "use_cudnn": use_cudnn,
            "ceil_mode": ceil_mode,
            "exclusive": exclusive,
        }

    def forward(self, input: Variable) -> Variable:
        """Pool `input`, [batch, channels, height, width]."""
        check_variable_and_dtype(input, "input", ("int8", "uint8", *FLOATS), "Pool2D")
        return self._helper.append_result("pool2d", {"X": input}, self._attrs, self._dtype)
