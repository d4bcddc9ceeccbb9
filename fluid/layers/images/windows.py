"""Argument parsing of sliding-window layers: sizes per axis, paddings, layouts."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.recording.annotations import IntOrInts
from fluid.recording.checks import SizesError
from fluid.recording.narrowing import is_sequence

Padding = int | str | Sequence[IntOrInts]

LAYOUTS = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
"""Layouts by number of spatial axes: channels first, channels last."""


def check_layout(layout: str, op: str, axes: int = 2) -> None:
    """Raise ValueError if `layout` is not one for images with `axes` spatial axes."""
    if layout not in LAYOUTS[axes]:
        first, last = LAYOUTS[axes]
        raise ValueError(f"the layout of {op} must be {first!r} or {last!r}, not {layout!r}")


def check_flag(value: object, name: str, op: str) -> None:
    """Raise ValueError if an argument is not a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} of {op} must be True or False, not {value!r}")


def is_channels_last(layout: str) -> bool:
    """Return whether the channels are the last axis of a layout."""
    return layout.endswith("C")


def channel_count(input: Variable, layout: str, op: str, axes: int = 2) -> int:
    """Return the number of channels; ValueError if the rank is wrong or the number is dynamic.

    >>> import fluid
    >>> channel_count(fluid.layers.data("windows_doc", [3, 8, 8]), "NCHW", "conv2d")
    3
    """
    check_layout(layout, op, axes)
    if len(input.shape) != axes + 2:
        wanted = "images [N, C, H, W]" if axes == 2 else "volumes [N, C, D, H, W]"
        raise ValueError(f"{op} takes {wanted}, but {input.name!r} is {list(input.shape)}")
    channels = input.shape[-1 if is_channels_last(layout) else 1]
    if channels < 0:
        raise ValueError(f"the channels of {input.name!r} must be static for {op}")
    return channels


def sizes_per_axis(value: object, count: int, name: str) -> list[int]:
    """Expand a number to one per axis, or check a list of one per axis; SizesError otherwise.

    >>> sizes_per_axis(3, 2, "stride"), sizes_per_axis((1, 2), 2, "stride")
    ([3, 3], [1, 2])
    """
    sizes = list(value) if is_sequence(value) else [value] * count
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(sizes) != count or len(numbers) != count:
        wanted = ("two", "three", "four", "five", "six")[count - 2]
        raise SizesError(f"{name} must be a number or {wanted}, but received {value!r}")
    return numbers


def padding_attributes(padding: Padding, layout: str, axes: int = 2) -> tuple[list[int], str]:
    """Return the attributes `paddings` (one or two sizes per axis) and `padding_algorithm`.

    A padding is a number, one per axis, one before and one after each axis, a pair for each axis of
    the layout, "SAME" or "VALID". Raises ValueError for anything else.

    >>> padding_attributes([1, 1, 2, 2], "NCHW"), padding_attributes("same", "NCHW")
    (([1, 2], 'EXPLICIT'), ([0, 0], 'SAME'))
    """
    pairs, algorithm = padding_pairs(padding, layout, axes)
    return merge_equal_pairs(pairs), algorithm


def padding_pairs(padding: Padding, layout: str, axes: int = 2) -> tuple[list[int], str]:
    """Like `padding_attributes`, with two sizes per axis: before and after."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ValueError(f"padding must be numbers, 'SAME' or 'VALID', not {padding!r}")
        return [0, 0] * axes, padding.upper()
    several = list(padding) if isinstance(padding, list | tuple) else []
    per_axis = [pair for pair in several if isinstance(pair, list | tuple)]
    if len(several) == len(per_axis) == axes + 2:
        return sizes_per_axis(_spatial(per_axis, layout), 2 * axes, "padding"), "EXPLICIT"
    if len(several) == 2 * axes:
        return sizes_per_axis(several, 2 * axes, "padding"), "EXPLICIT"
    return [size for size in sizes_per_axis(padding, axes, "padding") for _ in range(2)], "EXPLICIT"


def merge_equal_pairs(pairs: list[int]) -> list[int]:
    """Return one size per axis if the two of each pair are equal, else the pairs."""
    first = pairs[::2]
    return first if first == pairs[1::2] else pairs


def _spatial(pairs: Sequence[Sequence[int]], layout: str) -> list[int]:
    """Return the pairs of the spatial axes; ValueError if batch or channels are padded."""
    last = is_channels_last(layout)
    inside = pairs[1:-1] if last else pairs[2:]
    others = (pairs[0], pairs[-1]) if last else pairs[:2]
    if any(size for pair in others for size in pair):
        raise ValueError(f"batch and channels can not be padded, but received {pairs!r}")
    return [size for pair in inside for size in pair]
