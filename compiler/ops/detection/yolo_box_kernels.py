"""Device kernels of YOLOv3: one program per position and anchor of a head, or per element."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.detection.box_coder_kernels import Box, real
from compiler.ops.shared_kernels import listed
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Head:
    """A head X [N, anchors·(5 + classes), H, W] and its units.

    `cells` is the grid size of an image, `size` its side in the units of the anchors.
    """

    X: DeviceOperand
    anchors: Sequence[tuple[float, float]]
    classes: int
    scale: float
    cells: Size
    size: Size

    @property
    def positions(self) -> tuple[Size, int, Size, Size]:
        """Sizes: images, anchors, rows and columns."""
        batch, _, height, width = self.X.shape
        return batch, len(self.anchors), height, width

    def load(self, at: Sequence[Number], entry: Number, where: Number | None = None) -> Number:
        """Load a channel of the head at image, anchor, row and column; 0 where `where` is false."""
        n, anchor, row, column = at
        channel = anchor * (5 + self.classes) + entry
        return self.X.at(n, channel, row, column, where=where, other=0)

    def box(self, k: KernelBuilder, at: Sequence[Number]) -> Box:
        """Return centre and sides of a predicted box, as fractions of the image."""
        _, anchor, row, column = at
        shift, cells = -0.5 * (self.scale - 1), real(k, self.cells)
        box: list[Number] = []
        for entry, position in enumerate((column, row)):
            near = self.scale * sigmoid(k, self.load(at, entry)) + shift
            box.append((k.astype(position, DType.FP64) + near) / cells)
        for axis in (0, 1):
            lengths = [pair[axis] for pair in self.anchors]
            length = listed(k, anchor, lengths, DType.FP64)
            box.append(k.exp(self.load(at, 2 + axis)) * length / real(k, self.size))
        return box


def sigmoid(k: KernelBuilder, x: Number) -> Number:
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + k.exp(-x))


def boxes(
    k: KernelBuilder,
    head: Head,
    images: DeviceOperand,
    threshold: float,
    clip: bool,
    out: DeviceOperand,
) -> None:
    """Emit a kernel for the edges of all boxes in image coordinates, 0 below the threshold.

    `images` [N, 2] has the height and the width of each.
    """
    at = k.grid(*head.positions)
    unlikely = sigmoid(k, head.load(at, 4)) < threshold
    box = head.box(k, at)
    for axis in (0, 1):
        side = k.astype(images[at[0], 1 - axis], DType.FP64)
        middle, half = box[axis] * side, box[axis + 2] * side / 2.0
        low, high = middle - half, middle + half
        if clip:
            low, high = k.maximum(low, 0.0), k.minimum(high, side - 1.0)
        view = out.reshaped((*head.positions, 4))
        k.store(view, (*at, axis), k.where(unlikely, 0.0, low))
        k.store(view, (*at, axis + 2), k.where(unlikely, 0.0, high))


def scores(k: KernelBuilder, head: Head, threshold: float, out: DeviceOperand) -> None:
    """Emit a kernel for the score of each box and class."""
    *at, of = k.grid(*head.positions, head.classes)
    objectness = sigmoid(k, head.load(at, 4))
    likely = k.where(objectness < threshold, 0.0, objectness) * sigmoid(k, head.load(at, 5 + of))
    k.store(out.reshaped((*head.positions, head.classes)), (*at, of), likely)
