"""Native kernels of one op give the numbers that the op means, and stay within their arrays.

Every sample of an op that has kernels, forward and backward, on the CPU's own machine; again with
kernels that check the bounds of every access.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.ir.text.printer import parse
from compiler.ir.types import DType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.compiled_samples import FIRST, Compiled
from tests.ops.samples import Sample, samples
from tests.ops.samples.recurrent import gated, memory
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, Case, backward, forward, graph_of

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


@pytest.mark.parametrize("make", [memory, gated])
def test_recurrent_weights_have_products_as_gradients(make: Callable[..., Sample]) -> None:
    """The previous states are gathered, then multiplied in registers."""
    sample = make((7, 0, 3, 11), initial=True, width=19)
    case = backward(sample)
    NATIVE.check(case, sample)
    graph, _ = graph_of(case, list(case.results), NOBODY)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    kernels = TARGET.module_writer(freeze(graph)).written.texts
    assert any("gathered" in name for name in kernels)
    assert any(name.startswith("matmul_19x21x") for name in kernels), [*kernels]


def test_the_gradient_of_copies_of_no_rows_has_none() -> None:
    graph = parse("""graph main {
  feed x: f32[0, 16]
  feed d: f32[0, 32]
  (X@GRAD=y: f32[0, 16]) = expand_grad(X=x, Out@GRAD=d) {'expand_times': [2, 2]}
  return y
}
""")
    run_passes(graph, pipeline(Options(), TARGET), Context())
    compute = runtime.load(TARGET.emit(freeze(graph)))
    feeds = {"x": np.zeros((0, 16), np.float32), "d": np.zeros((0, 32), np.float32)}
    assert compute(feeds)[0].shape == (0, 16)


def test_stores_after_sums_of_bfloat16_stay() -> None:
    """The gradient of CRF transitions is added to in float32, then has its first rows stored."""
    case = backward(FIRST["linear_chain_crf"])
    bfloat16 = DType.BF16.numpy
    values = {
        slot: array.astype(bfloat16) if getattr(array, "dtype", None) == np.float32 else array
        for slot, array in case.values.items()
    }
    (expected,) = listed(find(case.op)(case.attrs).evaluate(values)["Transition@GRAD"])
    narrow = Case(case.op, case.attrs, values, {"Transition@GRAD": expected})
    graph, feed = graph_of(narrow, ["Transition@GRAD"], NOBODY)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    (result,) = runtime.load(TARGET.emit(freeze(graph)))(feed)
    wide = expected.astype(np.float32)
    np.testing.assert_allclose(result.astype(np.float32), wide, atol=0.03 * abs(wide).max())


def test_the_largest_magnitude_of_no_elements_is_zero() -> None:
    graph = parse("""graph main {
  feed x: f32[0, 3]
  (Out=y: f32[0, 3], OutScale=s: f32[1]) = fake_quantize_abs_max(X=x)
  return s
}
""")
    run_passes(graph, pipeline(Options(), TARGET), Context())
    compute = runtime.load(TARGET.emit(freeze(graph)))
    assert compute({"x": np.zeros((0, 3), np.float32)})[0].tolist() == [0.0]


def test_the_norm_of_the_only_row_of_y_needs_no_rows_of_x() -> None:
    graph = parse("""graph main {
  feed x: f32[0, 3]
  feed y: f32[1, 3]
  (Out=o: f32[0, 1], XNorm=a: f32[0, 1], YNorm=b: f32[1, 1]) = cos_sim(X=x, Y=y)
  return b
}
""")
    run_passes(graph, pipeline(Options(), TARGET), Context())
    compute = runtime.load(TARGET.emit(freeze(graph)))
    feed = {"x": np.zeros((0, 3), np.float32), "y": np.array([[3, 0, 4]], np.float32)}
    assert compute(feed)[0].tolist() == [[5.0]]
