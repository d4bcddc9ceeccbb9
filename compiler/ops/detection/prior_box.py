"""Prior boxes (anchors): several sizes and aspect ratios at each position of a feature map.

Boxes are (x1, y1, x2, y2). None has a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import Attr, OpDef, Slots, attr, attr_list, reads, required_list, writes
from compiler.ir.opdef.attribute_bounds import FLOAT32, POSITIVE, between
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.detection.prior_box_kernels import image_coordinates, priors, spread
from compiler.ops.image.layouts import require_images
from compiler.ops.shared_kernels import too_many

SAME_RATIO = 1e-6
"""Aspect ratios closer than this are equal."""


def expanded_ratios(ratios: Sequence[float], flip: bool) -> list[float]:
    """Return 1 and the distinct ratios, and the inverse of each if `flip`."""
    expanded = [1.0]
    for ratio in ratios:
        if all(abs(ratio - other) >= SAME_RATIO for other in expanded):
            expanded += [ratio, 1 / ratio] if flip else [ratio]
    return expanded


def prior_sizes(
    smallest: Sequence[float], largest: Sequence[float], ratios: Sequence[float], square_first: bool
) -> list[tuple[float, float]]:
    """Return width and height of each box at a position: minimum sizes, and √(min·max)."""
    shapes: list[tuple[float, float]] = []
    for number, size in enumerate(smallest):
        between = (size * largest[number]) ** 0.5 if largest else 0.0
        middle = [(between, between)] if largest else []
        shaped = [(size * ratio**0.5, size / ratio**0.5) for ratio in ratios]
        if square_first:
            others = [s for s, ratio in zip(shaped, ratios, strict=True) if not is_one(ratio)]
            shapes += [(size, size), *middle, *others]
        else:
            shapes += [*shaped, *middle]
    return shapes


def is_one(ratio: float) -> bool:
    """True for the aspect ratio of a square."""
    return abs(ratio - 1.0) < SAME_RATIO


def centres(
    sizes: Sequence[int], image: Sequence[int], steps: Sequence[float], offset: float
) -> tuple[Array, Array, list[float]]:
    """Return image x and y of the positions of a feature map, both [H, W], and the steps."""
    height, width = sizes
    down = steps[0] or image[0] / height
    right = steps[1] or image[1] / width
    y, x = np.meshgrid(
        (np.arange(height) + offset) * down, (np.arange(width) + offset) * right, indexing="ij"
    )
    return x, y, [down, right]


def spread_variances(variances: Sequence[float], boxes: Array) -> Array:
    """Broadcast the variances of a box to all boxes."""
    return np.broadcast_to(np.array(variances, boxes.dtype), boxes.shape).copy()


class Priors(OpDef):
    """Boxes [H, W, priors, 4] at each position of a feature map, and Variances of that shape."""

    results: ClassVar[tuple[str, str]] = ("Boxes", "Variances")
    Input = reads(no_grad=True)
    variances: Attr[list[float]] = required_list(float)
    offset = attr(0.5)

    def output_types(self, Input: TensorType, count: int) -> dict[str, TensorType]:
        """Return the types of the outputs for `count` boxes per position."""
        require_images(self.kind, "Input", Input)
        if 0 in Input.shape[2:]:
            raise ShapeError(f"{self.kind}: Input is {Input}, expected positions")
        if len(self.variances) != 4 or min(self.variances) <= 0:
            expected = "expected 4 positive numbers"
            raise BadAttribute(f"{self.kind}: variances is {self.variances}, {expected}")
        boxes = Input.with_shape((*Input.shape[2:], count, 4))
        return dict.fromkeys(self.results, boxes)


class PriorBox(Priors, op="prior_box"):
    """Boxes of every size and aspect ratio at each position, as fractions of the Image.

    A step of 0 is replaced by the image size over that of the feature map. Reference:
    prior_box_op.h.
    """

    Image = reads(no_grad=True)
    Boxes = writes()
    Variances = writes()
    min_sizes: Attr[list[float]] = required_list(float, POSITIVE)
    max_sizes = attr_list(float)
    aspect_ratios = attr_list(float, POSITIVE)
    flip = attr(True)
    clip = attr(True)
    step_w = attr(0.0, between(0.0, FLOAT32))
    step_h = attr(0.0, between(0.0, FLOAT32))
    min_max_aspect_ratios_order = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        require_images(self.kind, "Image", s.Image)
        if self.max_sizes and len(self.max_sizes) != len(self.min_sizes):
            actual = f"prior_box: max_sizes is {self.max_sizes}"
            raise BadAttribute(f"{actual}, expected one for each of min_sizes {self.min_sizes}")
        ratios = len(expanded_ratios(self.aspect_ratios, self.flip))
        return self.output_types(s.Input, ratios * len(self.min_sizes) + len(self.max_sizes))

    def numpy(self, Input: Array, Image: Array) -> dict[str, Array]:
        image, steps = Image.shape[2:], (self.step_h, self.step_w)
        x, y, _ = centres(Input.shape[2:], image, steps, self.offset)
        ratios = expanded_ratios(self.aspect_ratios, self.flip)
        order = self.min_max_aspect_ratios_order
        sizes = np.array(prior_sizes(self.min_sizes, self.max_sizes, ratios, order)) / 2
        edges = [
            (x[..., None] - sizes[:, 0]) / image[1],
            (y[..., None] - sizes[:, 1]) / image[0],
            (x[..., None] + sizes[:, 0]) / image[1],
            (y[..., None] + sizes[:, 1]) / image[0],
        ]
        boxes = np.stack(edges, axis=-1).astype(Input.dtype)
        boxes = np.clip(boxes, 0, 1) if self.clip else boxes
        return {"Boxes": boxes, "Variances": spread_variances(self.variances, boxes)}

    def halves(self) -> list[tuple[float, float, float, float]]:
        """Return the edges of each box relative to its position."""
        ratios = expanded_ratios(self.aspect_ratios, self.flip)
        order = self.min_max_aspect_ratios_order
        sizes = prior_sizes(self.min_sizes, self.max_sizes, ratios, order)
        return [(-w / 2, -h / 2, w / 2, h / 2) for w, h in sizes]

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        sizes, steps = s.Input.shape[2:], (self.step_h, self.step_w)
        position = image_coordinates(k, sizes, s.Image.shape[2:], steps, self.offset)
        clip = (0.0, 1.0) if self.clip else None
        priors(k, self.halves(), sizes, position, s.Image.shape[2:], clip, s.get("Boxes"))
        spread(k, self.variances, s.get("Variances"))

    def host_only(self, types: Mapping[str, Any]) -> str:
        return too_many(len(self.halves()))


class DensityPriorBox(Priors, op="density_prior_box"):
    """Boxes of fixed sizes and ratios, `densities`² of each evenly spaced at each position.

    They are fractions of the Image, clipped to it; `flatten_to_2d` reshapes them to [boxes, 4].
    Reference: density_prior_box_op.h.
    """

    Image = reads(no_grad=True)
    Boxes = writes()
    Variances = writes()
    clip = attr(True)
    flatten_to_2d = attr(False)
    step_w = attr(0.0, between(0.0, FLOAT32))
    step_h = attr(0.0, between(0.0, FLOAT32))
    fixed_sizes = attr_list(float, POSITIVE)
    fixed_ratios = attr_list(float, POSITIVE)
    densities = attr_list(int, between(1, 256))

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input = s.Input
        require_images(self.kind, "Image", s.Image)
        if len(self.fixed_sizes) != len(self.densities):
            actual = f"density_prior_box: densities is {self.densities}"
            raise BadAttribute(f"{actual}, expected one for each of fixed_sizes {self.fixed_sizes}")
        count = sum(density * density for density in self.densities) * len(self.fixed_ratios)
        result = self.output_types(Input, count)
        if not self.flatten_to_2d:
            return result
        rows = Input.with_shape((Input.shape[2] * Input.shape[3] * count, 4))
        return dict.fromkeys(result, rows)

    def numpy(self, Input: Array, Image: Array) -> dict[str, Array]:
        image, steps = Image.shape[2:], (self.step_h, self.step_w)
        x, y, between = centres(Input.shape[2:], image, steps, self.offset)
        settings = (self.fixed_sizes, self.densities, self.fixed_ratios)
        positions = np.array(dense_offsets(*settings, int(sum(between) * 0.5)))
        right, down, half_width, half_height = positions.T
        edges = [
            np.maximum((x[..., None] + right - half_width) / image[1], 0),
            np.maximum((y[..., None] + down - half_height) / image[0], 0),
            np.minimum((x[..., None] + right + half_width) / image[1], 1),
            np.minimum((y[..., None] + down + half_height) / image[0], 1),
        ]
        boxes = np.stack(edges, axis=-1).astype(Input.dtype)
        boxes = np.clip(boxes, 0, 1) if self.clip else boxes
        boxes = boxes.reshape(-1, 4) if self.flatten_to_2d else boxes
        return {"Boxes": boxes, "Variances": spread_variances(self.variances, boxes)}

    def around(self, Input: Shape, Image: Shape) -> list[tuple[float, float, float, float]]:
        """Return the edges of each box around its position; empty if required sizes are symbolic.

        They are all within the image, so that clipping changes nothing.
        """
        pairs = zip((self.step_h, self.step_w), Image[2:], Input[2:], strict=True)
        steps = [step or (of / by if isinstance(of, int) and isinstance(by, int) else 0.0)
                 for step, of, by in pairs]  # fmt: skip
        settings = (self.fixed_sizes, self.densities, self.fixed_ratios)
        positions = dense_offsets(*settings, int(sum(steps) * 0.5)) if all(steps) else []
        return [(x - w, y - h, x + w, y + h) for x, y, w, h in positions]

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Image = s.Image
        Boxes = s.get("Boxes")
        sizes, steps = s.Input.shape[2:], (self.step_h, self.step_w)
        position = image_coordinates(k, sizes, Image.shape[2:], steps, self.offset)
        around = self.around(s.Input.shape, Image.shape)
        view = Boxes and Boxes.reshaped((*sizes, len(around), 4))
        priors(k, around, sizes, position, Image.shape[2:], (0.0, 1.0), view)
        spread(k, self.variances, s.get("Variances"))

    def host_only(self, types: Mapping[str, Any]) -> str:
        boxes = self.around(types["Input"].shape, types["Image"].shape)
        return too_many(len(boxes)) if boxes else "boxes depend on symbolic sizes"


def dense_offsets(
    sizes: Sequence[float], densities: Sequence[int], ratios: Sequence[float], step: int
) -> list[tuple[float, float, float, float]]:
    """Return for each box at a position: offset right and down, half its width and height."""
    offsets: list[tuple[float, float, float, float]] = []
    for size, density in zip(sizes, densities, strict=True):
        shift = step // density
        first = shift / 2 - step / 2
        for ratio in ratios:
            half = (size * ratio**0.5 / 2, size / ratio**0.5 / 2)
            offsets += [
                (first + column * shift, first + row * shift, *half)
                for row in range(density)
                for column in range(density)
            ]
    return offsets


class AnchorGenerator(Priors, op="anchor_generator"):
    """Boxes of every aspect ratio and size at each position, in image coordinates.

    `stride` is the step between positions to the right and down. Reference: anchor_generator_op.h.
    """

    results = ("Anchors", "Variances")
    Anchors = writes()
    Variances = writes()
    anchor_sizes = attr_list(float, POSITIVE)
    aspect_ratios = attr_list(float, POSITIVE)
    stride = attr_list(float, POSITIVE)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        if len(self.stride) != 2 or min(self.stride) <= 0:
            expected = "expected two positive steps, right and down"
            raise BadAttribute(f"anchor_generator: stride is {self.stride}, {expected}")
        return self.output_types(s.Input, len(self.anchor_sizes) * len(self.aspect_ratios))

    def numpy(self, Input: Array) -> dict[str, Array]:
        (right, down), (height, width) = self.stride, Input.shape[2:]
        x: Array = np.arange(int(width)) * right + self.offset * (right - 1)
        y: Array = np.arange(int(height))[:, None] * down + self.offset * (down - 1)
        sizes = np.array(anchor_shapes(self.anchor_sizes, self.aspect_ratios, self.stride))
        wide, tall = (sizes.T - 1) / 2
        shape = (height, width, len(sizes))
        edges = [
            np.broadcast_to(position[..., None] + shift, shape)
            for position, shift in ((x, -wide), (y, -tall), (x, wide), (y, tall))
        ]
        boxes = np.stack(edges, axis=-1).astype(Input.dtype)
        return {"Anchors": boxes, "Variances": spread_variances(self.variances, boxes)}

    def halves(self) -> list[tuple[float, float, float, float]]:
        """Return the edges of each anchor relative to its position."""
        sizes = anchor_shapes(self.anchor_sizes, self.aspect_ratios, self.stride)
        pairs = [((wide - 1) / 2, (tall - 1) / 2) for wide, tall in sizes]
        return [(-w, -h, w, h) for w, h in pairs]

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        def position(axis: int, at: Number) -> Number:
            step = self.stride[axis]
            return k.astype(at, DType.FP64) * step + self.offset * (step - 1)

        priors(k, self.halves(), s.Input.shape[2:], position, None, None, s.get("Anchors"))
        spread(k, self.variances, s.get("Variances"))

    def host_only(self, types: Mapping[str, Any]) -> str:
        return too_many(len(self.halves()))


def anchor_shapes(
    sizes: Sequence[float], ratios: Sequence[float], stride: Sequence[float]
) -> list[tuple[float, float]]:
    """Return width and height of each anchor at a position."""
    shapes: list[tuple[float, float]] = []
    for ratio in ratios:
        width = int((stride[0] * stride[1] / ratio) ** 0.5 + 0.5)
        height = int(width * ratio + 0.5)
        shapes += [(size / stride[0] * width, size / stride[1] * height) for size in sizes]
    return shapes
