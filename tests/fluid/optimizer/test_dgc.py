"""Deep gradient compression: the formula of its ops, and training on two ranks by that formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.ir.opdef import find
from fluid.core import EnforceNotMet
from fluid.data_parallel.build import build
from fluid.optimizer import DGCMomentumOptimizer, MomentumOptimizer
from tests.fluid.data_parallel.thread_ring import ThreadRank, ThreadRing

WIDTH, ROWS, STEPS = 128, 8, 6
RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.01


def dgc(begin: int, **more: Any) -> Any:
    return DGCMomentumOptimizer(
        RATE, MOMENTUM, begin, rampup_step=2, sparsity=[0.75, 0.99],
        regularization=fluid.regularizer.L2Decay(DECAY), **more,
    )  # fmt: skip


def training(optimizer: Any) -> fluid.Variable:
    """The loss of a layer whose weight is compressed, and whose bias is not."""
    fluid.default_startup_program().random_seed = 5
    x = fluid.data("x", [None, WIDTH])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, WIDTH, act="tanh")))
    optimizer.minimize(loss)
    return loss


def batches() -> list[Any]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=(ROWS, WIDTH)).astype(np.float32) for _ in range(STEPS)]


def started() -> fluid.Scope:
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    return scope


def on_ranks(
    ranks: int, fetch: list[str], **fields: Any
) -> tuple[list[Any], list[Any], ThreadRing]:
    """What each rank fetches in every step, its values at the end, and what was exchanged."""
    strategy = fluid.BuildStrategy()
    for name, value in fields.items():
        setattr(strategy, name, value)
    built = build(fluid.default_main_program(), strategy, ranks, fetch)
    ring, scopes = ThreadRing(ranks), [started() for _ in range(ranks)]
    programs = [program.clone() for program in built.programs]
    executors = [fluid.Executor() for _ in programs]
    for rank, program in enumerate(programs):
        program.collective = ThreadRank(ring, rank)

    def step(rank: int, batch: Any) -> Any:
        feed = {"x": np.split(batch, ranks)[rank]}
        return executors[rank].run(programs[rank], feed, fetch, scope=scopes[rank])

    results = [ring.run(lambda rank, b=batch: step(rank, b)) for batch in batches()]
    values = [{n: np.array(v) for n, v in scope.arrays().items()} for scope in scopes]
    return results, values, ring


@pytest.mark.usefixtures("fresh_programs")
def test_before_the_first_compressed_step_it_is_momentum() -> None:
    training(dgc(begin=100))
    _, values, ring = on_ranks(2, [])
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        decay = fluid.regularizer.L2Decay(DECAY)
        training(MomentumOptimizer(RATE, MOMENTUM, regularization=decay))
        _, dense, _ = on_ranks(2, [])
    for name in ("fc_0.w_0", "fc_0.b_0"):
        np.testing.assert_allclose(values[0][name], dense[0][name], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(values[0][name], values[1][name])
    assert not any("rows" in call for call in ring.calls)


def largest(values: Any, count: int) -> Any:
    """Which elements are the largest."""
    return np.argsort(-np.abs(values).ravel(), kind="stable")[:count]


def formula(gradients: list[Any], weight: Any, begin: int, nesterov: bool) -> Any:
    """The weight after training, from each rank's gradient at the weight of each step."""
    ranks = len(gradients[0])
    u, v = np.zeros((2, ranks, *weight.shape), np.float64)
    for step, given in enumerate(gradients):
        full = [g + DECAY * weight for g in given]
        if step < begin:
            g = np.mean(full, axis=0)
            u[:] = MOMENTUM * u[0] + g
            weight = weight - RATE * (g + MOMENTUM * u[0] if nesterov else u[0])
            continue
        sparsity = 0.75 if step - begin < 1 else 0.99
        total = np.zeros_like(weight)
        for rank, g in enumerate(full):
            u[rank] = MOMENTUM * (u[rank] + g) if nesterov else MOMENTUM * u[rank] + g
            v[rank] += u[rank] + g if nesterov else u[rank]
            sent = largest(v[rank], int(weight.size * (1 - sparsity)))
            total.flat[sent] += v[rank].flat[sent]
            u[rank].flat[sent] = v[rank].flat[sent] = 0
        weight = weight - RATE * total / ranks
    return weight


def gradient(weight: Any, bias: Any, rows: Any) -> tuple[Any, Any]:
    """Of mean(tanh(x·w + b)²), by weight and by bias."""
    y = np.tanh(rows @ weight + bias)
    above = 2 * y * (1 - y**2) / y.size
    return rows.T @ above, above.sum(axis=0)


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(("ranks", "nesterov"), [(2, False), (2, True), (4, False)])
def test_training_follows_the_formula(ranks: int, nesterov: bool) -> None:
    training(dgc(begin=2, use_nesterov=nesterov))
    weight = np.array(started().find_var("fc_0.w_0").get_tensor()).astype(np.float64)
    actual, values, ring = on_ranks(ranks, ["fc_0.w_0", "fc_0.b_0"])
    gradients, before = [], (weight, np.zeros(WIDTH))
    for batch, fetched in zip(batches(), actual, strict=True):
        gradients.append([gradient(*before, part)[0] for part in np.split(batch, ranks)])
        before = tuple(each.astype(np.float64) for each in fetched[0])
    expected = formula(gradients, weight, 2, nesterov)
    np.testing.assert_allclose(values[0]["fc_0.w_0"], expected, rtol=1e-4, atol=1e-6)
    for other in values[1:]:
        np.testing.assert_array_equal(values[0]["fc_0.w_0"], other["fc_0.w_0"])
    assert sum("rows" in call for call in ring.calls) == STEPS - 2


@pytest.mark.usefixtures("fresh_programs")
def test_owners_and_single_sums_change_nothing() -> None:
    training(dgc(begin=1))
    _, expected, _ = on_ranks(2, [])
    reduce = fluid.BuildStrategy.ReduceStrategy.Reduce
    for fields in ({"reduce_strategy": reduce}, {"fuse_all_reduce_ops": False}):
        _, actual, _ = on_ranks(2, [], **fields)
        np.testing.assert_allclose(actual[1]["fc_0.w_0"], expected[1]["fc_0.w_0"], atol=1e-7)


@pytest.mark.usefixtures("fresh_programs")
def test_one_rank_is_an_error_as_in_the_reference(exe: Any) -> None:
    training(dgc(begin=1))
    exe.run(fluid.default_startup_program())
    with pytest.raises(EnforceNotMet, match="DGC is not useful when num_trainers <= 1"):
        exe.run(feed={"x": batches()[0]})


def test_a_clip_is_of_each_rank_and_only_by_norm() -> None:
    clip = fluid.clip.GradientClipByNorm(2.0)
    assert dgc(0, grad_clip=clip, num_trainers=4)._rank_clip_norm == 1.0
    with pytest.raises(TypeError, match="only support GradientClipByNorm"):
        dgc(0, grad_clip=fluid.clip.GradientClipByValue(1.0), num_trainers=2)
    with pytest.raises(AssertionError, match="num_trainers should be an int above 0"):
        dgc(0, grad_clip=clip)
    with pytest.raises(ValueError, match="sparsity has values above 0"):
        DGCMomentumOptimizer(0.1, 0.9, 0, sparsity=[0.0])


@pytest.mark.usefixtures("fresh_programs")
def test_the_ops_of_a_program() -> None:
    training(dgc(0, grad_clip=fluid.clip.GradientClipByNorm(2.0), num_trainers=2))
    kinds = [op.type for op in fluid.default_main_program().global_block().ops]
    assert kinds[0] == "increment" and kinds.count("dgc_clip_by_norm") == kinds.count("dgc") == 1
    assert kinds.index("dgc_clip_by_norm") < kinds.index("dgc") < kinds.index("dgc_momentum")
    assert kinds.count("momentum") == 1 and kinds.count("clip_by_norm") == 1
    (clone,) = {id(program): program for program in build_on_two().programs}.values()
    ops = [op for op in clone.global_block().ops if "allreduce" in op.type]
    assert [op.type for op in ops] == ["c_allreduce_sum", "dgc_allreduce_sum"]
    assert clone.global_block().ops[0].attr("value") == 2.0


def build_on_two() -> Any:
    return build(fluid.default_main_program(), fluid.BuildStrategy(), 2)


def test_the_op_by_itself() -> None:
    draw = np.random.default_rng(1)
    u, v, g, p = draw.normal(size=(4, 10)).astype(np.float32)
    one = {"current_step": np.array([7.0], "f4"), "nranks": np.array([2.0], "f4")}
    op = find("dgc")({"m": 0.5, "sparsity": [0.7], "rampup_step": 1.0})
    created = op.evaluate({"U": u, "V": v, "Grad": g, "Param": p, **one})
    kept = 0.5 * u + 2 * g
    sent = np.zeros(10, np.float32)
    chosen = largest(v + kept, 3)
    sent[chosen] = (v + kept)[chosen]
    np.testing.assert_allclose(created["Grad_out"], sent, rtol=1e-6)
    np.testing.assert_allclose(created["V_out"] + sent, v + kept, rtol=1e-6)
    assert created["k"].tolist() == [3] and not created["U_out"][chosen].any()


@pytest.mark.usefixtures("fresh_programs", "two_devices")
def test_on_two_processes(exe: Any) -> None:
    loss = training(dgc(begin=2))
    _, expected, _ = on_ranks(2, [])
    scope = started()
    program = fluid.CompiledProgram(fluid.default_main_program())
    program.with_data_parallel(loss_name=loss.name)
    for batch in batches():
        exe.run(program, feed={"x": batch}, fetch_list=[loss], scope=scope)
    for name in ("fc_0.w_0", "fc_0.b_0"):
        actual = np.array(scope.find_var(name).get_tensor())
        np.testing.assert_allclose(actual, expected[0][name], rtol=1e-5, atol=1e-7)
