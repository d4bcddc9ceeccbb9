"""Winograd's convolution as native kernels, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.native.images.winograd import pays, winograd
from compiler.codegen.native.llvm_ir import F32, F64, Type
from compiler.codegen.native.machine import NEON, Machine
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.ir.dims import Dim
from tests.support import image_kernels as support
from tests.support.compiled_kernels import assembly, on_machines

# N, H, W, C, F, padding
CASES = {
    "28 rows": (1, 28, 28, 32, 48, (1, 1, 1, 1)),
    "rests everywhere": (2, 11, 13, 19, 35, (1, 1, 1, 1)),
    "no padding": (1, 9, 10, 16, 16, (0, 0, 0, 0)),
    "one side padded": (3, 7, 7, 21, 17, (0, 1, 1, 0)),
    "one row": (2, 1, 5, 3, 4, (1, 1, 1, 1)),
    "several blocks": (2, 40, 40, 40, 64, (1, 1, 1, 1)),
}


def convolved(images: np.ndarray, filters: np.ndarray, padding: tuple[int, ...]) -> np.ndarray:
    """The convolution in float64."""
    top, bottom, left, right = padding
    images = np.pad(images.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = images.shape[1] - 2, images.shape[2] - 2
    return sum(
        images[:, r : r + height, u : u + width] @ filters[:, :, r, u].T.astype(np.float64)
        for r in range(3)
        for u in range(3)
    )


def relu(element: Type) -> Epilogue:
    """max(bias + sum + residual, 0)."""
    operands = (
        EpilogueOperand("bias", element, (0, 0, 0, 1)),
        EpilogueOperand("residual", element),
    )

    def finish(f, values, place):
        value = f.add(values[0], place.load("residual"))
        zero = f.constant(value.type, 0.0)
        return [f.select(f.compare("olt", value, zero), zero, value)]

    return Epilogue("relu", operands, finish, start="bias")


@on_machines
@pytest.mark.parametrize("m", [4, 2])
@pytest.mark.parametrize(("layout", "opened"), [("OIHW", ""), ("HWIO", "N"), ("OIHW", "HW")])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_winograd_is_the_convolution(
    machine: Machine, m: int, layout: str, opened: str, case
) -> None:
    N, H, W, C, F, padding = case
    random = np.random.default_rng(0)
    images = random.normal(size=(N, H, W, C)).astype(np.float32)
    filters = random.normal(size=(F, C, 3, 3)).astype(np.float32)
    expected = convolved(images, filters, padding)
    arrays = {"images": images, "bias": random.normal(size=F).astype(np.float32)}
    arrays["residual"] = random.normal(size=expected.shape).astype(np.float32)
    arrays["filters"] = filters if layout == "OIHW" else filters.transpose(2, 3, 1, 0)
    arrays["out"] = np.full(expected.shape, np.nan, np.float32)
    sizes = {"N": N, "H": H, "W": W}
    inputs = [Dim.named(each) if each in opened else size for each, size in sizes.items()]
    sequence = winograd(
        machine, F32, *inputs, C, F, m=m, padding=padding, layout=layout, epilogue=relu(F32)
    )
    [actual] = support.run(sequence, machine, arrays, sizes=sizes)
    expected = np.maximum(expected + arrays["bias"] + arrays["residual"], 0)
    assert abs(actual - expected).max() <= 1e-5 * abs(expected).max()


@on_machines
def test_winograd_in_float64(machine: Machine) -> None:
    random = np.random.default_rng(0)
    images, filters = random.normal(size=(1, 9, 9, 5)), random.normal(size=(6, 5, 3, 3))
    arrays = {"images": images, "filters": filters, "out": np.full((1, 9, 9, 6), np.nan)}
    [result] = support.run(winograd(machine, F64, 1, 9, 9, 5, 6), machine, arrays)
    np.testing.assert_allclose(result, convolved(images, filters, (1, 1, 1, 1)), atol=1e-12)


@on_machines
def test_a_nan_reaches_only_tiles_that_cover_it(machine: Machine) -> None:
    images = np.ones((2, 16, 16, 16), np.float32)
    images[0, 2, 2, 3] = np.nan
    arrays = {"images": images, "filters": np.ones((16, 16, 3, 3), np.float32)}
    arrays["out"] = np.full((2, 16, 16, 16), np.nan, np.float32)
    [result] = support.run(winograd(machine, F32, 2, 16, 16, 16, 16), machine, arrays)
    assert np.isnan(result[0, 1:4, 1:4]).all()
    assert not np.isnan(result[0, 4:]).any()
    assert not np.isnan(result[1]).any()


@on_machines
@pytest.mark.parametrize("m", [4, 2])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 1, 1, 0)], ids=str)
def test_the_gradient_by_images_is_winograd_on_flipped_filters(
    machine: Machine, m: int, padding: tuple[int, int, int, int]
) -> None:
    top, bottom, left, right = padding
    N, H, W, C, F = 2, 9, 10, 19, 33
    random = np.random.default_rng(0)
    filters = random.normal(size=(F, C, 3, 3)).astype(np.float32)
    d_out = random.normal(size=(N, H + top + bottom - 2, W + left + right - 2, F))
    d_out = d_out.astype(np.float32)
    expected = np.zeros((N, H + top + bottom, W + left + right, C))
    height, width = d_out.shape[1:3]
    for r, u in np.ndindex(3, 3):
        expected[:, r : r + height, u : u + width] += d_out.astype(np.float64) @ filters[:, :, r, u]
    expected = expected[:, top : top + H, left : left + W]
    steps = winograd(
        machine, F32, N, height, width, F, C, m=m, layout="IOHW", flipped=True,
        padding=(2 - top, 2 - bottom, 2 - left, 2 - right),
    )  # fmt: skip
    arrays = {"images": d_out, "filters": filters, "out": np.full((N, H, W, C), np.nan, np.float32)}
    [actual] = support.run(steps, machine, arrays)
    assert abs(actual - expected).max() <= 1e-5 * abs(expected).max()


def test_winograd_assembles_for_neon() -> None:
    steps = winograd(NEON, F32, Dim.named("N"), 14, 14, 19, 35)
    for call in (*steps.prepare, *steps.calls):
        assert "\tbl\t" not in assembly(call.kernel, NEON)


def test_it_pays_on_large_images_of_many_channels() -> None:
    assert pays(1, 64, 56, 56, 64) == 4
    assert pays(1, 512, 28, 28, 512) == 4
    assert pays(1, 512, 7, 7, 512) == 2
    assert pays(1, 512, 1, 1, 512) == 0
    assert pays(1, 3, 224, 224, 64) == 0
    assert pays(1, 64, Dim.named("H"), 56, 64) == 4


@on_machines
@pytest.mark.parametrize("m", [4, 2])
def test_rounding_errors_are_those_of_direct_sums(machine: Machine, m: int) -> None:
    random = np.random.default_rng(0)
    images = random.random((4, 40, 40, 64), np.float32)
    filters = random.normal(size=(48, 64, 3, 3)).astype(np.float32)
    arrays = {"images": images, "filters": filters}
    arrays["out"] = np.full((4, 40, 40, 48), np.nan, np.float32)
    [result] = support.run(winograd(machine, F32, 4, 40, 40, 64, 48, m=m), machine, arrays)
    expected = convolved(images, filters, (1, 1, 1, 1))
    error = abs(result - expected).max() / abs(expected).max()
    assert error <= 1e-6
