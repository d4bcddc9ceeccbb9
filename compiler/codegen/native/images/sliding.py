"""A kernel over sliding windows: its arguments, units and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from compiler.codegen.native.images.results import NO_EPILOGUE, Opened, begin
from compiler.codegen.native.images.vectors import Channels
from compiler.codegen.native.images.window_loops import ImageSource, WindowBody, WindowLoops
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.llvm_ir import Value
from compiler.codegen.native.products.contraction import Call
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import named
from compiler.ir.dims import Size
from compiler.ir.windows import StaticWindow
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

TILE_WINDOWS = threshold(
    "tile_windows", 8, "windows", "a tile of a sliding window has at most so many", small=2
)


@dataclass(frozen=True)
class ImageWindows:
    """The windows on rows and columns of a batch of images [batch, H, W, C].

    `channels` are those of the output.
    """

    batch: Size
    rows: StaticWindow
    columns: StaticWindow
    channels: Channels

    @property
    def sizes(self) -> tuple[Size, Size, Size, Size]:
        """H, W and the number of windows on both axes."""
        return self.rows.size, self.columns.size, self.rows.count, self.columns.count

    @property
    def transposed(self) -> ImageWindows:
        """The windows of the gradient: those of elements over the outputs."""
        return replace(self, rows=self.rows.transposed, columns=self.columns.transposed)

    @property
    def outputs(self) -> Size:
        """The elements of the output."""
        return self.batch * self.rows.count * self.columns.count * self.channels.count

    @property
    def inputs(self) -> Size:
        """The elements of an input with the channels of the output."""
        return self.batch * self.rows.size * self.columns.size * self.channels.count

    @property
    def name(self) -> str:
        """The geometry as a part of a kernel's name."""
        channels = self.channels
        element = {"float": "f32", "double": "f64"}[channels.element.element]
        axes = [_axis_name(axis) for axis in (self.rows, self.columns)]
        return "_".join([*axes, f"c{channels.count}", element, channels.machine.name])


def _axis_name(axis: StaticWindow) -> str:
    numbers = [axis.kernel, axis.stride, axis.dilation, axis.before, axis.base_dilation]
    sizes = [size if isinstance(size, int) else "n" for size in (axis.size, axis.count)]
    return "x".join(str(number).replace("-", "m") for number in (*sizes, *numbers))


def sliding_kernel(
    name: str, windows: ImageWindows, arrays: Sequence[str],
    make: Callable[[Opened], tuple[WindowBody, Sequence[ImageSource]]], width: int,
    epilogue: Epilogue = NO_EPILOGUE, flops: int = 1,
) -> Call:  # fmt: skip
    """Return a kernel of windows over `arrays` that writes "out" and what the epilogue names.

    `make` gives the body and the arrays under the windows, `flops` the operations of a tap,
    `width` the windows of a tile, at most.
    """
    label = "_".join(part for part in (name, windows.name, epilogue.label) if part)
    channels = windows.channels
    k = begin(label, arrays, windows.sizes, epilogue, channels.element, channels.count)
    body, sources = make(k)
    height, wide, out_height, out_wide = (k.n.of(size) for size in windows.sizes)
    loops = WindowLoops(
        k.f, k.n, windows.rows, windows.columns, (height, wide, out_height, out_wide), channels,
        sources, k.results, body, min(width, TILE_WINDOWS.value),
    )  # fmt: skip

    def unit(number: Value, _: list[Value]) -> list[Value]:
        loops.row(number)
        return []

    k.f.loop_if_any(k.first, k.last, 1, unit)
    taps = windows.rows.kernel * windows.columns.kernel
    nbytes = (windows.inputs + windows.outputs) * channels.element.nbytes
    units, work = windows.batch * windows.rows.count, windows.outputs * taps * flops
    return Call(NativeKernel([named(k.f)], units, work, nbytes), k.arguments)


def renamed(call: Call, names: Mapping[str, str]) -> Call:
    """The call with other names of arrays."""
    arguments = call.arguments
    replaced = (
        names.get(argument, argument) if isinstance(argument, str) else argument
        for argument in arguments
    )
    return Call(call.kernel, tuple(replaced))
