"""Ops on bfloat16: numbers of two bytes outside, float32 inside, the same on both targets.

What they should give is what they mean for the same numbers in float32, to a rounding of 8 bits.
"""

from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.ir.types import DType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.narrow_floats import FOLLOWERS, PRODUCTS
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from fluid.contrib.mixed_precision.fp16_lists import gray_list, white_list
from tests.codegen.support import module_of
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, Case, backward, forward, graph_of

pytest.importorskip("triton")

pytestmark = pytest.mark.device

BFLOAT16 = DType.BF16.numpy
NARROW = (FOLLOWERS | PRODUCTS | gray_list | white_list | {"cast", "sum", "concat"}) - {
    "batch_norm"
}
"""Ops that mixed precision leaves in two bytes; statistics of a batch norm stay float32."""


def each(value: Any, kind: Any, other: Any) -> Any:
    """The arrays of a slot, those of one element type in another."""
    if isinstance(value, list):
        return [each(item, kind, other) for item in value]
    return value.astype(other) if getattr(value, "dtype", None) == kind else value


def narrowed(case: Case) -> Case:
    """A case in bfloat16, with the results of the same numbers in float32."""
    values = {slot: each(v, np.float32, BFLOAT16) for slot, v in case.values.items()}
    wide = {slot: each(v, BFLOAT16, np.float32) for slot, v in values.items()}
    results = find(case.op)(case.attrs).evaluate(wide)
    kept = {slot: value for slot, value in results.items() if slot in case.results}
    return Case(case.op, case.attrs, values, kept)


def check(case: Case) -> None:
    """Compare reference, NumPy code and kernels with the numbers in float32."""
    case = narrowed(case)
    if find(case.op).is_random or not any(_is_narrow(v) for v in case.values.values()):
        pytest.skip("it is drawn by chance, or has no floats")
    slots = [s for s, value in case.results.items() if any(v.size for v in listed(value))]
    meant = find(case.op)(case.attrs).evaluate(case.values)
    compare(case, slots, [each for slot in slots for each in listed(meant[slot])])
    graph, feed = graph_of(case, slots, NOBODY)
    compare(case, slots, runtime.load(module_of(graph))(feed))
    graph, feed = graph_of(case, slots, NOBODY)
    target = TritonTarget()
    run_passes(graph, pipeline(Options(), target), Context())
    compare(case, slots, runtime.load(target.emit(freeze(graph)), runtime.CUDAPlace(0))(feed))


def _is_narrow(value: Any) -> bool:
    return any(getattr(item, "dtype", None) == BFLOAT16 for item in listed(value))


def compare(case: Case, slots: list[str], found: Any) -> None:
    """Within a hundredth of the largest number."""
    wanted = [(slot, each) for slot in slots for each in listed(case.results[slot])]
    for (slot, want), made in zip(wanted, found, strict=True):
        narrow = BFLOAT16 if want.dtype == np.float32 else want.dtype
        assert (made.dtype, made.shape) == (narrow, want.shape)
        bound = 0.01 * np.abs(want).max(initial=0) if narrow == BFLOAT16 else 0
        np.testing.assert_allclose(made.astype(want.dtype), want, rtol=0, atol=bound, err_msg=slot)


FORWARD = list({s.op: s for s in reversed(samples()) if s.op in NARROW}.values())
BACKWARD = list({s.op: s for s in reversed(DIFFERENTIATED) if s.op in NARROW}.values())


@pytest.mark.parametrize("sample", FORWARD, ids=lambda sample: sample.op)
def test_forward(sample: Sample) -> None:
    check(forward(sample))


@pytest.mark.parametrize("sample", BACKWARD, ids=lambda sample: sample.op)
def test_backward(sample: Sample) -> None:
    check(backward(sample))
