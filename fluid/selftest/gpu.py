"""The Triton kernels of a GPU: some cases, compared with NumPy code on the same feeds."""

from __future__ import annotations

from collections.abc import Sequence

import compiler
import runtime
from compiler.debugging.difference import difference
from compiler.ir.types import Array
from compiler.options import Options
from fluid.core import get_cuda_device_count
from fluid.selftest.cases import Case, record
from fluid.selftest.trial import ERRORS, Outcome
from runtime.device import CUDAPlace

TOLERANCE = 1e-3
"""The largest difference, relative to the largest magnitude of an output."""


def compared_on_gpu(cases: Sequence[Case]) -> list[Outcome]:
    """Run cases on the first GPU; none without a GPU."""
    return [*map(_outcome, cases)] if get_cuda_device_count() else []


def _outcome(case: Case) -> Outcome:
    try:
        error = _largest(case)
    except ERRORS as error:
        return Outcome(failure=f"{case.name}: {type(error).__name__}: {error}")
    wrong = f"{case.name}: differs by {error:.1e} of the largest magnitude" * (error > TOLERANCE)
    return Outcome(error=error, failure=wrong)


def _largest(case: Case) -> float:
    """The largest relative difference of an output of a case from that of NumPy code."""
    recorded = record(case, is_large=False)
    results: list[list[Array]] = []
    for target, place in (("triton", CUDAPlace(0)), ("numpy", None)):
        module = compiler.compile(
            recorded.main, feed=list(recorded.feeds), fetch=list(recorded.fetches),
            target=target, options=Options(),
        )  # fmt: skip
        params: dict[str, Array] = {}
        results.append(runtime.load(module, place, params=params)(recorded.feeds))
    pairs = zip(*results, strict=True)
    return max(difference(case.name, a, b, TOLERANCE).relative for a, b in pairs)
