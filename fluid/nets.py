"""Layers that are always used together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid import layers
from fluid.framework import Variable

__all__ = ["img_conv_group", "simple_img_conv_pool"]


def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    pool_size: int | Sequence[int],
    pool_stride: int | Sequence[int],
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: int | Sequence[int] = 1,
    conv_padding: Any = 0,
    conv_dilation: int | Sequence[int] = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """A convolution with its activation, and a pooling."""
    convolved = layers.conv2d(
        input,
        num_filters,
        filter_size,
        stride=conv_stride,
        padding=conv_padding,
        dilation=conv_dilation,
        groups=conv_groups,
        param_attr=param_attr,
        bias_attr=bias_attr,
        use_cudnn=use_cudnn,
        act=act,
    )
    return layers.pool2d(
        convolved,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        pool_padding=pool_padding,
        global_pooling=global_pooling,
        use_cudnn=use_cudnn,
    )


def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: int | Sequence[int],
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0.0,
    pool_stride: int | Sequence[int] = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Convolutions, one for each of `conv_num_filter`, and a pooling.

    An argument that is a list has an entry for each convolution. A batch norm takes over the
    activation and may be followed by a dropout. Raises ValueError for lists of other lengths.
    """
    count = len(conv_num_filter)
    columns = [conv_num_filter, conv_filter_size, conv_padding, param_attr]
    columns += [conv_with_batchnorm, conv_batchnorm_drop_rate]
    rows = zip(*(_spread(column, count) for column in columns), strict=True)
    out = input
    for filters, size, padding, attr, normalised, drop_rate in rows:
        out = layers.conv2d(
            out,
            filters,
            size,
            padding=padding,
            param_attr=attr,
            act=None if normalised else conv_act,
            use_cudnn=use_cudnn,
        )
        if normalised:
            out = layers.batch_norm(out, act=conv_act)
            out = layers.dropout(out, drop_rate) if abs(drop_rate) > 1e-5 else out
    return layers.pool2d(
        out,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        use_cudnn=use_cudnn,
    )


def _spread(value: Any, count: int) -> list[Any]:
    """A list of `count` entries as it is, anything else that often."""
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"img_conv_group has {count} convolutions, but {value!r} has {len(value)}")
    return list(value)
