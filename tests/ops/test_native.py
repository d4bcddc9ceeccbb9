"""Native kernels of one op give the numbers that the op means, and stay within their arrays.

Every sample of an op that has kernels, forward and backward, on the CPU's own machine; again with
kernels that check the bounds of every access.
"""

from typing import Any

import pytest

from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.ir.opdef import find
from tests.ops.compiled_samples import FIRST, Compiled
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import DIFFERENTIATED, backward, forward

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

TARGET = NativeTarget()
NATIVE = Compiled(TARGET)
CHECKED = Compiled(TARGET, checked=True)
HANDFUL = frozenset(
    "argsort batch_norm bilinear_interp conv2d gather lookup_table_v2 matmul pool2d softmax".split()
)
"""Ops whose first sample is checked for overruns in the fast tests; the others by `make slow`."""


def marked(sample: Sample) -> object:
    """A sample as a parameter; those after the first of an op are for `make slow`."""
    marks = () if sample is FIRST[sample.op] else (pytest.mark.slow,)
    return pytest.param(sample, id=sample.op, marks=marks)


FORWARD = [marked(s) for s in samples() if TARGET.writes(find(s.op))]
BACKWARD = [marked(s) for s in DIFFERENTIATED if TARGET.writes(find(s.op).grad_class)]


@pytest.mark.parametrize("sample", FORWARD)
def test_forward(sample: Sample) -> None:
    NATIVE.check(forward(sample), sample)


@pytest.mark.parametrize("sample", BACKWARD)
def test_backward(sample: Sample) -> None:
    NATIVE.check(backward(sample), sample)


def checked(parameter: Any) -> object:
    """A sample as a parameter of a run with checks of bounds."""
    (sample,) = parameter.values
    is_fast = sample is FIRST[sample.op] and sample.op in HANDFUL
    return pytest.param(sample, id=sample.op, marks=() if is_fast else (pytest.mark.slow,))


@pytest.mark.parametrize("sample", [*map(checked, FORWARD)])
def test_forward_within_bounds(sample: Sample) -> None:
    CHECKED.check(forward(sample), sample)


@pytest.mark.parametrize("sample", [*map(checked, BACKWARD)])
def test_backward_within_bounds(sample: Sample) -> None:
    CHECKED.check(backward(sample), sample)
