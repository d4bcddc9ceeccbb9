"""Ops of elements and of rows in one step: two kernels, which may write where they read."""

import numpy as np
import pytest

import fluid

layers = fluid.layers
X = np.random.default_rng(0).random((5, 16), "f4")


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize("rows_first", [False, True])
def test_rows_and_elements_that_both_replace_what_they_read(
    monkeypatch: pytest.MonkeyPatch, rows_first: bool, assigned: bool, axis: int
) -> None:
    """`gate` and `both` are written over inputs that have ended; `assigned` leaves no choice."""
    monkeypatch.setenv("FLUID_TARGET", "native")
    w = np.random.default_rng(1).random((16, 16), "f4") - 0.5
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [5, 16] if axis == 0 else [None, 16])
        factor = layers.assign(w)
        scores, values = layers.mul(x, factor), layers.mul(x + 1.0, factor)
        weights = layers.softmax(scores, axis=axis) if rows_first else None
        gate = layers.tanh(values)
        weights = layers.softmax(scores, axis=axis) if weights is None else weights
        both = weights + gate
        if assigned:
            layers.assign(both, values)
            both = values
        results = [layers.mul(gate, factor), layers.mul(both, factor)]
    actual = fluid.Executor().run(main, feed={"x": X}, fetch_list=results, scope=fluid.Scope())
    gates = np.tanh((X + 1) @ w)
    weighted = softmax(X @ w) if axis == -1 else softmax((X @ w).T).T
    for got, want in zip(actual, [gates @ w, (weighted + gates) @ w], strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
