"""Native kernels of one op give the numbers that the op means.

Every sample of an op that has kernels, forward and backward, on the CPU's own machine; the first
one of each op also with its batch size as a name, and twice in a row. The count at the end keeps
ops from losing their native code unseen.
"""

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, Case, backward, forward, graph_of

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

TARGET = NativeTarget()


def wanted(case: Case) -> list[str]:
    """The outputs that have elements, and whose numbers are not drawn by chance."""
    return [s for s, value in case.results.items() if any(v.size for v in listed(value))]


def is_supported(case: Case) -> bool:
    """Whether kernels exist for a call, and not only for its op."""
    graph, _ = graph_of(case, wanted(case), NOBODY)
    run_passes(graph, [NameSizes()], Context())
    return not any(TARGET.supports(op) for op in graph.ops())


def check(case: Case, thoroughly: bool) -> None:
    """Compare a case's kernels with its meaning; thoroughly, also with a size that is a name."""
    if find(case.op).is_random and "Key" not in case.values:
        pytest.skip("its numbers are drawn by chance")
    if not is_supported(case):
        pytest.skip("this call of it runs in NumPy")
    first = next((v for v in case.values.values() if isinstance(v, np.ndarray) and v.ndim), [])
    run(case, NOBODY, steps=2 if thoroughly else 1)
    if thoroughly and len(first) != NOBODY:
        run(case, len(first), steps=1)


def run(case: Case, batch: int, steps: int) -> None:
    """Compile a case and run it, several times because a step must not depend on earlier ones."""
    graph, feed = graph_of(case, wanted(case), batch)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    compute = runtime.load(TARGET.emit(freeze(graph)))
    for _ in range(steps):
        wants = [(slot, want) for slot in wanted(case) for want in listed(case.results[slot])]
        for (slot, want), found in zip(wants, compute(feed), strict=True):
            assert (found.shape, found.dtype) == (np.shape(want), want.dtype)
            np.testing.assert_allclose(found, want, rtol=5e-5, atol=2e-6, err_msg=slot)


FIRST = {s.op: s for s in reversed(samples())}


def marked(sample: Sample) -> object:
    """A sample as a parameter; those after the first of an op are for `make slow`."""
    marks = () if sample is FIRST[sample.op] else (pytest.mark.slow,)
    return pytest.param(sample, id=sample.op, marks=marks)


FORWARD = [marked(s) for s in samples() if TARGET.writes(find(s.op))]
BACKWARD = [marked(s) for s in DIFFERENTIATED if TARGET.writes(find(s.op).grad_class)]


@pytest.mark.parametrize("sample", FORWARD)
def test_forward(sample: Sample) -> None:
    check(forward(sample), sample is FIRST[sample.op])


@pytest.mark.parametrize("sample", BACKWARD)
def test_backward(sample: Sample) -> None:
    check(backward(sample), sample is FIRST[sample.op])
