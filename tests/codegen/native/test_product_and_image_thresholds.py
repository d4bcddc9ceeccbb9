"""Kernels of products and images give the same numbers where sizes are beyond every threshold.

Those that samples of ops hardly reach: the tests of each kind of kernel, with thresholds so small
that their arrays are divided, packed and read in blocks as large ones are.
"""

from collections.abc import Iterator

import pytest

from compiler.codegen.native.llvm_ir import F32, I32
from compiler.codegen.native.machine import Machine
from compiler.support.thresholds import all_thresholds, lowered
from tests.codegen.native import test_images as images
from tests.codegen.native.images import test_transposes as transposes
from tests.codegen.native.images import test_winograd as winograd
from tests.codegen.native.products import test_convolution as convolutions
from tests.support.compiled_kernels import on_machines


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Lower every threshold."""
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        yield


@on_machines
@pytest.mark.parametrize("conv", convolutions.CASES[1:15:3], ids=str)
def test_convolutions(machine: Machine, conv: convolutions.Convolution) -> None:
    convolutions.test_convolutions(machine, conv)
    convolutions.test_gradients(machine, conv)


@on_machines
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("case", [*images.DEPTHWISE.values()][:3], ids=[*images.DEPTHWISE][:3])
def test_depthwise(machine: Machine, is_open: bool, case) -> None:
    images.test_depthwise_is_the_sum_of_products(machine, F32, is_open, case)
    images.test_depthwise_gradients(machine, F32, is_open, case)


@on_machines
@pytest.mark.parametrize("opened", ["", "HW"])
@pytest.mark.parametrize("case", winograd.CASES.values(), ids=winograd.CASES)
def test_winograd(machine: Machine, opened: str, case) -> None:
    winograd.test_winograd_is_the_convolution(machine, 4, "OIHW", opened, case)


@on_machines
@pytest.mark.parametrize("is_open", ["known", "all"])
@pytest.mark.parametrize(("shape", "order"), transposes.CASES[::3], ids=str)
def test_transposes(machine: Machine, is_open: str, shape, order) -> None:
    transposes.test_a_transpose_is_numpys(machine, I32, shape, order, is_open)
