"""Kernels of one op, run by Triton's interpreter, give the numbers that the op means.

Every sample of an op that has kernels, forward and backward. The count at the end keeps ops from
losing their kernels unseen.
"""

import pytest

import runtime
from compiler.codegen.triton.target import TritonTarget
from compiler.ir.opdef import GradOp, find, registered
from tests.ops.compiled_samples import Compiled
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import DIFFERENTIATED, backward, forward

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

TARGET = TritonTarget()
DEVICE = Compiled(TARGET, runtime.CUDAPlace(0))


def has_kernels(kind: str) -> bool:
    """Whether an op's class has kernels for some call of it."""
    return TARGET.writes(find(kind))


FORWARD = [s for s in samples() if has_kernels(s.op)]
BACKWARD = [s for s in DIFFERENTIATED if has_kernels(find(s.op).grad_class.kind)]


@pytest.mark.parametrize("sample", FORWARD, ids=lambda sample: sample.op)
def test_forward(sample: Sample) -> None:
    DEVICE.check(forward(sample), sample)


@pytest.mark.parametrize("sample", BACKWARD, ids=lambda sample: sample.op)
def test_backward(sample: Sample) -> None:
    DEVICE.check(backward(sample), sample)


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
