"""A few ops in NumPy and on a GPU give the same numbers where sizes are beyond every threshold.

test_native_thresholds.py does the same with all ops that have native kernels.
"""

from collections.abc import Iterator

import pytest

import runtime
from compiler.codegen.triton.target import TritonTarget
from compiler.ir.opdef import find
from compiler.support.thresholds import all_thresholds, lowered
from tests.ops.compiled_samples import FIRST, Compiled
from tests.ops.samples import Sample
from tests.ops.test_generated import backward, check, forward

IN_NUMPY = "conv2d depthwise_conv2d softmax_with_cross_entropy".split()
"""Ops whose NumPy code differs by size, and one that captures many variables."""

ON_DEVICE = (
    "batch_norm concat conv2d cumsum layer_norm matmul merge_rows reduce_mean sequence_pool "
    "softmax split top_k transpose2 unfold"
).split()
"""Ops whose kernels on a GPU differ by size."""


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Lower every threshold."""
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        yield


def cases(names: list[str]) -> list[object]:
    """The first sample of each op, as parameters."""
    return [pytest.param(FIRST[name], id=name) for name in names]


@pytest.mark.parametrize("sample", cases(IN_NUMPY))
def test_in_numpy(sample: Sample) -> None:
    check(forward(sample))
    check(backward(sample))


@pytest.mark.device
@pytest.mark.parametrize("sample", cases(ON_DEVICE))
def test_on_a_device(sample: Sample) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    device = Compiled(TritonTarget(), runtime.CUDAPlace(0))
    device.check(forward(sample), sample)
    if find(sample.op).grad_class:
        device.check(backward(sample), sample)
