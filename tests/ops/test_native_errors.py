"""Native programs raise what NumPy programs raise for numbers that an op refuses.

An id that is not a row of a table, a label that is not a class: with any of them, no kernel reads
or writes outside of an array, whether the op refuses it or not.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.errors import CompileError
from compiler.freeze import freeze
from compiler.ir.opdef import find, has, listed
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from runtime.errors import OutOfBounds
from tests.ops.compiled_samples import FIRST
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import (
    DIFFERENTIATED,
    NOBODY,
    Case,
    backward,
    forward,
    graph_of,
    with_elements,
)
from tests.ops.test_native import BACKWARD, FORWARD, NATIVE

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")


def compiled(case: Case, target: Any, checked: bool = False) -> tuple[Any, dict[str, Any]]:
    graph, feed = graph_of(case, with_elements(case), NOBODY)
    run_passes(graph, pipeline(Options(), target), Context())
    return runtime.load(target.emit(freeze(graph), checked)), feed


def raised(compute: Any, feed: dict[str, Any]) -> str:
    """The message of the error that a step raises; empty if it raises none."""
    try:
        compute(feed)
    except OutOfBounds:
        raise
    except CompileError as error:
        return str(error)
    return ""


def with_a_wrong_number(case: Case, feed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Feeds of which one number is far out of range; lengths of sequences remain."""
    slots = [s for s, value in case.values.items() if value is not None for _ in listed(value)]
    for (name, array), slot in zip(feed.items(), slots, strict=True):
        if array.dtype.kind != "i" or not array.size or "lod" in slot.lower():
            continue
        for wrong, place in ((-7, 0), (30_000, array.size - 1)):
            changed = array.copy()
            changed.reshape(-1)[place] = min(wrong, np.iinfo(array.dtype).max)
            yield feed | {name: changed}


CHECKED = sorted({s.op for s in samples() if has(find(s.op)(s.attrs), "check_values")})


def refusals(case: Case) -> int:
    """How many wrong numbers NumPy refuses; native code must raise the same errors."""
    (meant, feed), (native, _) = compiled(case, NumpyTarget()), compiled(case, NativeTarget())
    count = 0
    for wrong in with_a_wrong_number(case, feed):
        expected = raised(meant, wrong)
        assert raised(native, wrong) == expected
        count += bool(expected)
    native(feed)
    return count


@pytest.mark.parametrize("kind", CHECKED)
def test_the_error_is_that_of_numpy(kind: str) -> None:
    cases = [forward(sample) for sample in samples() if sample.op == kind]
    native = [case for case in cases if NATIVE.has_kernels(case)]
    assert not native or sum(map(refusals, native))


SELECTING = (
    "top_k top_k_v2 argsort max_pool2d_with_index roi_pool shuffle_batch yolov3_loss".split()
)
"""Ops that compute indices which their gradients read."""
GRADIENTS = {
    sample.op: sample
    for sample in DIFFERENTIATED
    if sample.op in SELECTING or (sample.op in CHECKED and FIRST[sample.op] is sample)
}


@pytest.mark.parametrize("target", [NumpyTarget(), NativeTarget()], ids=["numpy", "native"])
@pytest.mark.parametrize("kind", GRADIENTS)
def test_a_gradient_alone_refuses_indices_out_of_range(kind: str, target: Any) -> None:
    compute, feed = compiled(backward(GRADIENTS[kind]), target)
    compute(feed)
    wrong = [
        raised(compute, changed) for changed in with_a_wrong_number(backward(GRADIENTS[kind]), feed)
    ]
    assert not wrong or any(wrong)
    assert kind not in SELECTING or wrong


def test_indices_that_the_op_computed_are_not_checked() -> None:
    graph = parse("""graph main {
  feed x: f32[3, 5]
  feed d: f32[3, 2]
  (Out=y: f32[3, 2], Indices=i: i64[3, 2]) = top_k(X=x) {'k': 2}
  (X@GRAD=g: f32[3, 5]) = top_k_grad(X=x, Indices=i, Out@GRAD=d) {'k': 2}
  return y, g
}
""")
    run_passes(graph, pipeline(Options(), NativeTarget()), Context())
    assert "check_indices" not in NativeTarget().emit(freeze(graph)).source


SPARSE_STEP = """graph main {
  param w: f32[5, 2]
  feed ids: i64[3, 1]
  feed d: f32[3, 2]
  feed rows: i64[3]
  feed rate: f32[1]
  (Out=y: f32[3, 2]) = lookup_table(W=w, Ids=ids)
  (W@GRAD=g: f32[3, 2], W_rows@GRAD=r: i64[3]) = lookup_table_grad(W=w, Ids=ids, Out@GRAD=d) {'is_sparse': True}
  (Out=c: f32[3, 2], Out_rows=cr: i64[3]) = scale_rows(X=d, X_rows=GIVEN) {'scale': 2.0}
  (ParamOut=w#1: f32[5, 2] over w) = sgd_rows(Param=w, Grad=c, Grad_rows=cr, LearningRate=rate)
  return y
}
"""


@pytest.mark.parametrize(("rows", "is_checked"), [("rows", True), ("r", False)])
def test_rows_are_checked_where_they_are_given(rows: str, is_checked: bool) -> None:
    """Looked-up ids were compared with the table: the update need not wait for them."""
    graph = parse(SPARSE_STEP.replace("GIVEN", rows))
    run_passes(graph, pipeline(Options(), NativeTarget()), Context())
    assert ("check_indices" in NativeTarget().emit(freeze(graph)).source) == is_checked


def stay_inside(case: Case) -> None:
    """Run a case with wrong numbers; a kernel that leaves its arrays raises OutOfBounds."""
    if NATIVE.has_kernels(case):
        compute, feed = compiled(case, NativeTarget(), checked=True)
        for wrong in with_a_wrong_number(case, feed):
            raised(compute, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("sample", FORWARD)
def test_kernels_stay_inside_their_arrays(sample: Sample) -> None:
    stay_inside(forward(sample))


@pytest.mark.slow
@pytest.mark.parametrize("sample", BACKWARD)
def test_kernels_of_gradients_stay_inside_their_arrays(sample: Sample) -> None:
    stay_inside(backward(sample))
