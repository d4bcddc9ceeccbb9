"""Native kernels give NumPy's numbers where small arrays are beyond every threshold of sizes.

Cases of other modules again, with each threshold as small as tests lower it. `tools.verify.size_mutants`
breaks the code beyond each threshold, which these tests must notice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from compiler.codegen.native.images.winograd_tiles import WinogradTiles
from compiler.codegen.native.llvm_ir import F32, I8, I32
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.convolution import Convolution
from compiler.codegen.native.products.matmul import matmul
from compiler.ir.dims import Size
from compiler.ir.types import DType
from compiler.ir.windows import StaticWindow
from compiler.support.thresholds import all_thresholds, lowered
from tests.codegen.native import test_images, test_loops, test_products
from tests.codegen.native.images import test_transposes as test_image_transposes
from tests.codegen.native.images import test_winograd as test_image_winograd
from tests.codegen.native.products import test_convolution as test_convolutions
from tests.codegen.native.support import run_steps
from tests.support.compiled_kernels import on_machines

open_or_known = pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Lower every threshold."""
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        yield


# ---- loops ----


@on_machines
@open_or_known
def test_elements(machine: Machine, is_open: bool) -> None:
    test_loops.test_one_axis(machine, 1003, is_open)


@on_machines
@pytest.mark.parametrize("kept", [7, 5, 2])
def test_elements_of_several_axes(machine: Machine, kept: int) -> None:
    test_loops.test_broadcasting_over_every_axis(machine, (3, 5, 41), kept)


@on_machines
def test_lanes_apart(machine: Machine) -> None:
    test_loops.test_transpose(machine, (37, 70))
    test_loops.test_gather_rows(machine, DType.INT64, 40)


@on_machines
def test_indices_that_need_one_bit_more_than_narrow_ones(machine: Machine) -> None:
    """Offsets of lanes, and indices as numbers, from 128 to 255."""
    for sizes in ((8, 25), (16, 15)):
        test_loops.test_transpose(machine, sizes)
    for rows in (50, 20):
        test_loops.test_index_as_number(machine, rows)


@on_machines
@open_or_known
@pytest.mark.parametrize("sizes", [(2, 5, 70), (3, 103, 4), (1, 1003, 1), (2, 50, 1), (3, 13, 1)])
def test_reductions(machine: Machine, sizes: tuple[int, int, int], is_open: bool) -> None:
    for fn in ("sum", "max", "prod"):
        test_loops.test_middle_axis(machine, fn, sizes, is_open)


@on_machines
@pytest.mark.parametrize("sizes", [(5, 130), (3, 45)])
def test_rows(machine: Machine, sizes: tuple[int, int]) -> None:
    test_loops.test_softmax(machine, sizes)
    test_loops.test_layer_norm(machine, sizes)


@on_machines
@pytest.mark.parametrize("sizes", [(3, 4, 5, 7), (17, 2, 3, 5), (2, 3, 1, 103)])
def test_split_reductions(machine: Machine, sizes: tuple[int, int, int, int]) -> None:
    test_loops.test_reductions_over_outer_and_inner_axes_are_split(machine, sizes, DType.FP32)


# ---- products ----


M, K, N = test_products.M, test_products.K, test_products.N


@on_machines
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "sizes", [(37, 53, 101), (M, K, N), (13, K, 33), (37, 53, 1), (M, 100, 1)], ids=str
)
def test_matrices(machine: Machine, sizes: tuple[Size, Size, Size], transposed: bool) -> None:
    for constant in (False, True):
        test_products.test_products_with_a_bias(machine, sizes, transposed, constant)


@on_machines
def test_few_rows(machine: Machine) -> None:
    with lowered({"few_rows_block": 16}):  # tiles have as many as 8
        steps = matmul(machine, F32, (), M, 53, 101, constant=True, few_rows=True)
    random = np.random.default_rng(0)
    for rows in (1, 5, 23):
        a, b = random.random((rows, 53), np.float32), random.random((53, 101), np.float32)
        arrays = {"a": a, "b": b, "out": np.zeros((rows, 101), np.float32)}
        result = run_steps(steps, machine, arrays, {"M": rows})["out"]
        np.testing.assert_allclose(result, a @ b, rtol=1e-5)


@on_machines
@pytest.mark.parametrize("number", [1, 2, 3, 7, 8, 11, 12, 15])
def test_convolutions_and_gradients(machine: Machine, number: int) -> None:
    conv = test_convolutions.CASES[number]
    test_convolutions.test_convolutions(machine, conv)
    test_convolutions.test_gradients(machine, conv)


@on_machines
@pytest.mark.parametrize(("images", "size"), [(2, (7, 3)), (3, (1, 3))])
def test_parts_of_axes_that_could_be_merged(
    machine: Machine, images: int, size: tuple[int, int]
) -> None:
    """Gradients of 1 × 1 filters, whose last part has fewer rows or images."""
    windows = tuple(StaticWindow.fitting(extent, 1) for extent in size)
    conv = Convolution(images, 8, 20, windows)
    test_convolutions.test_gradients(machine, conv)


# ---- images ----


@on_machines
@open_or_known
@pytest.mark.parametrize("name", ["same padding", "stride 2, rest of channels", "two filters"])
def test_depthwise(machine: Machine, is_open: bool, name: str) -> None:
    case = next(each for key, each in test_images.DEPTHWISE.items() if name in key)
    test_images.test_depthwise_is_the_sum_of_products(machine, F32, is_open, case)
    test_images.test_depthwise_gradients(machine, F32, is_open, case)


@on_machines
@open_or_known
@pytest.mark.parametrize("name", ["3x3 by 2", "5x5 by 3"])
def test_pooling(machine: Machine, is_open: bool, name: str) -> None:
    test_images.test_pooling_is_that_of_the_op(machine, F32, is_open, test_images.POOLS[name])


@on_machines
@pytest.mark.parametrize("opened", ["", "N", "HW"])
@pytest.mark.parametrize("name", ["rests everywhere", "one side padded"])
def test_winograd(machine: Machine, opened: str, name: str) -> None:
    case = test_image_winograd.CASES[name]
    test_image_winograd.test_winograd_is_the_convolution(machine, 4, "OIHW", opened, case)


@on_machines
@pytest.mark.parametrize(
    ("opened", "images"), [("", (1, 27, 14)), ("N", (3, 27, 14)), ("HW", (1, 20, 20))]
)
def test_blocks_of_tiles_of_which_the_last_is_smaller(
    machine: Machine, opened: str, images: tuple[int, int, int]
) -> None:
    """Two of seven rows of tiles, or eight of 25 tiles, for a Winograd convolution."""
    case = (*images, 16, 16, (1, 1, 1, 1))
    with lowered({"winograd_block": 46_000, "winograd_filters": 1 << 20}):
        tiles = WinogradTiles.make(machine, F32, 4, *images[:1], images[1:], case[5], 16, 16)
        assert tiles.rows == 2 or opened == "HW"
        test_image_winograd.test_winograd_is_the_convolution(machine, 4, "OIHW", opened, case)


@on_machines
@pytest.mark.parametrize("is_open", ["known", "all"])
@pytest.mark.parametrize("number", [1, 3, 5, 8, 11])
def test_transposes(machine: Machine, is_open: str, number: int) -> None:
    for element in (I8, I32):
        test_image_transposes.test_a_transpose_is_numpys(
            machine, element, *test_image_transposes.CASES[number], is_open
        )
