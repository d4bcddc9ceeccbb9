"""Gradients of native attention equal those of its definition in float64."""

from collections.abc import Mapping

import numpy as np
import pytest

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.native.attention.backward import attention_gradient
from compiler.codegen.native.llvm_ir import F32, F64, Type
from compiler.codegen.native.machine import AVX512, Machine
from compiler.support.thresholds import all_thresholds, lowered
from tests.codegen.native.attention.test_forward import CASES, VALUES, drawn, kept, known
from tests.codegen.native.support import run_checked_steps, run_steps
from tests.support.compiled_kernels import on_machines


def given(spec: Attention, element: Type) -> dict[str, np.ndarray]:
    """Arrays for the operands and the gradients."""
    arrays = drawn(known(spec), element)
    arrays["d_out"] = arrays.pop("out")
    return arrays | {f"d_{name}": np.full_like(arrays[name], 7.0) for name in "qkv"}


def defined(spec: Attention, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The gradients by q, k and v, in float64."""
    q, k, v, d = (
        arrays[name].astype(np.float64).swapaxes(1, 2) for name in ("q", "k", "v", "d_out")
    )
    scores = q @ k.swapaxes(-1, -2) * spec.scale + arrays.get("mask", 0)
    powers = np.exp(np.maximum(scores - scores.max(-1, keepdims=True), -64.0))
    p, d = powers / powers.sum(-1, keepdims=True), d * spec.factor
    keep = kept(spec, arrays) if spec.dropout else 1.0
    upstream = d @ v.swapaxes(-1, -2) * keep
    d_scores = (upstream - (upstream * p).sum(-1, keepdims=True)) * p * spec.scale
    results = {
        "d_q": d_scores @ k,
        "d_k": d_scores.swapaxes(-1, -2) @ q,
        "d_v": (p * keep).swapaxes(-1, -2) @ d,
    }
    return {name: result.swapaxes(1, 2) for name, result in results.items()}


def expect_definition(
    spec: Attention, arrays: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]
) -> None:
    far = 1e-5 if arrays["q"].dtype == np.float32 else 1e-12
    for name, want in defined(known(spec), arrays).items():
        np.testing.assert_allclose(results[name], want, far, far, err_msg=name)


@on_machines
@pytest.mark.parametrize("spec", CASES, ids=range(len(CASES)))
def test_gradients_equal_their_definition(machine: Machine, spec: Attention) -> None:
    arrays = given(spec, F32)
    results = run_steps(attention_gradient(machine, F32, spec), machine, arrays, VALUES, (30, 70))
    expect_definition(spec, arrays, results)


def test_gradients_in_float64_beyond_every_threshold_within_their_arrays() -> None:
    arrays = given(CASES[1], F64)
    steps = attention_gradient(AVX512, F64, CASES[1])
    expect_definition(CASES[1], arrays, run_steps(steps, AVX512, arrays, VALUES))
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        for spec in (CASES[1], CASES[-4], CASES[-1]):
            arrays = given(spec, F32)
            steps = attention_gradient(AVX512, F32, spec)
            expect_definition(spec, arrays, run_checked_steps(steps, AVX512, arrays, VALUES))
