"""Layers that resize images by interpolation."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.support.user_warnings import warn_user
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.images.windows import check_layout, is_channels_last
from fluid.layers.size_arguments import Sizes
from fluid.layers.tensor import fill_constant
from fluid.recording.annotations import SlotValue
from fluid.recording.checks import SizesError, check_variable

__all__ = [
    "image_resize",
    "image_resize_short",
    "interpolate",
    "resize_bilinear",
    "resize_nearest",
    "resize_trilinear",
]

_AXES = {"BILINEAR": 2, "NEAREST": 2, "BICUBIC": 2, "TRILINEAR": 3}
"""Number of spatial axes of each method."""


def interpolate(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images to `out_shape`, or by the factor `scale`.

    `resample` is BILINEAR, NEAREST, BICUBIC or TRILINEAR. With `align_corners` the centers of the
    corner pixels are aligned; otherwise `align_mode` 0 aligns pixel areas (half-pixel centers) and
    1 the first pixels. Raises ValueError if neither size is set, or for input of another rank.

    >>> import fluid
    >>> images = fluid.layers.data("interpolate_doc", [3, 6, 9])
    >>> fluid.layers.interpolate(images, [12, 12], resample="BICUBIC").shape
    (-1, 3, 12, 12)
    """
    options = (align_corners, align_mode, data_format)
    return _append_resize(
        input, resample, list(_AXES), out_shape, scale, actual_shape, options, name
    )


def image_resize(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images like `interpolate` (which additionally supports BICUBIC)."""
    methods = [method for method in _AXES if method != "BICUBIC"]
    options = (align_corners, align_mode, data_format)
    return _append_resize(input, resample, methods, out_shape, scale, actual_shape, options, name)


def resize_bilinear(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images [N, C, H, W] by bilinear interpolation, see `interpolate`.

    >>> import fluid
    >>> images = fluid.layers.data("bilinear_doc", [3, 6, 9])
    >>> fluid.layers.resize_bilinear(images, scale=2).shape
    (-1, 3, 12, 18)
    """
    options = (align_corners, align_mode, data_format)
    methods = ["BILINEAR"]
    return _append_resize(input, "BILINEAR", methods, out_shape, scale, actual_shape, options, name)


def resize_trilinear(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """Resize volumes [N, C, D, H, W] by trilinear interpolation, see `interpolate`."""
    options = (align_corners, align_mode, data_format)
    methods = ["TRILINEAR"]
    return _append_resize(
        input, "TRILINEAR", methods, out_shape, scale, actual_shape, options, name
    )


def resize_nearest(
    input: Variable,
    out_shape: Variable | Sequence[int | Variable] | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images by nearest-neighbour interpolation, see `interpolate`."""
    options = (align_corners, 1, data_format)
    return _append_resize(
        input, "NEAREST", ["NEAREST"], out_shape, scale, actual_shape, options, name
    )


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resize images so that the shorter side has length `out_short_len`.

    Raises ValueError if the input is not 4-D or its sizes are dynamic.
    """
    check_variable(input, "input", "image_resize_short")
    if len(input.shape) != 4 or min(input.shape[2:]) < 0:
        shape = list(input.shape)
        raise ValueError(
            f"image_resize_short takes images of static sizes, but {input.name!r} is {shape}"
        )
    short = min(input.shape[2:])
    sizes = [int(size * (out_short_len / short) + 0.5) for size in input.shape[2:]]
    return image_resize(input, sizes, resample=resample)


def _append_resize(
    input: Variable,
    resample: str,
    methods: Sequence[str],
    out_shape: Sizes | None,
    scale: object,
    actual_shape: Variable | None,
    options: tuple[bool, int, str],
    name: str | None,
) -> Variable:
    _check_images(input, resample, methods)
    align_corners, align_mode, layout = options
    _check_options(align_corners, align_mode)
    check_layout(layout, f"images of {_AXES[resample]} axes", _AXES[resample])
    method = resample.lower()
    helper = LayerHelper(f"{method}_interp", name=name)
    attrs: dict[str, object] = {
        **dict.fromkeys(("out_d", "out_h", "out_w"), -1),
        "interp_method": method,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NHWC" if is_channels_last(layout) else "NCHW",
    }
    sizes, more = _sizes(helper, out_shape, scale, _AXES[resample])
    inputs = {"X": input, **sizes, **_actual(actual_shape)}
    return helper.append_result(helper.layer_type, inputs, attrs | more)


def _check_images(input: Variable, resample: str, methods: Sequence[str]) -> None:
    if resample not in methods:
        wanted = ", ".join(methods)
        raise ValueError(f"resample must be one of {wanted}, not {resample!r}")
    check_variable(input, "input", resample)
    if len(input.shape) != _AXES[resample] + 2:
        wanted = _AXES[resample] + 2
        raise ValueError(
            f"{resample} takes {wanted} axes, but {input.name!r} is {list(input.shape)}"
        )


def _check_options(align_corners: object, align_mode: object) -> None:
    if not isinstance(align_corners, bool):
        raise TypeError(f"align_corners must be True or False, not {align_corners!r}")
    if align_mode not in (0, 1):
        raise ValueError(f"align_mode must be 0 or 1, not {align_mode!r}")


def _actual(actual_shape: Variable | None) -> dict[str, Variable]:
    if actual_shape is None:
        return {}
    check_variable(actual_shape, "actual_shape", "resize")
    warn_user("give a Variable as out_shape instead of actual_shape")
    actual_shape.stop_gradient = True
    return {"OutSize": actual_shape}


def _sizes(
    helper: LayerHelper, out_shape: Sizes | None, scale: object, axes: int
) -> tuple[dict[str, SlotValue], dict[str, object]]:
    """Return the inputs and attributes that specify the output size."""
    if out_shape is not None:
        return _shape(helper, out_shape, axes)
    if scale is None:
        raise ValueError(f"{helper.layer_type} needs an out_shape or a scale")
    if isinstance(scale, Variable):
        scale.stop_gradient = True
        return {"Scale": scale}, {}
    if not isinstance(scale, int | float):
        raise TypeError(f"scale must be a number or a Variable, not {type(scale).__name__}")
    if scale <= 0:
        raise ValueError(f"scale must be more than 0, not {scale}")
    return {}, {"scale": float(scale)}


def _shape(
    helper: LayerHelper, out_shape: Sizes, axes: int
) -> tuple[dict[str, SlotValue], dict[str, object]]:
    if isinstance(out_shape, Variable):
        out_shape.stop_gradient = True
        return {"OutSize": out_shape}, {}
    if not isinstance(out_shape, list | tuple):
        wanted, got = "a list, a tuple or a Variable", type(out_shape).__name__
        raise TypeError(f"out_shape must be {wanted}, not {got}")
    if len(out_shape) != axes:
        raise ValueError(f"out_shape must have {axes} sizes, but received {list(out_shape)}")
    tensors = any(isinstance(size, Variable) for size in out_shape)
    sizes = [-1 if isinstance(size, Variable) else int(size) for size in out_shape]
    for size, requested in zip(sizes, out_shape, strict=True):
        if size < 1 and not isinstance(requested, Variable):
            raise SizesError(f"sizes of out_shape must be more than 0, but received {size}")
    attrs: dict[str, object] = dict(zip(("out_d", "out_h", "out_w")[-axes:], sizes, strict=True))
    return ({"SizeTensor": [_tensor(helper, n) for n in out_shape]} if tensors else {}), attrs


def _tensor(helper: LayerHelper, size: int | Variable) -> Variable:
    """Return a size as a tensor, int32 [1]."""
    if isinstance(size, Variable):
        size.stop_gradient = True
        return size
    out = helper.create_variable_for_type_inference("int32")
    return fill_constant([1], "int32", size, force_cpu=True, out=out)
