"""`sync_batch_norm` of shares of a batch is `batch_norm` of the whole batch, uneven shares too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.numpy import NumpyTarget
from compiler.codegen.triton.target import TritonTarget
from compiler.ir.opdef import find
from tests.ops.test_collective import module_of
from tests.support.rank_world import World

BATCH = np.random.default_rng(1).normal(30.0, 0.5, (7, 3, 2, 2)).astype(np.float32)
ABOVE = np.random.default_rng(2).normal(size=BATCH.shape).astype(np.float32)
SCALE = np.array([1.5, 0.5, 2.0], np.float32)
BIAS = np.array([0.1, 0.2, 0.3], np.float32)
RUNNING = np.array([0.5, 1.0, 2.0], np.float32)
SHARES = {1: [0, 7], 2: [0, 2, 7], 3: [0, 1, 3, 7], 4: [0, 1, 2, 4, 7]}

TEXT = """graph main {
  feed x: f32[N, 3, 2, 2]
  feed dy: f32[N, 3, 2, 2]
  feed s: f32[3]
  feed b: f32[3]
  feed m: f32[3]
  feed v: f32[3]
  (Y=y: f32[N, 3, 2, 2], MeanOut=mo: f32[3], VarianceOut=vo: f32[3], SavedMean=sm: f32[3], SavedVariance=sv: f32[3], After=t: token[]) = sync_batch_norm(X=x, Scale=s, Bias=b, Mean=m, Variance=v) {'variable': 'y'}
  (X@GRAD=dx: f32[N, 3, 2, 2], Scale@GRAD=ds: f32[3], Bias@GRAD=db: f32[3], After=u: token[]) = sync_batch_norm_grad(X=x, Scale=s, Bias=b, SavedMean=sm, SavedVariance=sv, Y@GRAD=dy, Before=t) {'variable': 'dx'}
  return y, mo, vo, dx, ds, db
}
"""

TARGETS = [
    pytest.param(NumpyTarget(), None, id="numpy"),
    pytest.param(TritonTarget(), runtime.CUDAPlace(0), id="triton", marks=pytest.mark.device),
]


def whole() -> list[np.ndarray]:
    """What one `batch_norm` of the whole batch makes, in float64."""
    inputs = {"X": BATCH, "Scale": SCALE, "Bias": BIAS, "Mean": RUNNING, "Variance": RUNNING}
    inputs = {slot: value.astype(np.float64) for slot, value in inputs.items()}
    norm = find("batch_norm")(None)
    created: Any = norm.evaluate(inputs)
    kept = {slot: created[slot] for slot in ("SavedMean", "SavedVariance")}
    back = find("batch_norm_grad")(None).evaluate({**inputs, **kept, "Y@GRAD": ABOVE})
    grads = [back[slot + "@GRAD"] for slot in ("X", "Scale", "Bias")]
    return [created["Y"], created["MeanOut"], created["VarianceOut"], *grads]


def parts(module: Any, place: Any, bounds: list[int]) -> list[np.ndarray]:
    """The results of all ranks: rows joined, statistics of the first, gradients summed."""

    def work(rank: Any) -> list[np.ndarray]:
        step = runtime.load(module, place, {}, names={"collective": rank})
        rows = slice(bounds[rank.number], bounds[rank.number + 1])
        vectors = {"s": SCALE, "b": BIAS, "m": RUNNING, "v": RUNNING}
        return [np.array(v) for v in step({"x": BATCH[rows], "dy": ABOVE[rows], **vectors})]

    result = World(len(bounds) - 1).run(work)
    for rank in result[1:]:
        for mine, first in zip(rank[1:3], result[0][1:3], strict=True):
            np.testing.assert_array_equal(mine, first)
    columns = list(zip(*result, strict=True))
    rows, sums = (np.concatenate(columns[i]) for i in (0, 3)), [sum(c) for c in columns[4:]]
    y, d_x = rows
    return [y, columns[1][0], columns[2][0], d_x, *sums]


@pytest.mark.parametrize(("target", "place"), TARGETS)
@pytest.mark.parametrize("ranks", SHARES)
def test_shares_are_normalised_as_the_whole(ranks: int, target: Any, place: Any) -> None:
    if place is not None and ranks not in (1, 3):
        pytest.skip("three ranks show what four do")
    result = parts(module_of(TEXT, target), place, SHARES[ranks])
    for got, want in zip(result, whole(), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_the_interpreter_and_kept_statistics() -> None:
    inputs = {"X": BATCH, "Scale": SCALE, "Bias": BIAS, "Mean": RUNNING, "Variance": RUNNING}
    for attrs in ({}, {"is_test": True}, {"use_global_stats": True}):
        mine = find("sync_batch_norm")(attrs).evaluate(inputs)
        want = find("batch_norm")(attrs).evaluate(inputs)
        for slot in want:
            np.testing.assert_allclose(mine[slot], want[slot], rtol=1e-4, atol=1e-4)
    assert find("sync_batch_norm")({}).is_ordered()
    assert not find("sync_batch_norm")({"is_test": True}).is_ordered()


def test_a_batch_of_one_value_passes() -> None:
    source = TEXT.replace("N, 3, 2, 2", "N, 3")
    module = module_of(source, NumpyTarget())

    def work(rank: Any) -> Any:
        step = runtime.load(module, None, {}, names={"collective": rank})
        rows = BATCH[: 1 - rank.number, :, 0, 0]
        vectors = {"s": SCALE, "b": BIAS, "m": RUNNING, "v": RUNNING}
        return [np.array(v) for v in step({"x": rows, "dy": rows, **vectors})]

    first, second = World(2).run(work)
    np.testing.assert_allclose(first[0], BATCH[:1, :, 0, 0], rtol=1e-6)
    assert second[0].shape == (0, 3)
    for rank in (first, second):
        np.testing.assert_array_equal(rank[1], RUNNING)
        np.testing.assert_array_equal(rank[4], np.zeros(3))
