"""Where a sliding window stands on an image axis: the arithmetic convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.types import Array, Shape, TensorType

CHANNELS_LAST = "NHWC"


@dataclass(frozen=True)
class Axis:
    """An image axis of `size` elements, padded, and the `count` places of a window on it.

    The window has `kernel` taps that are `dilation` apart and moves by `stride`.
    """

    size: Size
    kernel: Size
    stride: int
    dilation: int
    before: Size
    after: Size
    count: Size

    @property
    def padded(self) -> Size:
        """Its size with the padding."""
        return self.size + self.before + self.after

    @property
    def span(self) -> Size:
        """How many elements lie from the first tap to the last, both included."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def is_padless(self) -> bool:
        """True where nothing surrounds the image."""
        return self.before == 0 and self.after == 0

    @property
    def overlaps(self) -> bool:
        """True where two windows share an element, or may."""
        return not isinstance(self.kernel, int) or self.kernel > self.stride

    @property
    def is_identity(self) -> bool:
        """True where the window sees one element after the other, each alone."""
        return (self.kernel, self.stride) == (1, 1) and self.is_padless


@dataclass(frozen=True)
class Sliding:
    """The attributes that say how a window slides over the two image axes.

    `paddings` is [height, width] or [top, bottom, left, right]; `algorithm` SAME and VALID take
    their place, and SAME ignores dilations, as in the reference (conv_op.h,
    UpdatePaddingAndDilation). Raises BadAttribute where an attribute has the wrong length.
    """

    op: str
    strides: Sequence[int]
    paddings: Sequence[int]
    dilations: Sequence[int] = (1, 1)
    algorithm: str = "EXPLICIT"
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        for name, values in (("strides", self.strides), ("dilations", self.dilations)):
            if len(values) != 2 or min(values) < 1:
                raise BadAttribute(
                    f"{self.op}: {name} is {list(values)}, expected two sizes from 1"
                )
        if len(self.paddings) not in (2, 4) or min(self.paddings) < 0:
            found = list(self.paddings)
            raise BadAttribute(f"{self.op}: paddings is {found}, expected 2 or 4 sizes from 0")
        if self.algorithm not in ("EXPLICIT", "SAME", "VALID"):
            hint = "expected EXPLICIT, SAME or VALID"
            raise BadAttribute(f"{self.op}: padding_algorithm is {self.algorithm!r}", hint=hint)

    def over(self, sizes: Sequence[Size], kernel: Sequence[Size]) -> tuple[Axis, Axis]:
        """Both axes of an image; ShapeError where a window does not fit on one."""
        rows, columns = (self._axis(axis, sizes[axis], kernel[axis]) for axis in (0, 1))
        for axis in (rows, columns):
            if isinstance(axis.count, int) and axis.count < 1:
                raise ShapeError(
                    f"{self.op}: a window of {axis.kernel} taps {axis.dilation} apart does not fit"
                    f" on {axis.padded} rows or columns, padding included"
                )
        return rows, columns

    def _axis(self, axis: int, size: Size, kernel: Size) -> Axis:
        stride, dilation = self.strides[axis], self.dilations[axis]
        if self.algorithm == "SAME":
            count = (size + stride - 1) // stride
            total = _same_padding(size, kernel, stride, count)
            return Axis(size, kernel, stride, 1, total // 2, total - total // 2, count)
        before, after = (0, 0) if self.algorithm == "VALID" else self._padding(axis)
        free = size + before + after - dilation * (kernel - 1) - 1
        rounded = free + stride - 1 if self.ceil_mode else free
        if isinstance(free, int) and isinstance(rounded, int) and -stride < rounded < 0:
            # The reference divides towards zero (pool_op.h, conv_op.h): one window hangs over.
            return Axis(size, kernel, stride, dilation, before, after - free, 1)
        return Axis(size, kernel, stride, dilation, before, after, rounded // stride + 1)

    def _padding(self, axis: int) -> tuple[int, int]:
        given = self.paddings
        if len(given) == 2:
            return given[axis], given[axis]
        return given[2 * axis], given[2 * axis + 1]


def require_places(k: Kernel, op: str, axes: Sequence[Axis]) -> None:
    """Let binding refuse sizes, unknown before, on which a window does not fit."""
    for axis in (axis for axis in axes if not isinstance(axis.count, int)):
        expression = f"{k.function(expect_places)}({op!r}, {axis.count}, {axis.kernel})"
        k.once(expression, [], "places")


def expect_places(op: str, count: int, kernel: int) -> int:
    """The number of places of a window; ValueError where there is none."""
    if count < 1:
        raise ValueError(f"{op}: a window of {kernel} taps does not fit")
    return count


def _same_padding(size: Size, kernel: Size, stride: int, count: Size) -> Size:
    """max((count - 1)*stride + kernel - size, 0), where that lies from kernel - stride up."""
    total = (count - 1) * stride + kernel - size
    if isinstance(total, int):
        return max(total, 0)
    if isinstance(kernel, int) and kernel < stride:
        return total * ((total + stride) // stride)
    return total


def channels_first(data_format: str, shape: Shape) -> Shape:
    """The shape of a batch of images as [N, C, H, W]."""
    if data_format != CHANNELS_LAST:
        return shape
    batch, *image, channels = shape
    return (batch, channels, *image)


def in_layout(data_format: str, shape: Shape) -> Shape:
    """The shape [N, C, H, W] as the attribute `data_format` has it."""
    if data_format != CHANNELS_LAST:
        return shape
    batch, channels, *image = shape
    return (batch, *image, channels)


def seen_channels_first(data_format: str, array: Array) -> Array:
    """A batch of images seen as [N, C, H, W]; a view."""
    return array.transpose(0, 3, 1, 2) if data_format == CHANNELS_LAST else array


def text_channels_first(k: Kernel, data_format: str, images: Operand) -> str:
    """The expression for a batch of images seen as [N, C, H, W]."""
    if data_format != CHANNELS_LAST:
        return str(images)
    return k.once(f"{images}.transpose(0, 3, 1, 2)", [images], "nchw")


def require_images(op: str, slot: str, images: TensorType) -> None:
    """ShapeError unless an input has the four axes of a batch of images."""
    if images.rank != 4 or not images.dtype.is_float:
        raise ShapeError(
            f"{op}: {slot} is {images}, expected four axes of floats: a batch of images"
        )
