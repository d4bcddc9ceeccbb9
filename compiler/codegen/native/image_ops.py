"""Ops on images by kernels of their own: convolutions, pooling and transposes, channels last."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Protocol

from compiler.codegen.kernel.scalar_kernels import KernelOperand
from compiler.codegen.native.element_types import COMPUTED, TYPES
from compiler.codegen.native.images.depthwise import depthwise
from compiler.codegen.native.images.depthwise_gradient import (
    depthwise_filter_gradient,
    depthwise_image_gradient,
)
from compiler.codegen.native.images.pooling import pool, pool_gradient
from compiler.codegen.native.images.sliding import ImageWindows
from compiler.codegen.native.images.transposes import transpose
from compiler.codegen.native.images.vectors import Channels
from compiler.codegen.native.images.winograd import BlockedSteps, pays, winograd
from compiler.codegen.native.llvm_ir import F32, I8, I16, I32, I64, Type
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.narrow_factors import product_factors
from compiler.codegen.native.products.contraction import Steps
from compiler.codegen.native.products.convolution import Convolution, convolution
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.filter_gradient import filter_gradient
from compiler.codegen.native.products.image_gradient import (
    axis_phases,
    image_gradient,
    listed_phases,
)
from compiler.codegen.native.register_epilogues import RegisterEpilogue
from compiler.codegen.native.step_draft import ExpectedShape, StepDraft
from compiler.ir.dims import Size
from compiler.ir.types import HALVES
from compiler.ir.windows import HWIO, ConvGeometry, PoolGeometry, StaticWindow, Window
from compiler.support.thresholds import threshold

MAX_PHASES = threshold(
    "phase_kernels", 64, "contractions", "a gradient of images that needs more is a loop over taps",
    small=1,
)  # fmt: skip

MAX_LISTED_PHASES = 4096
"""Maximum phases of an axis that are listed to count the contractions of a gradient of images."""

MAX_ROW_OF_TAPS = threshold(
    "row_of_taps", 64, "columns of filters",
    "wider filters have no sum in registers for each column in their gradient", small=2,
)  # fmt: skip


class ImageKernelBuilder(Protocol):
    """The part of a kernel builder that makes kernels which are not written in the kernel IR."""

    machine: Machine
    winograd: bool

    def result_epilogue(
        self, out: KernelOperand, bias: KernelOperand | None = None
    ) -> RegisterEpilogue:
        """What follows a result that a specialised kernel computes, and how it is stored."""
        ...

    def is_constant(self, operand: KernelOperand) -> bool:
        """True for state whose values never change."""
        ...

    def made(self, make: Callable[..., Steps], *arguments: Hashable, **more: Hashable) -> Steps:
        """What a function returns, which is called once for equal arguments."""
        ...


def _floats(*operands: KernelOperand) -> Type:
    """The element type of operands; raises NotLowered unless all are one type of float."""
    dtypes = {operand.type.dtype for operand in operands}
    if len(dtypes) > 1 or not dtypes <= COMPUTED:
        raise NotLowered("its kernels compute in float32 or float64")
    return TYPES[dtypes.pop()]


def _pooled(images: KernelOperand, outputs: KernelOperand) -> Type:
    """The element type that a pooling computes in: float32 for halves."""
    if images.type.dtype in HALVES and images.type.dtype is outputs.type.dtype:
        return F32
    return _floats(images, outputs)


def _expect_channels_last(geometry: ConvGeometry | PoolGeometry) -> None:
    """Raise NotLowered for images with channels first."""
    if not geometry.channels_last:
        raise NotLowered("its channels are not innermost")


def _number(size: Size) -> int:
    """A size known at compile time; raises NotLowered for others."""
    if not isinstance(size, int):
        raise NotLowered("its filters, windows or channels have an open size")
    return size


# ---- pooling -----------------------------------------------------------------------------------


def _pooled_shapes(
    p: PoolGeometry, images: KernelOperand, *outputs: KernelOperand
) -> tuple[ExpectedShape, ...]:
    """The shapes of images, and of what has an element for each position."""
    batch, channels = outputs[0].shape[0], outputs[0].shape[-1]
    sizes = (batch, *(window.size for window in p.windows), channels)
    counts = (batch, *(window.count for window in p.windows), channels)
    return (
        ExpectedShape.of(images, sizes),
        *(ExpectedShape.of(output, counts) for output in outputs),
    )


def _static(window: Window) -> StaticWindow:
    """The window, with numbers as kernel and padding; raises NotLowered if they are not known."""
    if window.is_divided and window.count == 1 and isinstance(window.size, int):
        return StaticWindow(window.size, window.size, 1, 1, 0, 0, 1)
    if window.is_divided:
        raise NotLowered("its windows differ in size")
    kernel, before, after = map(_number, (window.kernel, window.before, window.after))
    stride, dilation = window.stride, window.dilation
    return StaticWindow(window.size, kernel, stride, dilation, before, after, window.count)


def _image_windows(
    machine: Machine,
    windows: Sequence[Window],
    outputs: KernelOperand,
    element: Type | None = None,
) -> ImageWindows:
    """The windows over a batch; `outputs` have their channels and, by default, their type."""
    channels = Channels(machine, element or _floats(outputs), _number(outputs.shape[-1]))
    if len(windows) != 2:
        raise NotLowered("its images do not have two axes")
    rows, columns = map(_static, windows)
    return ImageWindows(outputs.shape[0], rows, columns, channels)


def pooling(
    k: ImageKernelBuilder,
    largest: bool,
    p: PoolGeometry,
    images: KernelOperand,
    outputs: KernelOperand,
) -> StepDraft:
    """A pooling with what is fused after it."""
    _expect_channels_last(p)
    windows = _image_windows(k.machine, p.windows, outputs, _pooled(images, outputs))
    shapes = _pooled_shapes(p, images, outputs)
    after = k.result_epilogue(outputs)
    source = images.type.dtype
    steps = k.made(pool, windows, largest, p.divisor, after.epilogue, source=source)
    arrays = {**after.arrays, "images": images.operand}
    element = windows.channels.element
    return StepDraft(steps, element, arrays, shapes=shapes, stores=after.kernel)


def mean_gradient(
    k: ImageKernelBuilder, p: PoolGeometry, outputs: KernelOperand, images: KernelOperand
) -> StepDraft:
    """The gradient of a mean."""
    _expect_channels_last(p)
    windows = _image_windows(k.machine, p.windows, outputs)
    shapes = _pooled_shapes(p, images, outputs)
    after = k.result_epilogue(images)
    steps = k.made(pool_gradient, windows, False, p.divisor, after.epilogue)
    arrays = {**after.arrays, "d_out": outputs.operand, "d_images": after.arrays["out"]}
    element = windows.channels.element
    return StepDraft(steps, element, arrays, shapes=shapes, stores=after.kernel)


def maximum_gradient(
    k: ImageKernelBuilder, p: PoolGeometry, images: KernelOperand, maxima: KernelOperand,
    outputs: KernelOperand, gradient: KernelOperand,
) -> StepDraft:  # fmt: skip
    """The gradient of a maximum, from those of `outputs`."""
    _expect_channels_last(p)
    windows = _image_windows(k.machine, p.windows, outputs)
    shapes = (
        *_pooled_shapes(p, images, outputs, maxima), *_pooled_shapes(p, gradient, outputs)
    )  # fmt: skip
    after = k.result_epilogue(gradient)
    steps = k.made(pool_gradient, windows, True, p.divisor, after.epilogue)
    arrays = {
        **after.arrays, "images": images.operand, "out": maxima.operand, "d_out": outputs.operand,
        "d_images": after.arrays["out"],
    }  # fmt: skip
    element = windows.channels.element
    return StepDraft(steps, element, arrays, shapes=shapes, stores=after.kernel)


# ---- convolutions ------------------------------------------------------------------------------


def _convolution(
    g: ConvGeometry, images: KernelOperand, filters: KernelOperand, outputs: KernelOperand
) -> tuple[Convolution, tuple[ExpectedShape, ...]]:
    """The convolution of operands, and the shapes of them that it reads."""
    _expect_channels_last(g)
    windows = tuple(map(_static, g.windows))
    channels, count = _number(images.shape[-1]), _number(outputs.shape[-1])
    conv = Convolution(
        images.shape[0], channels, count, windows, g.groups, filters_last=g.filters == HWIO
    )
    sides = conv.filters, conv.channels // conv.groups
    ordered = (*conv.kernel, *reversed(sides)) if conv.filters_last else (*sides, *conv.kernel)
    return conv, (
        ExpectedShape.of(images, (conv.images, *conv.size, conv.channels)),
        ExpectedShape.of(outputs, (conv.images, *conv.out_size, conv.filters)),
        ExpectedShape.of(filters, ordered),
    )


def forward(
    k: ImageKernelBuilder, g: ConvGeometry, images: KernelOperand, filters: KernelOperand,
    outputs: KernelOperand, bias: KernelOperand | None = None,
) -> StepDraft:  # fmt: skip
    """A convolution with what is fused after it."""
    conv, shapes = _convolution(g, images, filters, outputs)
    by_channel = _is_depthwise(conv)
    factors = product_factors(k.machine, images.operand, filters.operand, not by_channel)
    element, constant = factors.element, k.is_constant(filters)
    after = k.result_epilogue(outputs, bias)
    if by_channel:
        windows = _image_windows(k.machine, g.windows, outputs, element)
        multiplier = conv.filters // conv.groups
        epilogue, last = after.epilogue, conv.filters_last
        steps = k.made(depthwise, windows, multiplier, epilogue, constant, filters_last=last)
    elif constant and k.winograd and (m := _winograd_tile(k.machine, conv, element)):
        steps = k.made(_winograd, k.machine, element, conv, m, after.epilogue)
    else:
        epilogue = after.epilogue
        steps = k.made(convolution, k.machine, element, conv, epilogue=epilogue, constant=constant)
    left, right = ("images", "input"), ("filters", "filter")
    return StepDraft(steps, element, after.arrays, factors, left, right, shapes, after.kernel)


def _is_depthwise(conv: Convolution) -> bool:
    """True if each channel is a group."""
    return conv.groups > 1 and conv.channels == conv.groups


def _winograd_tile(machine: Machine, conv: Convolution, element: Type) -> int:
    """The m of the Winograd algorithm to use, 0 for direct convolution."""
    plain = all(
        (w.kernel, w.stride, w.dilation) == (3, 1, 1) and max(w.before, w.after) <= 1
        for w in conv.windows
    )
    if not plain or len(conv.windows) != 2 or conv.groups != 1 or element != F32:
        return 0
    height, width = conv.size
    return pays(conv.images, conv.channels, height, width, conv.filters, machine)


def _winograd(
    machine: Machine, element: Type, conv: Convolution, m: int, epilogue: Epilogue
) -> BlockedSteps:
    height, width = conv.size
    rows, columns = conv.windows
    return winograd(
        machine, element, conv.images, height, width, conv.channels, conv.filters, m=m,
        padding=(rows.before, rows.after, columns.before, columns.after),
        layout="HWIO" if conv.filters_last else "OIHW",
        epilogue=epilogue,
    )  # fmt: skip


def gradient_by_images(
    k: ImageKernelBuilder, g: ConvGeometry, outputs: KernelOperand, filters: KernelOperand,
    images: KernelOperand, bias: KernelOperand | None = None,
) -> StepDraft:  # fmt: skip
    """The gradient of a convolution by its images, with what is fused after it."""
    element = _floats(images, filters, outputs)
    conv, shapes = _convolution(g, images, filters, outputs)
    after = k.result_epilogue(images, bias)
    arrays = {**after.arrays, "d_out": outputs.operand}
    if _is_depthwise(conv) and not conv.filters_last:
        windows = _image_windows(k.machine, g.windows, outputs)
        multiplier = conv.filters // conv.groups
        steps = k.made(depthwise_image_gradient, windows, multiplier, after.epilogue)
        arrays |= {"filters": filters.operand, "d_images": after.arrays["out"]}
        return StepDraft(steps, element, arrays, shapes=shapes, stores=after.kernel)
    if not _has_few_phases(conv):
        raise NotLowered("its windows are so far apart that many pixels are read by other taps")
    constant = k.is_constant(filters)
    steps = k.made(
        image_gradient, k.machine, element, conv, epilogue=after.epilogue, constant=constant
    )
    arrays["filter"] = filters.operand
    return StepDraft(steps, element, arrays, shapes=shapes, stores=after.kernel)


def _has_few_phases(conv: Convolution) -> bool:
    """True if the gradient of the images is a small number of contractions."""
    listable = listed_phases(conv) <= MAX_LISTED_PHASES
    return listable and prod(map(len, axis_phases(conv))) <= MAX_PHASES.value


def gradient_by_filters(
    k: ImageKernelBuilder, g: ConvGeometry, images: KernelOperand, outputs: KernelOperand,
    filters: KernelOperand,
) -> StepDraft:  # fmt: skip
    """The gradient of a convolution by its filters."""
    element = _floats(images, filters, outputs)
    conv, shapes = _convolution(g, images, filters, outputs)
    if _is_depthwise(conv) and not conv.filters_last:
        if conv.kernel[-1] > MAX_ROW_OF_TAPS.value:
            raise NotLowered("its kernels would keep a sum for each of many taps")
        windows = _image_windows(k.machine, g.windows, outputs)
        multiplier = conv.filters // conv.groups
        steps = k.made(depthwise_filter_gradient, windows, multiplier)
        operands = {"images": images, "d_out": outputs, "d_filters": filters}
        arrays = {name: operand.operand for name, operand in operands.items()}
        return StepDraft(steps, element, arrays, shapes=shapes)
    arrays = {"input": images.operand, "d_out": outputs.operand, "out": filters.operand}
    steps = k.made(filter_gradient, k.machine, element, conv)
    return StepDraft(steps, element, arrays, shapes=shapes)


# ---- transposes --------------------------------------------------------------------------------


_BITS: Mapping[int, Type] = {1: I8, 2: I16, 4: I32, 8: I64}
"""An integer type for elements of each size in bytes."""


def transposition(
    k: ImageKernelBuilder, order: Sequence[int], source: KernelOperand, outputs: KernelOperand
) -> StepDraft:
    """A transposed copy; axis i of the output is axis order[i] of the source."""
    element = _BITS[source.type.dtype.itemsize]
    shape = ExpectedShape.of(outputs, tuple(source.shape[axis] for axis in order))
    steps = k.made(transpose, k.machine, element, source.shape, tuple(order))
    arrays = {"X": source.operand, "Out": outputs.operand}
    return StepDraft(steps, element, arrays, shapes=(shape,))
