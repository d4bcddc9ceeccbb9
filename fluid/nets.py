"""Common compositions of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar, cast

from fluid import layers
from fluid.framework import Variable
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import IntOrInts
from fluid.recording.arguments import UNCHECKED, typed
from fluid.recording.atomic import atomic
from fluid.recording.checks import FLOATS, check_variable_and_dtype
from fluid.recording.narrowing import is_sequence

__all__ = [
    "glu",
    "img_conv_group",
    "scaled_dot_product_attention",
    "sequence_conv_pool",
    "simple_img_conv_pool",
]

T = TypeVar("T")

Padding = Annotated[int | str | Sequence[IntOrInts], UNCHECKED]
"""The padding of a convolution or of pooling, see `fluid.layers.conv2d`."""


@typed
@atomic
def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    pool_size: int | Sequence[int],
    pool_stride: int | Sequence[int],
    pool_padding: Padding = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: int | Sequence[int] = 1,
    conv_padding: Padding = 0,
    conv_dilation: int | Sequence[int] = 1,
    conv_groups: int = 1,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """Convolution with activation, followed by pooling."""
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


@typed
@atomic
def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: int | Sequence[int],
    conv_padding: Padding = 1,
    conv_filter_size: IntOrInts = 3,
    conv_act: str | None = None,
    param_attr: ParamAttrLike = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0.0,
    pool_stride: int | Sequence[int] = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """A sequence of convolutions, one per entry of `conv_num_filter`, followed by pooling.

    An argument that is a list has an entry for each convolution. If there is a batch norm it
    applies the activation and may be followed by dropout. Raises ValueError for lists of other
    lengths.
    """
    count = len(conv_num_filter)
    rows = zip(
        _repeat(conv_num_filter, count),
        _repeat(conv_filter_size, count),
        _repeat(conv_padding, count),
        _repeat(param_attr, count),
        _repeat(conv_with_batchnorm, count),
        _repeat(conv_batchnorm_drop_rate, count),
        strict=True,
    )
    out = input
    for filters, size, padding, attr, normalised, drop_rate in rows:
        act = None if normalised else conv_act
        out = layers.conv2d(
            out, filters, size, padding=padding, param_attr=attr, act=act, use_cudnn=use_cudnn
        )
        out = _normalised(out, conv_act, drop_rate) if normalised else out
    return layers.pool2d(
        out,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        use_cudnn=use_cudnn,
    )


def _normalised(input: Variable, act: str | None, drop_rate: float) -> Variable:
    out = layers.batch_norm(input, act=act)
    return layers.dropout(out, drop_rate) if abs(drop_rate) > 1e-5 else out


def _repeat(value: T | Sequence[T], count: int) -> list[T]:
    """Return a list of `count` entries unchanged; repeat anything else `count` times."""
    if not is_sequence(value):
        return [cast(T, value)] * count
    if len(value) != count:
        raise ValueError(f"img_conv_group has {count} convolutions, but {value!r} has {len(value)}")
    return cast(list[T], list(value))


@typed
@atomic
def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: ParamAttrLike = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: ParamAttrLike = None,
) -> Variable:
    """Sequence convolution with activation, followed by pooling: [count, num_filters]."""
    check_variable_and_dtype(input, "input", ("float32", "float64"), "sequence_conv_pool")
    convolved = layers.sequence_conv(
        input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act
    )
    return layers.sequence_pool(convolved, pool_type)


@typed
@atomic
def glu(input: Variable, dim: int = -1) -> Variable:
    """Gated linear unit: the first half of `input` along `dim`, times sigmoid of the second."""
    check_variable_and_dtype(input, "input", FLOATS, "glu")
    value, gate = layers.split(input, num_or_sections=2, dim=dim)
    return layers.elementwise_mul(value, layers.sigmoid(gate))


@typed
@atomic
def scaled_dot_product_attention(
    queries: Variable,
    keys: Variable,
    values: Variable,
    num_heads: int = 1,
    dropout_rate: float = 0.0,
) -> Variable:
    """Attention: values weighted by softmax(query @ key / sqrt(head size)).

    Queries [batch, m, size], keys [batch, n, size], values [batch, n, width] → [batch, m, width].
    With several heads all three are first projected and split along the last axis. Raises TypeError
    and ValueError for inconsistent types, ranks or sizes.
    """
    _check_attention(queries, keys, values, num_heads)
    projected = [queries, keys, values]
    if num_heads > 1:
        projected = [
            layers.fc(variable, variable.shape[-1], num_flatten_dims=2) for variable in projected
        ]
        projected = [_split_heads(variable, num_heads) for variable in projected]
    head = keys.shape[-1] // num_heads
    product = layers.matmul(layers.scale(projected[0], head**-0.5), projected[1], transpose_y=True)
    rows = layers.reshape(product, [-1, product.shape[-1]], act="softmax")
    weights = layers.reshape(rows, list(product.shape))
    if dropout_rate:
        weights = layers.dropout(weights, dropout_rate, is_test=False)
    return _join_heads(layers.matmul(weights, projected[2]), num_heads)


def _check_attention(queries: Variable, keys: Variable, values: Variable, num_heads: int) -> None:
    named = {"queries": queries, "keys": keys, "values": values}
    for name, variable in named.items():
        check_variable_and_dtype(variable, name, FLOATS[1:], "scaled_dot_product_attention")
    shown = ", ".join(
        f"{name} {variable.dtype.name} {list(variable.shape)}" for name, variable in named.items()
    )
    if len({variable.dtype for variable in named.values()}) > 1:
        raise TypeError(f"attention requires equal dtypes, but received {shown}")
    if any(len(variable.shape) != 3 for variable in named.values()):
        raise ValueError(f"attention takes [batch, length, size], but received {shown}")
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(f"queries and keys must have the same size, but received {shown}")
    if keys.shape[-2] != values.shape[-2]:
        raise ValueError(f"there must be a value for each key, but received {shown}")
    if keys.shape[-1] % num_heads or values.shape[-1] % num_heads:
        raise ValueError(f"the sizes of {shown} are not divisible by {num_heads} heads")


def _split_heads(each: Variable, heads: int) -> Variable:
    """Reshape [batch, length, size] to [batch, heads, length, size / heads]."""
    shape = [*each.shape[:-1], heads, each.shape[-1] // heads]
    return layers.transpose(layers.reshape(each, shape), perm=[0, 2, 1, 3])


def _join_heads(each: Variable, heads: int) -> Variable:
    """Undo `_split_heads`; a single head was not split."""
    if heads == 1:
        return each
    joined = layers.transpose(each, perm=[0, 2, 1, 3])
    return layers.reshape(joined, [*joined.shape[:2], joined.shape[2] * joined.shape[3]])
