"""Results of PaddlePaddle 1.8.5 on a CPU, compared with programs of one op as users run them.

Tolerances are the recording's.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import fluid
from tests.golden.recorded import CASES, outputs, recorded
from tools.verify import lowered


def close(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Hold one array against another; the tolerance grows with the largest value."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    scale = max(1.0, float(np.abs(want.astype(np.float64)).max())) if want.size else 1.0
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol * scale)


SECOND = [case for case in CASES if case[1].endswith("__1")]
FIRST = [case for case in CASES if not case[1].endswith("__1")]
"""Most recordings of an op come in two sizes, `OP__0` and `OP__1`."""


def each_of(cases: Any) -> Any:
    values, names = [case[::2] for case in cases], [case[1] for case in cases]
    return pytest.mark.parametrize(("kind", "case"), values, ids=names)


@each_of(CASES)
def test_outputs_and_gradients(kind: str, case: Mapping[str, Any]) -> None:
    agrees(kind, case, fluid.CPUPlace())


@each_of(SECOND)
def test_outputs_and_gradients_without_memory_reuse_and_fusion(
    kind: str, case: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_DISABLE", "fuse_pointwise,schedule,reuse_memory")
    agrees(kind, case, fluid.CPUPlace())


@pytest.mark.device
@each_of(FIRST)
def test_on_a_device(kind: str, case: Mapping[str, Any]) -> None:
    pytest.importorskip("triton")
    agrees(kind, case, fluid.CUDAPlace(0))


def agrees(kind: str, case: Mapping[str, Any], place: Any) -> None:
    """Hold what a place computes against what was recorded."""
    wanted = list(outputs(case))
    actual, gradients = computed(kind, case, place)
    for (key, name), got in zip(wanted, actual, strict=True):
        close(np.asarray(got), case["arrays"][key], rtol=2e-4, atol=2e-5)
        lengths = got.recursive_sequence_lengths()
        assert lengths == case.get("out_lod", {}).get(name, lengths)
    for name, got in zip(case.get("grad_of", ()), gradients, strict=True):
        close(np.asarray(got), case["arrays"]["grad." + name], rtol=1e-3, atol=1e-4)


def computed(kind: str, case: Mapping[str, Any], place: Any) -> tuple[list[Any], list[Any]]:
    """What a program of the one op makes of the recorded inputs: outputs, and gradients."""
    program, feed, names, gradients = recorded(kind, case)
    fetched = [*names, *gradients]
    with fluid.scope_guard(fluid.Scope()):
        values = fluid.Executor(place).run(program, feed, fetched, return_numpy=False)
    return values[: len(names)], values[len(names) :]


def test_there_are_recordings() -> None:
    assert len(CASES) > 400


def test_most_recordings_run_wholly_on_a_device() -> None:
    pytest.importorskip("triton")
    result = dict(lowered.measure(FIRST))
    assert sum(not reasons for reasons in result.values()) >= 330, result
