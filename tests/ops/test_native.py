"""Native kernels of one op give the numbers that the op means.

Every sample of an op that has kernels, forward and backward, on the CPU's own machine.
"""

from collections.abc import Callable

import pytest

from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.opdef import find
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.compiled_samples import FIRST, Compiled
from tests.ops.samples import Sample, samples
from tests.ops.samples.recurrent import gated, memory
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, backward, forward, graph_of

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


@pytest.mark.parametrize("make", [memory, gated])
def test_recurrent_weights_have_products_as_gradients(make: Callable[..., Sample]) -> None:
    """The previous states are gathered, then multiplied in registers."""
    sample = make((7, 0, 3, 11), initial=True, width=19)
    case = backward(sample)
    NATIVE.check(case, sample)
    graph, _ = graph_of(case, list(case.results), NOBODY)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    kernels = TARGET.frame(freeze(graph)).texts
    assert any("gathered" in name for name in kernels)
    assert any(name.startswith("matmul_19x21x") for name in kernels), [*kernels]
