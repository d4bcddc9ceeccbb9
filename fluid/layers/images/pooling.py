"""Max and average pooling over windows of images and volumes."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.images.windows import Padding, check_layout, padding_attributes, sizes_per_axis
from fluid.recording.annotations import Attributes
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype

__all__ = ["adaptive_pool2d", "adaptive_pool3d", "pool2d", "pool3d"]


def pool2d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Padding = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Max or average pooling over windows of images [N, C, H, W].

    `global_pooling` uses the whole image as the window; `ceil_mode` keeps partial windows at the
    border; with `exclusive`, averages do not count padding. Raises ValueError for invalid
    arguments.

    >>> import fluid
    >>> images = fluid.layers.data("pool2d_doc", [3, 8, 8])
    >>> fluid.layers.pool2d(images, pool_size=2, pool_stride=2).shape
    (-1, 3, 4, 4)
    """
    sizes = (pool_size, pool_stride, pool_padding)
    attrs = _attributes(2, pool_type, sizes, global_pooling, ceil_mode, data_format)
    return _append_pool("pool2d", input, attrs, use_cudnn, exclusive, name)


def pool3d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Padding = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCDHW",
) -> Variable:
    """Max or average pooling over windows of volumes [N, C, D, H, W].

    Arguments are as in `pool2d`, for three spatial axes.
    """
    sizes = (pool_size, pool_stride, pool_padding)
    attrs = _attributes(3, pool_type, sizes, global_pooling, ceil_mode, data_format)
    return _append_pool("pool3d", input, attrs, use_cudnn, exclusive, name)


def _attributes(
    axes: int,
    pool_type: str,
    sizes: tuple[int | Sequence[int], int | Sequence[int], Padding],
    global_pooling: bool,
    ceil_mode: bool,
    layout: str,
) -> dict[str, object]:
    """Return the attributes of a pooling op; ValueError for invalid values."""
    op, (pool_size, stride, padding) = f"pool{axes}d", sizes
    _check_kind(pool_type, op)
    if not global_pooling and pool_size == -1:
        raise ValueError(f"{op} needs a pool_size, or global_pooling")
    check_layout(layout, op, axes)
    paddings, algorithm = padding_attributes(padding, layout, axes)
    if algorithm == "VALID" and ceil_mode:
        raise ValueError(f"{op} with padding 'VALID' can not have ceil_mode")
    return {
        "pooling_type": pool_type,
        "ksize": sizes_per_axis(pool_size, axes, "pool_size"),
        "global_pooling": global_pooling,
        "strides": sizes_per_axis(stride, axes, "pool_stride"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "ceil_mode": ceil_mode,
        "data_format": layout,
    }


def _append_pool(
    op: str,
    input: Variable,
    attrs: Attributes,
    use_cudnn: bool,
    exclusive: bool,
    name: str | None,
) -> Variable:
    check_variable(input, "input", op)
    if not isinstance(use_cudnn, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - an int
        raise TypeError(f"use_cudnn of {op} must be True or False, not {use_cudnn!r}")
    flags = {"use_cudnn": use_cudnn, "use_mkldnn": False, "exclusive": exclusive}
    return append_simple_op(op, {"X": input}, {**attrs, **flags}, name=name)


def _check_kind(pool_type: str, op: str) -> None:
    if pool_type not in ("max", "avg"):
        raise ValueError(f"pool_type of {op} must be 'max' or 'avg', not {pool_type!r}")


def adaptive_pool2d(
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """Max or average pooling to an output of `pool_size` for any input size.

    `require_index` also returns the indices of the maxima (int32) in the flattened image. Raises
    ValueError for the index of an average.

    >>> import fluid
    >>> images = fluid.layers.data("adaptive_doc", [3, 8, 8])
    >>> fluid.layers.adaptive_pool2d(images, [2, 3]).shape
    (-1, 3, 2, 3)
    """
    return _append_adaptive_pool(2, input, pool_size, pool_type, require_index, name)


def adaptive_pool3d(
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """3-D max or average pooling to an output of `pool_size` for any input size.

    Arguments are as in `adaptive_pool2d`, for three spatial axes.
    """
    return _append_adaptive_pool(3, input, pool_size, pool_type, require_index, name)


def _append_adaptive_pool(
    axes: int,
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str,
    require_index: bool,
    name: str | None,
) -> Variable | tuple[Variable, Variable]:
    op = f"adaptive_pool{axes}d"
    check_variable_and_dtype(input, "input", (*FLOATS, "int32", "int64"), op)
    check_type(pool_type, "pool_type", str, op)
    check_type(pool_size, "pool_size", (int, list, tuple), op)
    check_type(require_index, "require_index", bool, op)
    _check_kind(pool_type, op)
    ksize = sizes_per_axis(pool_size, axes, "pool_size")
    attrs: dict[str, object] = {"ksize": ksize, "adaptive": True}
    if pool_type == "avg":
        if require_index:
            raise ValueError(f"{op}: require_index needs pool_type 'max': an average has no index")
        attrs["pooling_type"] = pool_type
        return append_simple_op(f"pool{axes}d", {"X": input}, attrs, name=name)
    helper = LayerHelper(f"max_pool{axes}d_with_index", name=name)
    out, mask = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    helper.append_op(
        helper.layer_type, inputs={"X": input}, outputs={"Out": out, "Mask": mask}, attrs=attrs
    )
    return (out, mask) if require_index else out
