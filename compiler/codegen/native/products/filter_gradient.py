"""The gradient of a convolution by its filters: a product summed over all output pixels.

    d_filter[k…, c, f]  =  Σ over n and y… of input[n, y*stride + k*dilation…, c] * d_out[n, y…, f]

The rows of a tile are neighbouring channels, its columns neighbouring filters; the output's
gradient is packed where many rows read it. The sum is divided into parts of a size that depends on
the shapes alone, so small that what a part reads stays in the cache; a second kernel adds the parts
in order.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis, contiguous, merged
from compiler.codegen.native.products.contraction import Call, Contraction, Steps
from compiler.codegen.native.products.convolution import (
    Convolution,
    ConvolutionInput,
    label,
    padded_input,
)
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.packed import packed_steps
from compiler.codegen.native.products.parts import sum_of_parts
from compiler.codegen.native.products.tiles import SECOND_CACHE, assumed, choose_tiling, extent
from compiler.codegen.native.products.transposed_parts import transposed_sum_of_parts
from compiler.ir.dims import Size, product
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

LEAST_STEPS = threshold(
    "filter_gradient_steps", 1024, "steps of a sum",
    "a part of a filter gradient has at least so many", small=6,
)  # fmt: skip
MANY_ROWS = threshold(
    "filter_gradient_rows", 96, "rows", "those of a filter gradient from which d_out is packed",
    small=6,
)  # fmt: skip
WIDE_ROW = threshold(
    "filter_gradient_pixel", 256, "bytes", "pixels of d_out that are packed have more", small=8
)


@dataclass(frozen=True)
class Division:
    """How the sum over images and output pixels is divided.

    `images` of a part, or `rows` of one image; 0 for all rows.
    """

    images: int
    rows: int = 0


def filter_gradient(machine: Machine, element: Type, conv: Convolution) -> Steps:
    """Kernels of the gradient by the filters, in the layout of the filters.

    Operands: "input" (channels last), "d_out", "out" (the gradient); scratch: "parts", and "padded"
    if the input is padded. Sums are the same however units are divided among threads.
    """
    pads, source = padded_input(machine, element, conv)
    division = _division(conv)
    count = _parts(conv, division)
    whole = count == 1 and conv.filters_last
    spec = _contraction(element, conv, source, division, "out" if whole else "parts")
    names = ("padded" if pads.calls else "input", "d_out")
    steps = pads.then(_summed(machine, spec, names))
    if whole:
        return steps
    size = product([*conv.kernel, conv.group_channels, conv.filters])
    total = _total(machine, element, conv, count)
    return steps.then(Steps((total,), (), {"parts": product([count, size])}))


def _summed(machine: Machine, spec: Contraction, names: tuple[str, str]) -> Steps:
    """The contraction; the output's gradient is packed first where many rows read it."""
    rows = product(axis.count for axis in spec.rows)
    columns = assumed(spec.columns.count)
    if assumed(rows) >= MANY_ROWS.value and columns > WIDE_ROW.value // spec.element.nbytes:
        return packed_steps(spec, machine, False, names=names)
    tiling = choose_tiling(machine, spec.element, extent(spec), False)
    call = contraction_kernel(spec, machine, tiling)
    return Steps((replace(call, arguments=(*names, *call.arguments[2:])),))


def _division(conv: Convolution) -> Division:
    """Parts that read no more than the second cache holds, but do enough steps."""
    nbytes = 4 * (conv.group_channels + conv.group_filters)
    steps = max(LEAST_STEPS.value, SECOND_CACHE.value // nbytes)
    pixels = product(conv.out_size)
    if not isinstance(pixels, int):
        return Division(1)
    if pixels <= steps:
        images = steps // pixels
        return Division(min(images, conv.images or 1) if isinstance(conv.images, int) else images)
    first = conv.out_size[0]
    assert isinstance(first, int)
    rows = max(1, steps * first // pixels)
    return Division(1, -(-first // -(-first // rows)))


def _parts(conv: Convolution, division: Division) -> Size:
    """The number of parts."""
    if division.rows:
        return product([conv.images, _divide_up(conv.out_size[0], division.rows)])
    return _divide_up(conv.images, division.images)


def _divide_up(size: Size, by: int) -> Size:
    return (size + (by - 1)) // by


def _contraction(
    element: Type, conv: Convolution, source: ConvolutionInput, division: Division, out: str
) -> Contraction:
    """The contraction, with an axis of parts last in its batch."""
    strides = contiguous([*conv.kernel, conv.group_channels, conv.filters])
    size = product([*conv.kernel, conv.group_channels, conv.filters])
    rows = [
        Axis(w.kernel, {"a": product([w.dilation, a]), out: stride})
        for w, a, stride in zip(conv.windows, source.spatial, strides, strict=False)
    ]
    rows.append(Axis(conv.group_channels, {"a": source.channel, out: strides[-2]}))
    batch, sums, part_of = _pixels(conv, source, division, out, size)
    return Contraction(
        label("filter_gradient", conv, ""), element,
        [*_groups(conv, source, out), *batch], merged(rows), sums,
        Axis(conv.group_filters, {"b": 1, out: 1}), {"a": element, "b": element, out: element},
        offsets={"a": source.offset}, outputs=(out,), part_of=part_of,
    )  # fmt: skip


def _groups(conv: Convolution, source: ConvolutionInput, out: str) -> list[Axis]:
    if conv.groups == 1:
        return []
    a = product([source.channel, conv.group_channels])
    return [Axis(conv.groups, {"a": a, "b": conv.group_filters, out: conv.group_filters})]


def _pixels(
    conv: Convolution, source: ConvolutionInput, division: Division, out: str, size: Size
) -> tuple[list[Axis], list[Axis], Size]:
    """The axes of parts, those of the sum, and the steps of the divided one."""
    image, *steps, _ = conv.out_strides
    axes = [
        Axis(w.count, {"a": product([w.stride, a]), "b": b})
        for w, a, b in zip(conv.windows, source.spatial, steps, strict=True)
    ]
    images = Axis(conv.images, {"a": source.image, "b": image})
    if not division.rows:
        part = _part(images, division.images, out, size)
        sums = [Axis(division.images, images.strides), *merged(axes)]
        return [part], sums, conv.images
    parts = _divide_up(conv.out_size[0], division.rows)
    images = Axis(conv.images, {**images.strides, out: product([parts, size])})
    rest = merged(axes[1:]) if len(axes) > 1 else ()
    sums = [Axis(division.rows, axes[0].strides), *rest]
    return [images, _part(axes[0], division.rows, out, size)], sums, conv.out_size[0]


def _part(axis: Axis, steps: int, out: str, size: Size) -> Axis:
    """The axis of parts of an axis of the sum."""
    strides = {name: product([steps, stride]) for name, stride in axis.strides.items()}
    return Axis(_divide_up(axis.count, steps), {**strides, out: size})


def _total(machine: Machine, element: Type, conv: Convolution, count: Size) -> Call:
    """The kernel that adds the parts [kernel…, c, f] in the layout of the filters."""
    channels, filters = conv.group_channels, conv.filters
    places = prod(conv.kernel)
    if not conv.filters_last:
        return transposed_sum_of_parts(machine, element, count, places, channels, filters)
    rows = Axis(places * channels, {"parts": filters, "out": filters})
    columns = Axis(filters, {"parts": 1, "out": 1})
    return sum_of_parts(machine, element, label("filter", conv, ""), count, (rows,), columns)
