"""Windows from the attributes of an op: strides, paddings, dilations and padding algorithm.

Functions of plain numbers also run in generated modules, which carry them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import SourceBuilder
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.windows import KnownWindow, Window
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class WindowAttributes:
    """The attributes of a window that slides over image axes.

    `paddings` has one size per axis, or two: before and after. `algorithm` SAME and VALID override
    it, and SAME ignores dilations, as in the reference (conv_op.h, UpdatePaddingAndDilation).
    Raises BadAttribute if an attribute has the wrong length.
    """

    op: str
    strides: Sequence[int]
    paddings: Sequence[int]
    dilations: Sequence[int]
    algorithm: str = "EXPLICIT"
    ceil_mode: bool = False
    axes: int = 2

    def __post_init__(self) -> None:
        for name, values in (("strides", self.strides), ("dilations", self.dilations)):
            if len(values) != self.axes or min(values) < 1:
                actual, expected = list(values), f"{self.axes} sizes of at least 1"
                raise BadAttribute(f"{self.op}: {name} is {actual}, expected {expected}")
        if len(self.paddings) not in (self.axes, 2 * self.axes) or min(self.paddings) < 0:
            actual, expected = (
                list(self.paddings),
                f"{self.axes} or {2 * self.axes} sizes of at least 0",
            )
            raise BadAttribute(f"{self.op}: paddings is {actual}, expected {expected}")
        if self.algorithm not in ("EXPLICIT", "SAME", "VALID"):
            hint = "expected EXPLICIT, SAME or VALID"
            raise BadAttribute(f"{self.op}: padding_algorithm is {self.algorithm!r}", hint=hint)

    def over(self, sizes: Sequence[Size], kernel: Sequence[Size]) -> tuple[Window, ...]:
        """Return the windows of an image; raises ShapeError if one does not fit on its axis."""
        windows = tuple(
            axis_window(sizes[axis], kernel[axis], *self.at(axis), self.algorithm, self.ceil_mode)
            for axis in range(self.axes)
        )
        for window in windows:
            if is_less(window.count, 1):
                raise ShapeError(
                    f"{self.op}: a window of {window.kernel} taps, dilation {window.dilation}, does"
                    f" not fit on an axis of {window.padded}, padding included"
                )
        return windows

    def at(self, axis: int) -> tuple[int, int, tuple[int, int]]:
        """Return stride, dilation and padding before and after of an axis."""
        padding = axis_padding(self.paddings, axis, self.axes)
        return self.strides[axis], self.dilations[axis], padding


def axis_padding(paddings: Sequence[int], axis: int, axes: int) -> tuple[int, int]:
    """Return the padding before and after an axis, from one size per axis or two."""
    if len(paddings) == axes:
        return paddings[axis], paddings[axis]
    return paddings[2 * axis], paddings[2 * axis + 1]


@overload
def axis_window(
    size: int, kernel: int, stride: int, dilation: int, padding: tuple[int, int], algorithm: str,
    ceil_mode: bool = False,
) -> KnownWindow: ...  # fmt: skip


@overload
def axis_window(
    size: Size, kernel: Size, stride: int, dilation: int, padding: tuple[int, int], algorithm: str,
    ceil_mode: bool = False,
) -> Window: ...  # fmt: skip


def axis_window(
    size: Any,
    kernel: Any,
    stride: int,
    dilation: int,
    padding: tuple[int, int],
    algorithm: str,
    ceil_mode: bool = False,
) -> Any:
    """Return the window on an axis: its effective padding and dilation, and its positions."""
    dilation, before, after = axis_layout(size, kernel, stride, dilation, padding, algorithm)
    if algorithm == "SAME":
        count = (size + stride - 1) // stride
        return Window(size, kernel, stride, dilation, before, after, count)
    free = size + before + after - dilation * (kernel - 1) - 1
    rounded = free + stride - 1 if ceil_mode else free
    if isinstance(free, int) and isinstance(rounded, int) and -stride < rounded < 0:
        # The reference truncates the division (pool_op.h, conv_op.h): one window exceeds the axis.
        return Window(size, kernel, stride, dilation, before, after - free, 1)
    return Window(size, kernel, stride, dilation, before, after, rounded // stride + 1)


def axis_layout(
    size: Any, kernel: Any, stride: int, dilation: int, padding: tuple[int, int], algorithm: str
) -> tuple[int, Any, Any]:
    """Return the dilation that applies on an axis, and its padding before and after."""
    if algorithm == "SAME":
        total = same_padding(size, kernel, stride, (size + stride - 1) // stride)
        return 1, total // 2, total - total // 2
    before, after = (0, 0) if algorithm == "VALID" else padding
    return dilation, before, after


def image_windows(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    algorithm: str,
) -> list[KnownWindow]:
    """Return the windows of an image; raises ValueError if one does not fit on its axis."""
    windows: list[KnownWindow] = []
    for axis, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        padding = axis_padding(paddings, axis, len(sizes))
        sliding = (strides[axis], dilations[axis], padding, algorithm)
        window = axis_window(size, taps, *sliding)
        if window.count < 1:
            raise ValueError(f"a window of {taps} taps does not fit on {size} elements")
        windows.append(window)
    return windows


def same_padding(size: Any, kernel: Any, stride: int, count: Any) -> Any:
    """Return max((count - 1)*stride + kernel - size, 0) for symbolic sizes too."""
    total = (count - 1) * stride + kernel - size
    if isinstance(total, int):
        return max(total, 0)
    if isinstance(kernel, int) and kernel < stride:
        return total * ((total + stride) // stride)
    return total


def check_windows_at_bind(k: SourceBuilder, op: str, windows: Sequence[Window]) -> None:
    """Emit bind-time checks that windows fit on axes of symbolic size."""
    for window in (window for window in windows if not isinstance(window.count, int)):
        expression = f"{k.function(require_window_count)}({op!r}, {window.count}, {window.kernel})"
        k.at_bind(expression, [], "places")


def require_window_count(op: str, count: int, kernel: int) -> int:
    """Return the number of window positions; raises ValueError if there is none."""
    if count < 1:
        raise ValueError(f"{op}: a window of {kernel} taps does not fit")
    return count
