"""Kernels of one op, run by Triton's interpreter, give the numbers that the op means.

Every sample of an op that has kernels, forward and backward; the first one of each op also with its
batch size as a name, and twice in a row. The count at the end keeps ops from losing their kernels unseen.
"""

import numpy as np
import pytest

import runtime
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.ir.opdef import GradOp, find, listed, registered
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, Case, backward, forward, graph_of

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

TARGET = TritonTarget()


def lowered(case: Case) -> bool:
    """Whether kernels exist for a call, and not only for its op."""
    graph, _ = graph_of(case, wanted(case), NOBODY)
    run_passes(graph, [NameSizes()], Context())
    return not any(TARGET.supports(op) for op in graph.ops())


def wanted(case: Case) -> list[str]:
    """The outputs that have elements, and whose numbers are not drawn by chance."""
    return [s for s, value in case.results.items() if any(v.size for v in listed(value))]


def check(case: Case, thoroughly: bool) -> None:
    """Hold a case's kernels against its meaning; thoroughly, also with a size that is a name."""
    if find(case.op).is_random and "Key" not in case.values:
        pytest.skip("its numbers are drawn by chance")
    if not lowered(case):
        pytest.skip("this call of it is the host's")
    first = next((v for v in case.values.values() if isinstance(v, np.ndarray) and v.ndim), [])
    run(case, NOBODY, steps=2 if thoroughly else 1)
    if thoroughly and len(first) != NOBODY:
        run(case, len(first), steps=1)


def run(case: Case, batch: int, steps: int) -> None:
    """Compile a case and run it, several times because a step leans on none before it."""
    graph, feed = graph_of(case, wanted(case), batch)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    compute = runtime.load(TARGET.emit(freeze(graph)), runtime.CUDAPlace(0))
    for _ in range(steps):
        wants = [(slot, want) for slot in wanted(case) for want in listed(case.results[slot])]
        for (slot, want), found in zip(wants, compute(feed), strict=True):
            assert (found.shape, found.dtype) == (np.shape(want), want.dtype)
            np.testing.assert_allclose(found, want, rtol=5e-5, atol=2e-6, err_msg=slot)


def has_kernels(kind: str) -> bool:
    """Whether an op's class has kernels for some call of it."""
    return TARGET.writes(find(kind))


FORWARD = [s for s in samples() if has_kernels(s.op)]
FIRST = {s.op: s for s in reversed(samples())}
BACKWARD = [s for s in DIFFERENTIATED if has_kernels(find(s.op).grad_class.kind)]


@pytest.mark.parametrize("sample", FORWARD, ids=lambda sample: sample.op)
def test_forward(sample: Sample) -> None:
    check(forward(sample), sample is FIRST[sample.op])


@pytest.mark.parametrize("sample", BACKWARD, ids=lambda sample: sample.op)
def test_backward(sample: Sample) -> None:
    check(backward(sample), sample is FIRST[sample.op])


def reason(kind: str) -> str:
    """The reason why an op runs on the host, from its class or its forward op."""
    defn = find(kind)
    return (defn.forward if issubclass(defn, GradOp) else defn).no_kernel_reason


def test_ops_have_kernels_or_explain_why_they_have_none() -> None:
    own = [kind for kind in registered() if find(kind).__module__.startswith("compiler.ops.")]
    alone = [kind for kind in own if not find(kind).is_composite]
    missing = [kind for kind in alone if not has_kernels(kind) and not reason(kind)]
    assert len(missing) <= 3, missing


def test_no_op_with_kernels_reports_that_it_stays_on_the_host() -> None:
    assert not [kind for kind in registered() if has_kernels(kind) and reason(kind)]
