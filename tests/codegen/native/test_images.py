"""Depthwise convolution and pooling as native kernels, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.codegen.native.images.depthwise import depthwise
from compiler.codegen.native.images.depthwise_gradient import (
    depthwise_filter_gradient,
    depthwise_image_gradient,
)
from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.images.pooling import pool, pool_gradient
from compiler.codegen.native.images.positions import known_tiles, taps_inside
from compiler.codegen.native.images.sliding import ImageWindows
from compiler.codegen.native.images.vectors import Channels
from compiler.codegen.native.llvm_ir import F32, F64, Type
from compiler.codegen.native.machine import NEON, Machine
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.dims import Dim
from compiler.ir.graph import Graph
from compiler.ir.types import DType, TensorType
from compiler.ir.windows import StaticWindow
from compiler.ops.image import pool_numpy
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.support import image_kernels as support
from tests.support.compiled_kernels import assembly, on_machines

NUMPY = {F32: np.float32, F64: np.float64}


def axis(size: int, kernel: int, stride: int, dilation: int, before: int, after: int | None = None,
         ceil: bool = False) -> StaticWindow:  # fmt: skip
    """A window at as many positions as fit."""
    after = before if after is None else after
    room = size + before + after - dilation * (kernel - 1) - 1
    count = (room + ceil * (stride - 1)) // stride + 1
    return StaticWindow(size, kernel, stride, dilation, before, after, count)


def opened(windows: ImageWindows) -> tuple[ImageWindows, dict[str, int]]:
    """The same windows with every size of images open, and the sizes' numbers."""
    rows, columns = windows.rows, windows.columns
    sizes = {"N": windows.batch, "H": rows.size, "W": columns.size}
    sizes |= {"OH": rows.count, "OW": columns.count}
    results = {name: Dim.named(name) for name in sizes}
    rows = replace(rows, size=results["H"], count=results["OH"])
    columns = replace(columns, size=results["W"], count=results["OW"])
    return replace(windows, batch=results["N"], rows=rows, columns=columns), sizes


def activated(element: Type) -> Epilogue:
    """min(max(bias + sum + residual, 0), 6); a NaN stays one."""
    operands = (
        EpilogueOperand("bias", element, (0, 0, 0, 1)),
        EpilogueOperand("residual", element),
    )

    def finish(f, values, place):
        value = f.add(values[0], place.load("residual"))
        low, high = f.constant(value.type, 0.0), f.constant(value.type, 6.0)
        value = f.select(f.compare("olt", value, low), low, value)
        return [f.select(f.compare("ogt", value, high), high, value)]

    return Epilogue("relu6", operands, finish, start="bias")


def empty(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.full(shape, np.nan, dtype)


def convolved(images: np.ndarray, filters: np.ndarray, rows: StaticWindow, columns: StaticWindow):
    """A depthwise convolution tap by tap, in float64; the absent positions add nothing."""
    N, _, _, C = images.shape
    multiplier = filters.shape[0] // C
    output = np.zeros((N, rows.count, columns.count, filters.shape[0]))
    images = images.astype(np.float64).repeat(multiplier, axis=3)
    for y in range(rows.count):
        for x in range(columns.count):
            for r in range(rows.kernel):
                for u in range(columns.kernel):
                    i, j = rows.element(y, r), columns.element(x, u)
                    if i is None or j is None:
                        continue
                    if 0 <= i < rows.size and 0 <= j < columns.size:
                        output[:, y, x] += images[:, i, j] * filters[:, 0, r, u]
    return output


# N, H, W, C, kernel, stride, dilation, padding before, padding after, filters per channel
DEPTHWISE = {
    "same padding": (2, 9, 11, 24, 3, 1, 1, 1, 1, 1),
    "stride 2, rest of channels": (1, 7, 7, 19, 3, 2, 1, 1, 1, 1),
    "5x5, one side padded": (1, 13, 30, 5, 5, 2, 1, 2, 0, 1),
    "dilation, two filters": (2, 9, 11, 10, 3, 1, 2, 2, 2, 2),
    "three filters": (1, 9, 11, 6, 3, 1, 1, 1, 1, 3),
    "more padding than taps": (1, 4, 5, 33, 2, 1, 1, 3, 4, 1),
    "long rows": (1, 5, 67, 16, 7, 1, 1, 3, 3, 1),
    "stride above kernel": (1, 10, 23, 17, 2, 3, 1, 0, 0, 1),
}


@on_machines
@pytest.mark.parametrize("element", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("case", DEPTHWISE.values(), ids=DEPTHWISE)
def test_depthwise_is_the_sum_of_products(
    machine: Machine, element: Type, is_open: bool, case
) -> None:
    N, H, W, C, kernel, stride, dilation, before, after, multiplier = case
    random = np.random.default_rng(0)
    rows, columns = (axis(size, kernel, stride, dilation, before, after) for size in (H, W))
    known = ImageWindows(N, rows, columns, Channels(machine, element, C * multiplier))
    windows, sizes = opened(known) if is_open else (known, {})
    shape, dtype = (N, rows.count, columns.count, C * multiplier), NUMPY[element]
    arrays = {
        "images": random.normal(size=(N, H, W, C)).astype(dtype),
        "filters": random.normal(size=(C * multiplier, 1, kernel, kernel)).astype(dtype),
        "bias": random.normal(size=C * multiplier).astype(dtype),
        "residual": random.normal(size=shape).astype(dtype),
        "out": empty(*shape, dtype=dtype),
    }
    sequence = depthwise(windows, multiplier, activated(element))
    [actual] = support.run(sequence, machine, arrays, sizes=sizes)
    expected = convolved(arrays["images"], arrays["filters"], rows, columns)
    expected = np.clip(expected + arrays["bias"] + arrays["residual"], 0, 6)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-5 if element == F32 else 1e-12)


@on_machines
@pytest.mark.parametrize("element", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("case", DEPTHWISE.values(), ids=DEPTHWISE)
def test_depthwise_gradients(machine: Machine, element: Type, is_open: bool, case) -> None:
    """The gradients of a linear function: sum(d_out * conv(x, w)) is linear in x and in w."""
    N, H, W, C, kernel, stride, dilation, before, after, multiplier = case
    random, dtype = np.random.default_rng(0), NUMPY[element]
    rows, columns = (axis(size, kernel, stride, dilation, before, after) for size in (H, W))
    known = ImageWindows(N, rows, columns, Channels(machine, element, C * multiplier))
    windows, sizes = opened(known) if is_open else (known, {})
    images = random.normal(size=(N, H, W, C)).astype(dtype)
    filters = random.normal(size=(C * multiplier, 1, kernel, kernel)).astype(dtype)
    d_out = random.normal(size=(N, rows.count, columns.count, C * multiplier)).astype(dtype)
    d_images, d_filters = np.zeros((N, H, W, C)), np.zeros(filters.shape)
    for y, x, r, u in np.ndindex(rows.count, columns.count, kernel, kernel):
        i, j = rows.element(y, r), columns.element(x, u)
        if 0 <= i < H and 0 <= j < W:
            pixel = images[:, i, j].astype(np.float64).repeat(multiplier, axis=1)
            d_filters[:, 0, r, u] += (pixel * d_out[:, y, x]).sum(axis=0)
            share = filters[:, 0, r, u].astype(np.float64) * d_out[:, y, x]
            d_images[:, i, j] += share.reshape(N, C, multiplier).sum(axis=2)
    arrays = {"images": images, "filters": filters, "d_out": d_out}
    tolerance = 1e-4 if element == F32 else 1e-12
    inputs = arrays | {"d_images": np.full_like(images, np.nan)}
    steps = depthwise_image_gradient(windows, multiplier)
    [result] = support.run(steps, machine, inputs, ["d_images"], sizes)
    np.testing.assert_allclose(result, d_images, atol=tolerance)
    inputs = arrays | {"d_filters": np.full_like(filters, np.nan)}
    steps = depthwise_filter_gradient(windows, multiplier)
    [result] = support.run(steps, machine, inputs, ["d_filters"], sizes)
    np.testing.assert_allclose(result, d_filters, atol=tolerance)


@on_machines
def test_depthwise_propagates_nan(machine: Machine) -> None:
    """A NaN reaches the windows that cover it, through the activation, and no others."""
    rows = axis(9, 3, 1, 1, 1)
    images = np.ones((1, 9, 9, 20), np.float32)
    images[0, 4, 4, 7] = np.nan
    arrays = {"images": images, "filters": np.ones((20, 1, 3, 3), np.float32)}
    arrays["out"] = empty(1, 9, 9, 20)
    windows = ImageWindows(1, rows, rows, Channels(machine, F32, 20))
    arrays |= {"bias": np.zeros(20, np.float32), "residual": np.zeros((1, 9, 9, 20), np.float32)}
    sequence = depthwise(windows, epilogue=activated(F32))
    [actual] = support.run(sequence, machine, arrays)
    assert actual[0, 1, 1, 0] == 6
    expected = np.zeros((1, 9, 9, 20), bool)
    expected[0, 3:6, 3:6, 7] = True
    assert (np.isnan(actual) == expected).all()


# N, H, W, C, kernel, stride, padding, ceil_mode
POOLS = {
    "3x3 by 2": (2, 9, 11, 24, 3, 2, 1, False),
    "3x3 by 1": (1, 7, 7, 19, 3, 1, 1, False),
    "2x2, ceil": (1, 13, 31, 5, 2, 2, 0, True),
    "3x3 by 3, ceil": (2, 10, 11, 8, 3, 3, 0, True),
    "5x5 by 3": (1, 9, 31, 6, 5, 3, 2, True),
    "gaps": (1, 9, 13, 17, 2, 3, 0, False),
}


def pooled(images: np.ndarray, windows: ImageWindows, largest: bool, divisor: int, upstream=None):
    """The pooling of the op's reference implementation, or its gradient."""
    cells = [
        [pool_numpy.covered(i * a.stride - a.before, i * a.stride - a.before + a.kernel, a.size)
         for i in range(a.count)]
        for a in (windows.rows, windows.columns)
    ]  # fmt: skip
    images = images.transpose(0, 3, 1, 2)
    result = pool_numpy.pool_cells(images, cells, largest, divisor)
    if upstream is not None:
        upstream, maxima = upstream.transpose(0, 3, 1, 2), result if largest else None
        result = pool_numpy.pool_cells_gradient(images, maxima, upstream, cells, divisor)
    return np.ascontiguousarray(result.transpose(0, 2, 3, 1))


def pool_windows(machine: Machine, element: Type, case) -> ImageWindows:
    N, H, W, C, kernel, stride, padding, ceil = case
    rows, columns = (axis(size, kernel, stride, 1, padding, None, ceil) for size in (H, W))
    return ImageWindows(N, rows, columns, Channels(machine, element, C))


@on_machines
@pytest.mark.parametrize("element", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS)
def test_pooling_is_that_of_the_op(machine: Machine, element: Type, is_open: bool, case) -> None:
    known = pool_windows(machine, element, case)
    windows, sizes = opened(known) if is_open else (known, {})
    N, H, W, C, kernel = case[:5]
    random, dtype = np.random.default_rng(0), NUMPY[element]
    images = random.integers(-3, 3, size=(N, H, W, C)).astype(dtype)
    shape = (N, known.rows.count, known.columns.count, C)
    plain = {"images": images, "d_out": random.normal(size=shape).astype(dtype)}
    special = images.copy()
    special[0, 2, 2, :3], special[0, 5:, 5:, 1], special[0, :2, :2, 2] = np.nan, -np.inf, np.inf
    for largest, divisor in ((True, 0), (False, 0), (False, kernel * kernel)):
        inputs = {"images": special, "out": empty(*shape, dtype=dtype)}
        [actual] = support.run(pool(windows, largest, divisor), machine, inputs, sizes=sizes)
        with np.errstate(invalid="ignore"):
            expected = pooled(special, known, largest, divisor)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
        arrays = plain | {"out": pooled(images, known, largest, divisor)}
        arrays["d_images"] = empty(N, H, W, C, dtype=dtype)
        sequence = pool_gradient(windows, largest, divisor)
        [actual] = support.run(sequence, machine, arrays, ["d_images"], sizes)
        expected = pooled(images, known, largest, divisor, arrays["d_out"])
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


# columns, their windows' kernel and stride: too many taps to unroll
WIDE = {"whole rows": (1100, 1100, 1), "overlapping": (400, 300, 7), "adjacent": (2100, 1050, 1050)}


@on_machines
@pytest.mark.parametrize("case", WIDE.values(), ids=WIDE)
def test_code_of_wide_windows_is_a_loop_over_their_taps(machine: Machine, case) -> None:
    size, kernel, stride = case
    columns = StaticWindow.fitting(size, kernel, stride)
    windows = ImageWindows(2, axis(5, 3, 2, 1, 0), columns, Channels(machine, F32, 5))
    images = np.random.default_rng(0).normal(size=(2, 5, size, 5)).astype(np.float32)
    shape = (2, 2, columns.count, 5)
    upstream = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    for largest in (True, False):
        steps, output = pool(windows, largest), pooled(images, windows, largest, 0)
        [actual] = support.run(steps, machine, {"images": images, "out": empty(*shape)})
        np.testing.assert_allclose(actual, output, rtol=1e-5, atol=1e-6)
        backward = pool_gradient(windows, largest)
        arrays = {"images": images, "out": output, "d_out": upstream}
        arrays["d_images"] = np.full_like(images, np.nan)
        [actual] = support.run(backward, machine, arrays, ["d_images"])
        expected = pooled(images, windows, largest, 0, upstream)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        for call in (*steps.calls, *backward.calls):
            assert len(call.kernel.text()) < 30_000


AXES = [
    StaticWindow(*sizes[:5], 0, sizes[5], up)
    for sizes in [
        (61, 3, 1, 1, 1, 61), (61, 3, 2, 1, 0, 30), (61, 5, 3, 2, 4, 21), (7, 2, 1, 1, 3, 12),
        (1, 9, 1, 1, 8, 9), (30, 4, 1, 3, 5, 31), (8, 3, 1, 1, 2, 25),
    ]
    for up in (1, 2, 6)
]  # fmt: skip


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_the_tiles_of_an_axis_have_all_taps_inside_it(axis: StaticWindow) -> None:
    met = [
        (x, u, place)
        for x in range(axis.count)
        for u in range(axis.kernel)
        if (place := axis.element(x, u)) is not None and 0 <= place < axis.size
    ]
    actual = [
        (tile.first + k * tile.width + p, u, tile.base + k * tile.step + place)
        for tile in known_tiles(axis, 4)
        for k in range(tile.number)
        for place, pairs in tile.uses
        for p, u in pairs
    ]
    assert sorted(actual) == met
    n = Integers(None)
    for x in range(axis.count):
        first, end, element = taps_inside(axis, n, x, axis.size)
        taps = range(first, end, axis.period)
        expected = [(u, place) for window, u, place in met if window == x]
        places = [element + k * axis.advance for k in range(len(taps))]
        assert [*zip(taps, places, strict=True)] == expected


def test_tiles_are_computed_without_enumerating_the_axis() -> None:
    size = 1 << 40
    assert [tile.number for tile in known_tiles(StaticWindow(size, 3, 1, 1, 1, 1, size), 8)] == [
        1, size // 8 - 2, 1,
    ]  # fmt: skip
    for axis in (
        StaticWindow(6, 3, 1, 1, size, 0, 2 * size),  # padding
        StaticWindow(6, 3, 1, size, 0, 0, 2 * size),  # dilation
        StaticWindow(2 * size, 2, 1, size, size, 0, 2 * size),  # taps far apart
        StaticWindow(6, 3, 1, 1, 0, 0, 5 * size, size),  # stride of a gradient
    ):
        assert len(known_tiles(axis, 8) or ()) < 8
    assert known_tiles(StaticWindow(size, size, 1, 1, 0, 0, 1), 8) is None
    assert known_tiles(StaticWindow(1, size, size, 1, 0, 0, size), 8) is None
    window = StaticWindow(1, size, 1, 1, size - 1, 0, size, size)
    assert taps_inside(window, Integers(None), 5, 1)[0] == size - 6


def test_the_gradient_of_wide_depthwise_filters_has_no_sum_in_code_for_each_tap() -> None:
    types = {"Input": (1, 2, 300, 4), "Filter": (4, 1, 1, 200), "Output@GRAD": (1, 2, 101, 4)}
    graph = Graph()
    fed = {s: [graph.feed(s, TensorType(DType.FP32, shape))] for s, shape in types.items()}
    gradients = {f"{s}@GRAD": [graph.var(f"d_{s}", fed[s][0].type)] for s in ("Input", "Filter")}
    graph.op("depthwise_conv2d_grad", fed, gradients, {"groups": 4, "data_format": "NHWC"})
    graph.results = [var for vars in gradients.values() for var in vars]
    target = NativeTarget()
    run_passes(graph, pipeline(Options(), target), Context())
    assert len(target.emit(freeze(graph)).source) < 60_000


@on_machines
def test_a_maximum_that_is_nan_has_no_gradient(machine: Machine) -> None:
    windows = pool_windows(machine, F32, (1, 4, 4, 3, 2, 2, 0, False))
    images = np.ones((1, 4, 4, 3), np.float32)
    images[0, 1, 1, 0] = np.nan
    output = np.ones((1, 2, 2, 3), np.float32)
    output[0, 0, 0, 0] = np.nan
    arrays = {"images": images, "out": output, "d_out": np.ones_like(output)}
    arrays["d_images"] = empty(1, 4, 4, 3)
    [result] = support.run(pool_gradient(windows, True), machine, arrays, ["d_images"])
    assert not result[0, :2, :2, 0].any()
    assert result.sum() == 11


@pytest.mark.parametrize("channels", [144, 21])
def test_kernels_assemble_for_neon(channels: int) -> None:
    windows = pool_windows(NEON, F32, (1, 28, 28, channels, 3, 2, 1, False))
    sequences = [depthwise(windows, epilogue=activated(F32))]
    sequences += [
        make(windows, largest) for make in (pool, pool_gradient) for largest in (True, False)
    ]
    for sequence in sequences:
        for call in (*sequence.prepare, *sequence.calls):
            text = assembly(call.kernel, NEON)
            assert "\tbl\t" not in text, "calls a function"


@on_machines
@pytest.mark.parametrize("channels", [144, 17])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_keeps_its_sums_in_registers(
    machine: Machine, channels: int, stride: int
) -> None:
    rows = axis(56, 3, stride, 1, 1)
    windows = ImageWindows(1, rows, rows, Channels(machine, F32, channels))
    [call] = depthwise(windows, epilogue=activated(F32)).calls
    text = assembly(call.kernel, machine)
    assert "vfmadd" in text
    assert "call" not in text
    assert support.spills_among(text, "vfmadd") == []
