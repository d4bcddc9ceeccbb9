"""Native kernels of one op give the numbers that the op means.

Every sample of an op that has kernels, forward and backward, on the CPU's own machine.
"""

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
