"""Compile the sample of one op for a target and compare its numbers with what the op means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import runtime
from compiler.codegen.target import Target
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import NOBODY, Case, graph_of, with_elements

FIRST = {s.op: s for s in reversed(samples())}
"""The first sample of each op."""


@dataclass(frozen=True)
class Compiled:
    """Samples compiled for a target, run in a place (CPU where it is None).

    With `checked`, steps check their memory: native kernels, every access. With `once`, each sample
    runs once, with all sizes known.
    """

    target: Target
    place: runtime.Place | None = None
    checked: bool = False
    once: bool = False

    def check(self, case: Case, sample: Sample) -> None:
        """Compare a case with the reference implementation.

        The first sample of an op runs twice, as a step must not depend on earlier ones, and once
        more with its batch size as a name.
        """
        if find(case.op).is_random and "Key" not in case.values:
            pytest.skip("its numbers are random")
        if not self.has_kernels(case):
            pytest.skip("this call of it runs in NumPy")
        is_first = sample is FIRST[sample.op] and not self.once
        self.run(case, NOBODY, steps=2 if is_first else 1)
        first = next((v for v in case.values.values() if isinstance(v, np.ndarray) and v.ndim), [])
        if is_first and len(first) != NOBODY:
            self.run(case, len(first), steps=1)

    def has_kernels(self, case: Case) -> bool:
        """Whether there are kernels for this call, and not only for its op."""
        graph, _ = graph_of(case, with_elements(case), NOBODY)
        run_passes(graph, [NameSizes()], Context())
        return not any(self.target.supports(op) for op in graph.ops())

    def run(self, case: Case, batch: int, steps: int) -> None:
        graph, feed = graph_of(case, with_elements(case), batch)
        run_passes(graph, pipeline(Options(), self.target), Context())
        compute = runtime.load(self.target.emit(freeze(graph), self.checked), self.place)
        for _ in range(steps):
            wants = [
                (slot, want) for slot in with_elements(case) for want in listed(case.results[slot])
            ]
            for (slot, want), found in zip(wants, compute(feed), strict=True):
                assert (found.shape, found.dtype) == (np.shape(want), want.dtype)
                atol = 2e-6 * max(1.0, _largest(want))
                np.testing.assert_allclose(found, want, rtol=5e-5, atol=atol, err_msg=slot)


def _largest(array: np.ndarray) -> float:
    """The largest magnitude of the finite elements, to which sums of the others are rounded."""
    wide = np.abs(array.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))
