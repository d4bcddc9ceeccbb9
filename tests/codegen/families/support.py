"""Kernels compared with the reference implementation on random shapes, one family of ops a file.

Sizes are small, odd and even, seldom a multiple of anything, and now and then 1 or larger than a
tile's side. A batch is a size of its own, so that it can be a name instead: then one module serves
the size that was drawn and another one.

`EXAMPLES=20 pytest tests/codegen/families` tries twenty times as many shapes, new ones in each run.
"""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import runtime
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import Sample
from tests.ops.test_generated import NOBODY, Case, backward, forward, graph_of

pytest.importorskip("triton")
pytest.importorskip("torch")

TIMES = int(os.environ.get("EXAMPLES", "1"))
TARGET = TritonTarget()

SIZES = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 16, 18, 21, 33])
SMALL = st.integers(1, 6)
BATCHES = st.sampled_from([11, 13, 17, 19])
SEEDS = st.integers(0, 999)
TOLERANCES = {"float16": (2e-2, 2e-2), "float32": (1e-4, 2e-5), "float64": (1e-5, 2e-6)}


def drawn(count: int) -> settings:
    """Return how often a property is tried: the same calls in every run, unless there are more."""
    return settings(
        max_examples=count * TIMES,
        deadline=None,
        derandomize=TIMES == 1,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def shapes(least: int = 1, most: int = 4, sizes: st.SearchStrategy[int] = SIZES):
    """Draw shapes of so many axes, not too large."""
    drawn = st.lists(sizes, min_size=least, max_size=most).map(tuple)
    return drawn.filter(lambda shape: np.prod(shape) <= 4000)


def assert_matches_reference(sample: Sample, *, batch: int = NOBODY, loosely: float = 1.0) -> None:
    """Compare a call and its gradient with the reference implementation: by sizes, and by a name for the batch."""
    cases = [forward(sample)]
    if sample.grads and find(sample.op).grad_class:
        cases.append(backward(sample))
    for case in cases:
        for name in dict.fromkeys((NOBODY, batch)):
            compare(case, name, loosely)


def compare(case: Case, batch: int, loosely: float) -> None:
    """Compile one call for the device, run it, and compare every output that has elements."""
    wanted = [slot for slot, value in case.results.items() if any(v.size for v in listed(value))]
    if not TARGET.writes(find(case.op)):
        pytest.skip(f"{case.op} has no kernels")
    graph, feed = graph_of(case, wanted, batch)
    reasons = [TARGET.supports(op) for op in graph.ops()]
    assert not any(reasons), f"{case.op} has no kernels: {reasons}"
    run_passes(graph, pipeline(Options(), TARGET), Context())
    module = TARGET.emit(freeze(graph))
    actual = runtime.load(module, runtime.CUDAPlace(0))(feed)
    wants = [(slot, want) for slot in wanted for want in listed(case.results[slot])]
    for (slot, want), result in zip(wants, actual, strict=True):
        assert (result.shape, result.dtype) == (np.shape(want), want.dtype), (case.op, slot)
        rtol, atol = TOLERANCES.get(result.dtype.name, (0, 0))
        np.testing.assert_allclose(
            result, want, rtol=rtol * loosely, atol=atol * loosely, err_msg=f"{case.op} {slot}"
        )
