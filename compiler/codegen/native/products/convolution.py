"""Convolutions as contractions: each output pixel is a row, each filter a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis, contiguous, merged
from compiler.codegen.native.products.contraction import Contraction, Steps
from compiler.codegen.native.products.dots import dot_of
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.one_column import is_one_column, one_column_steps
from compiler.codegen.native.products.packed import packed_steps
from compiler.codegen.native.products.padding import Margins, pad_call
from compiler.codegen.native.products.tiles import Tiling
from compiler.ir.dims import Size, product
from compiler.ir.windows import StaticWindow
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution over any number of spatial axes, with a window on each.

    `channels` and `filters` are those of all groups. Images and outputs are arrays [images, size…,
    channels]; `channels_first` says that the input is [images, channels, size…].
    Filters are [filters, channels of a group, kernel…], or [kernel…, channels of a group, filters]
    if `filters_last`. `halo` are zeros that the input's array already holds around each image.
    """

    images: Size
    channels: int
    filters: int
    windows: tuple[StaticWindow, ...]
    groups: int = 1
    channels_first: bool = False
    filters_last: bool = False
    halo: int = 0

    @property
    def size(self) -> tuple[Size, ...]:
        """The spatial size of images."""
        return tuple(window.size for window in self.windows)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The spatial size of filters."""
        return tuple(window.kernel for window in self.windows)

    @property
    def out_size(self) -> tuple[Size, ...]:
        """The spatial size of the output."""
        return tuple(window.count for window in self.windows)

    @property
    def group_channels(self) -> int:
        """Input channels of a group."""
        return self.channels // self.groups

    @property
    def group_filters(self) -> int:
        """Output channels of a group."""
        return self.filters // self.groups

    @property
    def out_strides(self) -> tuple[Size, ...]:
        """Elements between neighbours of the output: images, spatial axes, channels."""
        return contiguous([self.images, *self.out_size, self.filters])

    def filter_strides(self) -> tuple[int, int, tuple[int, ...]]:
        """Elements between neighbours of the filters: filters, channels, spatial axes."""
        if self.filters_last:
            *spatial, channel, one = contiguous([*self.kernel, self.group_channels, self.filters])
            return _number(one), _number(channel), tuple(map(_number, spatial))
        filter, channel, *spatial = contiguous([self.filters, self.group_channels, *self.kernel])
        return _number(filter), _number(channel), tuple(map(_number, spatial))

    def input_strides(self, size: Sequence[Size]) -> tuple[Size, Size, tuple[Size, ...]]:
        """Elements between neighbours of input images of a size: images, channels, spatial axes."""
        if self.channels_first:
            image, channel, *spatial = contiguous([self.images, self.channels, *size])
            return image, channel, tuple(spatial)
        image, *spatial, channel = contiguous([self.images, *size, self.channels])
        return image, channel, tuple(spatial)


def _number(size: Size) -> int:
    assert isinstance(size, int)
    return size


@dataclass(frozen=True)
class ConvolutionInput:
    """The input that a convolution reads: its strides, and where the first window begins."""

    image: Size
    channel: Size
    spatial: tuple[Size, ...]
    offset: Size


def convolution(
    machine: Machine, element: Type, conv: Convolution, *, epilogue: Epilogue | None = None,
    constant: bool = False, tiling: Tiling | None = None,
) -> Steps:  # fmt: skip
    """Kernels of a convolution: out[n, y…, f] = Σ over kernel and c of input · filter.

    Operands: "input", "filter", "out", those of the epilogue, whose strides are over the output's
    axes (images, spatial…, channels); scratch: "packed", and "padded" if the input is padded.
    `constant` says that the filters never change.
    """
    epilogue = epilogue or Epilogue()
    pads, source = padded_input(machine, element, conv)
    spec = _forward(machine, element, conv, source, epilogue)
    names = ("padded" if pads.calls else "input", "filter")
    if tiling is None and is_one_column(spec, machine):
        return pads.then(one_column_steps(spec, machine, names))
    return pads.then(packed_steps(spec, machine, constant, tiling=tiling, names=names))


def padded_input(
    machine: Machine, element: Type, conv: Convolution
) -> tuple[Steps, ConvolutionInput]:
    """The kernel that pads the input, if that is needed, and the input to read."""
    before = tuple(window.before for window in conv.windows)
    after = tuple(window.after for window in conv.windows)
    if (not any(before) and not any(after)) or conv.halo >= max(*before, *after):
        halo = Margins((conv.halo,) * len(before), (conv.halo,) * len(before))
        image, channel, spatial = conv.input_strides(halo.around(conv.size))
        shifts = [conv.halo - size for size in before]
        return Steps(()), ConvolutionInput(image, channel, spatial, _shift(shifts, spatial))
    margins = Margins(before, after)
    first = conv.channels_first
    images = product([conv.images, conv.channels]) if first else conv.images
    inner = 1 if first else conv.channels
    call = pad_call(
        machine, element, images, conv.size, inner, margins, ("input", "padded")
    )  # fmt: skip
    around = margins.around(conv.size)
    scratch = {"padded": product([conv.images, *around, conv.channels])}
    return Steps((call,), (), scratch), ConvolutionInput(*conv.input_strides(around), 0)


def _shift(steps: Sequence[int], strides: Sequence[Size]) -> Size:
    total: Size = 0
    for count, stride in zip(steps, strides, strict=True):
        total = total + product([count, stride])
    return total


def _forward(
    machine: Machine, element: Type, conv: Convolution, source: ConvolutionInput, epilogue: Epilogue
) -> Contraction:  # fmt: skip
    """The contraction of a convolution."""
    results = epilogue.strides(conv.out_strides)
    dot = dot_of(machine, element)
    sums = dot.sums if dot else element
    types = {"a": element, "b": element} | epilogue.types(dot.result if dot else element)
    filter, _, _ = conv.filter_strides()
    return Contraction(
        label("convolution", conv, epilogue.label), sums,
        _groups(conv, source.channel, results), _rows(conv, source, results),
        _sums(conv, source), Axis(conv.group_filters, {"b": filter} | last(results)),
        types, offsets={"a": source.offset}, start=epilogue.start, finish=epilogue.finish,
        outputs=epilogue.outputs, dot=dot,
    )  # fmt: skip


def _groups(
    conv: Convolution, channel: Size, results: Mapping[str, Sequence[Size]]
) -> list[Axis]:  # fmt: skip
    """The axis of groups, if there are several."""
    if conv.groups == 1:
        return []
    filter, _, _ = conv.filter_strides()
    strides: dict[str, Size] = {
        "a": product([channel, conv.group_channels]), "b": filter * conv.group_filters
    }  # fmt: skip
    for name, result_strides in results.items():
        strides[name] = product([result_strides[-1], conv.group_filters])
    return [Axis(conv.groups, strides)]


def _rows(
    conv: Convolution, source: ConvolutionInput, results: Mapping[str, Sequence[Size]]
) -> tuple[Axis, ...]:
    """The axes of output pixels."""
    pairs = zip(conv.windows, source.spatial, strict=True)
    steps = [product([window.stride, stride]) for window, stride in pairs]
    counts = [conv.images, *conv.out_size]
    return merged(
        [
            Axis(count, {"a": step} | at(results, place))
            for place, (count, step) in enumerate(zip(counts, [source.image, *steps], strict=True))
        ]
    )


def _sums(conv: Convolution, source: ConvolutionInput) -> list[Axis]:
    """The axes of a window, in the order of the input's memory."""
    _, channel, spatial = conv.filter_strides()
    window = [
        Axis(w.kernel, {"a": product([w.dilation, a]), "b": b})
        for w, a, b in zip(conv.windows, source.spatial, spatial, strict=True)
    ]
    channels = Axis(conv.group_channels, {"a": source.channel, "b": channel})
    return [channels, *window] if conv.channels_first else [*window, channels]


def at(results: Mapping[str, Sequence[Size]], place: int) -> dict[str, Size]:
    """The operands' strides on one axis of the output."""
    return {name: strides[place] for name, strides in results.items()}


def last(results: Mapping[str, Sequence[Size]]) -> dict[str, Size]:
    """The operands' strides on the last axis of the output."""
    return at(results, -1)


def label(what: str, conv: Convolution, epilogue: str) -> str:
    """A kernel's name: what it does and the sizes that are known."""
    kernel = "x".join(map(str, conv.kernel))
    stride = "x".join(str(window.stride) for window in conv.windows)
    size = "x".join(str(extent) if isinstance(extent, int) else "n" for extent in conv.size)
    parts = [what, size, f"c{conv.channels}", f"f{conv.filters}", f"k{kernel}", f"s{stride}"]
    return "_".join(filter(None, [*parts, epilogue]))
