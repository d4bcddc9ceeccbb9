"""Convolution of images [N, H, W, C] with filters of 3 × 3 taps by Winograd's algorithm.

Tiles of m × m results cost (m + 2)² products instead of 9 m². Tiles of all images in row-major
order are cut into blocks of rows of tiles, so that a block's transformed elements stay in the
second cache between its three phases: transform the image, multiply, transform the products.
"""

from __future__ import annotations

from compiler.codegen.native.images.results import NO_EPILOGUE
from compiler.codegen.native.images.transposes import transpose
from compiler.codegen.native.images.winograd_kernels import (
    filter_kernel,
    image_kernel,
    result_kernel,
)
from compiler.codegen.native.images.winograd_tiles import BLOCK, WinogradTiles
from compiler.codegen.native.llvm_ir import F32, I32, I64, Type
from compiler.codegen.native.machine import AVX512, Machine
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.ir.dims import Size
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

__all__ = ["BLOCK", "BlockedSteps", "pays", "winograd"]


MIN_CHANNELS = threshold(
    "winograd_channels", 16, "channels",
    "convolutions with fewer channels or filters do not use Winograd's algorithm", small=3,
)  # fmt: skip
TRANSFORMS = threshold(
    "winograd_transforms", 100, "percent of their cost",
    "transforms cost so much where Winograd's algorithm is compared with direct convolution",
    small=5,
)  # fmt: skip
OPEN = threshold(
    "winograd_open_size", 32, "rows and columns", "images of open size are assumed to have so many",
    small=6,
)  # fmt: skip


@dataclass(frozen=True)
class BlockedSteps(Steps):
    """Kernels in order, `calls` for each BLOCK = 0 … `blocks` - 1, an open size of theirs."""

    blocks: Size = 1


_TO_HWIO = {"OIHW": ("FC", (2, 3, 1, 0)), "IOHW": ("CF", (2, 3, 0, 1))}
"""The shape of filters before their taps, and the order of axes that makes them HWIO."""


def winograd(
    machine: Machine, element: Type, batch: Size, height: Size, width: Size, channels: int,
    filters: int, *, m: int = 4, padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    layout: str = "OIHW", flipped: bool = False, epilogue: Epilogue = NO_EPILOGUE,
) -> BlockedSteps:  # fmt: skip
    """Kernels of a convolution with stride 1; m is 4 or 2, `padding` is top, bottom, left, right.

    Operands: "images" [N, H, W, C], "filters", "out" [N, OH, OW, F], those of the epilogue;
    scratch: "packed", "tiles", "products", and "taps" unless the layout is HWIO. `layout` is OIHW,
    IOHW or HWIO; `flipped` reverses the taps. The gradient by images of a convolution is this with
    C and F exchanged, layout IOHW for OIHW, flipped, and 2 - padding.
    """
    tiles = WinogradTiles.make(
        machine, element, m, batch, (height, width), padding, channels, filters
    )
    prepare: list[Call] = []
    scratch: dict[str, Size] = {"packed": tiles.packed_size}
    source = "filters"
    if layout != "HWIO":
        source, scratch["taps"] = "taps", 9 * channels * filters
        names, order = _TO_HWIO[layout]
        shape = (*({"F": filters, "C": channels}[name] for name in names), 3, 3)
        integer = I32 if element.nbytes == 4 else I64
        prepare += transpose(machine, integer, shape, order, "filters", "taps").calls
    prepare.append(filter_kernel(tiles, source, flipped))
    scratch |= {"tiles": tiles.tiles_size, "products": tiles.products_size}
    product = contraction_kernel(tiles.contraction, machine, tiles.tiling)
    product = Call(product.kernel, ("tiles", "packed", "products", *product.arguments[3:]))
    calls = (image_kernel(tiles), product, result_kernel(tiles, epilogue))
    return BlockedSteps(calls, tuple(prepare), scratch, tiles.blocks)


def pays(N: Size, C: int, H: Size, W: Size, F: int, machine: Machine = AVX512) -> int:
    """The m of the fastest algorithm for padding 1: 4 or 2, or 0 for direct convolution.

    Images of open size are assumed to have OPEN rows and columns.

    A cost in vector operations: products of either algorithm, or the reading of filters from memory
    where that takes longer; loads, operations and stores of the transforms.
    """
    if min(C, F) < MIN_CHANNELS.value:
        return 0
    height, width = (size if isinstance(size, int) else OPEN.value for size in (H, W))
    lanes, images = machine.lanes(F32), N if isinstance(N, int) else 1
    channels, filters = -(-C // lanes), -(-F // lanes)
    transforms = TRANSFORMS.value / 100
    costs = {0: float(9 * C * filters * max(images * height * width, _READ))}
    for m in (4, 2):
        tiles = images * -(-height // m) * -(-width // m)
        image, result = _TRANSFORMS[m]
        products = (m + 2) ** 2 * C * filters * max(1.1 * tiles, _READ)
        costs[m] = products + tiles * (image * channels + result * filters) * transforms
    return min(costs, key=lambda each: costs[each])


_READ = 10.0
"""The cost of a vector of filters from memory, in vector multiplications."""

_TRANSFORMS = {4: (324.0, 228.0), 2: (96.0, 66.0)}
"""The cost of a tile's transforms for each vector of channels: the image's, the results'."""
