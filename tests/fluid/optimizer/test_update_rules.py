"""Every optimizer: its op, what it remembers, its numbers, and sparse gradients as dense ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import clip, layers, optimizer, regularizer
from fluid.framework import Program, Variable, default_main_program

Made = Callable[..., Any]

OPTIMIZERS: dict[str, Made] = {
    "sgd": lambda **k: optimizer.SGD(0.1, **k),
    "momentum": lambda **k: optimizer.Momentum(0.1, 0.9, **k),
    "nesterov": lambda **k: optimizer.Momentum(0.1, 0.9, use_nesterov=True, **k),
    "adagrad": lambda **k: optimizer.Adagrad(0.1, **k),
    "adam": lambda **k: optimizer.Adam(0.1, **k),
    "adamax": lambda **k: optimizer.Adamax(0.1, **k),
    "decayed": lambda **k: optimizer.DecayedAdagrad(0.1, **k),
    "adadelta": lambda **k: optimizer.Adadelta(0.1, epsilon=1e-3, rho=0.9, **k),
    "rmsprop": lambda **k: optimizer.RMSProp(0.1, **k),
    "centered": lambda **k: optimizer.RMSProp(0.1, 0.9, momentum=0.5, centered=True, **k),
    "ftrl": lambda **k: optimizer.Ftrl(0.1, **k),
    "lamb": lambda **k: optimizer.Lamb(0.1, **k),
    "lars": lambda **k: optimizer.LarsMomentum(0.1, 0.9, **k),
}

# Losses of four steps by Paddle 1.8.5, with a dense gradient.
LOSSES = {
    "sgd": [0.16985, 0.16809, 0.11467, 0.12012],
    "momentum": [0.16985, 0.16809, 0.09923, 0.08198],
    "nesterov": [0.16985, 0.15322, 0.08132, 0.06503],
    "adagrad": [0.16985, 0.13157, 0.0653, 0.07407],
    "adam": [0.16985, 0.13157, 0.07087, 0.0653],
    "adamax": [0.16985, 0.13157, 0.06705, 0.06984],
    "decayed": [0.16985, 0.55397, 0.13588, 0.04703],
    "adadelta": [0.16985, 0.12509, 0.06476, 0.06131],
    "rmsprop": [0.16985, 0.53099, 0.16981, 0.04361],
    "centered": [0.16985, 0.26713, 0.09429, 0.15029],
    "ftrl": [0.16985, 0.12742, 0.07062, 0.07057],
    "lamb": [0.16985, 0.17287, 0.11154, 0.12452],
    "lars": [0.16985, 0.18685, 0.15079, 0.1771],
}

WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "decay": lambda: {"regularization": regularizer.L2Decay(0.1)},
    "value": lambda: {"grad_clip": clip.GradientClipByValue(0.05)},
    "norm": lambda: {"grad_clip": clip.GradientClipByNorm(0.1)},
    "global": lambda: {"grad_clip": clip.GradientClipByGlobalNorm(0.1)},
    "both": lambda: {
        "grad_clip": clip.GradientClipByGlobalNorm(0.1),
        "regularization": regularizer.L1Decay(0.1),
    },
}


def param(name: str, seed: int, *shape: int, **rest: Any) -> fluid.ParamAttr:
    value = np.random.RandomState(seed).uniform(-0.5, 0.5, shape).astype("float32")
    start = fluid.initializer.NumpyArrayInitializer(value)
    return fluid.ParamAttr(name=name, initializer=start, **rest)


def looked_up(sparse: bool, ids: str = "ids", **rest: Any) -> Variable:
    words = layers.data(ids, [1], dtype="int64")
    return layers.embedding(words, [6, 3], sparse, param_attr=param("emb", 1, 6, 3), **rest)


def loss_of(rows: Variable) -> Variable:
    y = layers.data("y", [2])
    out = layers.fc(rows, 2, param_attr=param("w", 2, 3, 2), bias_attr=param("b", 3, 2))
    return layers.mean(layers.square(out - y))


def train(
    made: Any, build: Callable[[], Variable], steps: int = 4
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Return losses and every persistable variable after some steps; words repeat in a batch."""
    main, startup, scope = Program(), Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build()
        made().minimize(loss)
    executor, draw = fluid.Executor(fluid.CPUPlace()), np.random.RandomState(7)
    words = [[1, 2, 1, 4, 4, 1], [3, 2, 0, 0, 3, 1]]
    losses = []
    with fluid.scope_guard(scope):
        executor.run(startup)
        for step in range(steps):
            feed = {"ids": np.array(words[step % 2]).reshape(6, 1), "y": draw.rand(6, 2)}
            feed["more"] = np.array([1, 5, 2, 1, 2, 0]).reshape(6, 1)
            known = {n: v for n, v in feed.items() if main.global_block().has_var(n)}
            known["y"] = known["y"].astype("float32")
            losses.append(float(executor.run(main, feed=known, fetch_list=[loss])[0][0]))
    state = [var.name for var in main.list_vars() if var.persistable]
    return losses, {n: np.array(scope.find_var(n).get_tensor()) for n in sorted(state)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_numbers_are_those_of_the_reference(name: str) -> None:
    losses, _ = train(OPTIMIZERS[name], lambda: loss_of(looked_up(False)))
    assert losses == pytest.approx(LOSSES[name], abs=2e-5)


IN_EVERY_WAY = ("sgd", "adagrad", "adam")
CASES = [
    (name, way) for name in OPTIMIZERS for way in WAYS if name in IN_EVERY_WAY or way == "plain"
]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_sparse_gradients_train_as_dense_ones(name: str, way: str) -> None:
    def made() -> Any:
        return OPTIMIZERS[name](**WAYS[way]())

    _, sparse = train(made, lambda: loss_of(looked_up(True)))
    _, dense = train(made, lambda: loss_of(looked_up(False)))
    for key, want in dense.items():
        np.testing.assert_allclose(sparse[key], want, rtol=1e-4, atol=3e-5, err_msg=key)


def shared(sparse: bool, second: bool) -> Variable:
    return loss_of(looked_up(sparse) + looked_up(second, "more"))


def used_whole(sparse: bool) -> Variable:
    rows = looked_up(sparse)
    table = default_main_program().global_block().var("emb")
    return loss_of(rows + layers.reduce_sum(table * table, dim=0))


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "centered"])
def test_a_table_may_be_used_twice(name: str) -> None:
    _, want = train(OPTIMIZERS[name], lambda: shared(False, False))
    for kinds in [(True, True), (True, False), (False, True)]:
        _, result = train(OPTIMIZERS[name], lambda kinds=kinds: shared(*kinds))
        np.testing.assert_allclose(result["emb"], want["emb"], rtol=1e-4, atol=3e-5)
    _, want = train(OPTIMIZERS[name], lambda: used_whole(False))
    _, result = train(OPTIMIZERS[name], lambda: used_whole(True))
    np.testing.assert_allclose(result["emb"], want["emb"], rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_padding_is_not_trained(sparse: bool) -> None:
    start = np.random.RandomState(1).uniform(-0.5, 0.5, (6, 3)).astype("float32")
    for padding in (2, -4):
        _, result = train(
            OPTIMIZERS["adam"], lambda p=padding: loss_of(looked_up(sparse, padding_idx=p))
        )
        np.testing.assert_array_equal(result["emb"][2], start[2])
        assert (result["emb"][[0, 1, 3, 4]] != start[[0, 1, 3, 4]]).all()


def test_optimizer_state_names() -> None:
    expected = {
        "adagrad": ["moment"],
        "decayed": ["moment"],
        "adadelta": ["_avg_squared_grad", "_avg_squared_update"],
        "rmsprop": ["momentum", "mean_square", "mean_grad"],
        "ftrl": ["squared", "linear"],
        "lamb": ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"],
        "lars": ["velocity"],
    }
    for name, wanted in expected.items():
        with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
            created = OPTIMIZERS[name]()
            created.minimize(loss_of(looked_up(False)))
        actual = [each for each in created.get_opti_var_name_list() if each.startswith("w_")]
        assert actual == [f"w_{each}_0" for each in wanted]


def update(made: Any) -> Any:
    """Return the op that updates `w`."""
    main = Program()
    with fluid.program_guard(main, Program()), fluid.unique_name.guard():
        made.minimize(loss_of(looked_up(False)))
    return next(op for op in main.global_block().ops if op.inputs.get("Param") == ["w"])


def test_ops_have_the_slots_of_the_reference() -> None:
    assert "LearningRate" not in update(OPTIMIZERS["adadelta"]()).inputs
    lamb = update(optimizer.Lamb(exclude_from_weight_decay_fn=lambda param: param.name == "w"))
    assert lamb.attr("weight_decay") == 0.0
    assert list(lamb.outputs) == ["Moment1Out", "Moment2Out", "ParamOut"]
    ftrl = update(optimizer.Ftrl(0.1, l1=0.2, l2=0.3))
    assert (ftrl.attr("l1"), ftrl.attr("l2")) == pytest.approx((0.2, 0.3))
    assert ftrl.output("SquaredAccumOut") == ftrl.input("SquaredAccumulator")
    assert update(optimizer.Dpsgd(0.1, clip=2.0)).all_attrs().items() >= {"clip": 2.0}.items()


def test_betas_may_be_variables() -> None:
    def made() -> Any:
        rates = [layers.fill_constant([1], "float32", beta) for beta in (0.8, 0.9)]
        return optimizer.Adam(0.1, *rates)

    _, result = train(made, lambda: loss_of(looked_up(False)), steps=1)
    _, want = train(lambda: optimizer.Adam(0.1, 0.8, 0.9), lambda: loss_of(looked_up(False)), 1)
    np.testing.assert_allclose(result["w_moment1_0"], want["w_moment1_0"], rtol=1e-5)
    assert result["w_beta1_pow_acc_0"] == pytest.approx(0.9 * 0.8)


def test_dpsgd_without_noise_is_sgd_with_short_gradients() -> None:
    _, result = train(
        lambda: optimizer.Dpsgd(0.1, 0.05, 1.0, 0.0), lambda: loss_of(looked_up(True))
    )
    limit = clip.GradientClipByNorm(0.05)
    _, want = train(lambda: optimizer.SGD(0.1, grad_clip=limit), lambda: loss_of(looked_up(True)))
    np.testing.assert_allclose(result["emb"], want["emb"], rtol=1e-5, atol=1e-6)


def test_state_is_saved_and_loaded() -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        created = optimizer.Momentum(0.1, 0.9)
        assert created.state_dict() == {}
        created.minimize(loss_of(looked_up(False)))
    assert list(created.state_dict()) == ["b_velocity_0", "emb_velocity_0", "w_velocity_0"]
    state = {name: np.full(var.shape, 2.0, "float32") for name, var in created.state_dict().items()}
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor().run(startup)
        with pytest.raises(AssertionError, match=r"w_velocity_0 is float32 of shape \(3, 2\), but"):
            created.set_dict(state | {"w_velocity_0": np.zeros((2, 3), "float32")})
        with pytest.raises(AssertionError, match="but the state passed has none"):
            created.set_dict({})
        created.set_dict(state)
        assert np.asarray(fluid.global_scope().find_var("w_velocity_0").get_tensor()).min() == 2.0
