"""What `minimize` appends, in which order, with which roles."""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.ir.program import OpRole
from fluid import clip, layers, optimizer, regularizer
from fluid.framework import (
    Operator,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
)

pytestmark = pytest.mark.usefixtures("fresh_programs")


def line(**rest: Any) -> Variable:
    """Return the loss of a line through 13 features."""
    x, y = layers.data("x", [13]), layers.data("y", [1])
    return layers.mean(layers.square_error_cost(layers.fc(x, 1, **rest), y))


def appended(before: int = 5) -> list[Operator]:
    return default_main_program().global_block().ops[before:]


def kinds(ops: list[Operator]) -> list[str]:
    return [op.type for op in ops]


def roles(ops: list[Operator]) -> list[int]:
    return [int(op.role) for op in ops]


BACKWARD = ["fill_constant", "mean_grad", "square_grad", "elementwise_sub_grad"]
BACKWARD += ["elementwise_add_grad", "mul_grad"]


def test_order_roles_and_pairs() -> None:
    updates, pairs = optimizer.SGD(0.1).minimize(line())
    ops = appended()
    assert kinds(ops) == [*BACKWARD, "sgd", "sgd"]
    assert roles(ops) == [257, 1, 1, 1, 1, 1, 2, 2]
    assert default_main_program().global_block().ops[4].role == OpRole.LOSS
    # Updates are sorted by name, pairs keep the order of creation.
    assert [op.input("Param")[0] for op in ops[6:]] == ["fc_0.b_0", "fc_0.w_0"]
    assert [(p.name, g.name) for p, g in pairs] == [
        ("fc_0.w_0", "fc_0.w_0@GRAD"),
        ("fc_0.b_0", "fc_0.b_0@GRAD"),
    ]
    assert updates == ops[6:]
    assert [op.attr("op_role_var") for op in ops[4:]] == [
        ["fc_0.b_0", "fc_0.b_0@GRAD"],
        ["fc_0.w_0", "fc_0.w_0@GRAD"],
        ["fc_0.b_0", "fc_0.b_0@GRAD"],
        ["fc_0.w_0", "fc_0.w_0@GRAD"],
    ]
    assert [op.attr("op_namescope") for op in updates] == ["/optimizer/", "/optimizer_1/"]


def test_what_is_remembered_starts_in_the_startup_program() -> None:
    created = optimizer.Adam(0.1, beta1=0.8)
    created.minimize(line(bias_attr=False))
    names = ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"]
    assert created.get_opti_var_name_list() == [f"fc_0.w_0_{name}_0" for name in names]
    started = default_startup_program().global_block().ops
    values = {op.output("Out")[0]: op.attrs.get("value") for op in started}
    assert list(values) == [
        "learning_rate_0",
        *(f"fc_0.w_0_{name}_0" for name in reversed(names)),
        "fc_0.w_0",
    ]
    assert (values["learning_rate_0"], values["fc_0.w_0_beta1_pow_acc_0"]) == pytest.approx(
        (0.1, 0.8)
    )
    state = default_main_program().global_block().var("fc_0.w_0_moment1_0")
    assert (state.shape, state.persistable, state.belong_to_optimizer) == ((13, 1), True, True)


def test_a_name_is_part_of_what_is_remembered() -> None:
    created = optimizer.Momentum(0.1, 0.9, name="mine")
    created.minimize(line(bias_attr=False))
    assert created.get_opti_var_name_list() == ["fc_0.w_0_mine_velocity_0"]


def test_parameters_have_their_own_rates() -> None:
    attr = fluid.ParamAttr(learning_rate=0.5)
    optimizer.SGD(0.1).minimize(line(param_attr=attr))
    ops = appended()
    assert kinds(ops[6:]) == ["sgd", "scale", "sgd"]
    assert roles(ops[6:]) == [2, 18, 2]
    assert ops[8].input("LearningRate") == ops[7].output("Out")
    assert ops[7].attr("op_namescope") == "/optimizer_1/scale_with_param_lr/"


def test_one_rate_variable_serves_two_losses() -> None:
    first, second = line(), line()
    created = optimizer.SGD(0.1)
    created.minimize(first, parameter_list=["fc_0.w_0"])
    created.minimize(second, parameter_list=[default_main_program().global_block().var("fc_1.w_0")])
    updates = [op for op in appended(0) if op.type == "sgd"]
    assert [op.input("Param")[0] for op in updates] == ["fc_0.w_0", "fc_1.w_0"]
    assert {op.input("LearningRate")[0] for op in updates} == {"learning_rate_0"}


def test_a_schedule_is_the_rate() -> None:
    rate = layers.exponential_decay(0.1, 2, 0.5)
    optimizer.SGD(rate).minimize(line(bias_attr=False))
    ops = appended(0)
    assert (ops[0].type, ops[0].role) == ("increment", OpRole.LRSCHED)
    assert ops[-1].input("LearningRate") == [rate.name]
    assert "learning_rate_0" not in default_startup_program().global_block().vars


def test_no_grad_and_trainable_leave_parameters_alone() -> None:
    loss = line(param_attr=fluid.ParamAttr(trainable=False))
    _, pairs = optimizer.SGD(0.1).minimize(loss)
    assert [param.name for param, _ in pairs] == ["fc_0.b_0"]
    assert "mul_grad" not in kinds(appended())


def test_no_grad_set_takes_names_and_variables() -> None:
    loss = line()
    weight = default_main_program().global_block().var("fc_0.w_0")
    _, pairs = optimizer.SGD(0.1).minimize(loss, no_grad_set={weight, "fc_0.tmp_0"})
    assert [param.name for param, _ in pairs] == ["fc_0.b_0"]


def test_programs_of_the_loss_are_used() -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup):
        loss = line()
    optimizer.Momentum(0.1, 0.9).minimize(loss, startup_program=startup)
    assert default_main_program().global_block().ops == []
    assert kinds(main.global_block().ops)[-2:] == ["momentum", "momentum"]
    assert len(startup.global_block().ops) == 5


# ---- weight decay


def test_decay_comes_before_updates() -> None:
    optimizer.SGD(0.1, regularization=regularizer.L2Decay(0.5)).minimize(line())
    ops = appended(11)
    assert kinds(ops) == ["scale", "sum", "scale", "sum", "sgd", "sgd"]
    assert [op.attr("op_namescope") for op in ops[:4]] == ["/regularization/"] * 4
    assert (ops[0].attr("scale"), ops[1].output("Out")) == (0.5, ["fc_0.b_0@GRAD"])
    assert ops[1].input("X") == ["fc_0.b_0@GRAD", *ops[0].output("Out")]


def test_a_parameter_s_decay_is_first() -> None:
    attr = fluid.ParamAttr(regularizer=regularizer.L1Decay(0.25))
    loss = line(param_attr=attr)
    optimizer.SGD(0.1, regularization=regularizer.L2Decay(0.5)).minimize(loss)
    ops = appended(11)
    assert kinds(ops) == ["scale", "sum", "sign", "scale", "sum", "sgd", "sgd"]
    assert [ops[0].attr("scale"), ops[3].attr("scale")] == [0.5, 0.25]
    assert str(attr.regularizer) == "L1Decay, regularization_coeff=0.250000"


# ---- clipping


def test_global_norm_is_over_all_gradients() -> None:
    limit = clip.GradientClipByGlobalNorm(0.5)
    _, pairs = optimizer.SGD(0.1, grad_clip=limit).minimize(line())
    ops = appended(11)
    assert kinds(ops) == [
        *["square", "reduce_sum"] * 2,
        *["sum", "sqrt", "fill_constant", "elementwise_max", "elementwise_div"],
        *["elementwise_mul", "elementwise_mul", "sgd", "sgd"],
    ]
    assert {op.attr("op_namescope") for op in ops[:11]} == {"/gradient_clip/"}
    assert ops[0].attr("op_role_var") == ["fc_0.b_0", "elementwise_mul_0.tmp_0"]
    assert ops[-1].input("Grad") == ["elementwise_mul_1.tmp_0"]
    # What is returned are the gradients before clipping.
    assert [grad.name for _, grad in pairs] == ["fc_0.w_0@GRAD", "fc_0.b_0@GRAD"]


def test_some_gradients_need_no_clip() -> None:
    limit = clip.GradientClipByValue(0.5, need_clip=lambda param: param.name.endswith("b_0"))
    optimizer.SGD(0.1, grad_clip=limit).minimize(line())
    ops = appended(11)
    assert kinds(ops) == ["clip", "sgd", "sgd"]
    assert [op.input("Grad")[0] for op in ops[1:]] == ["clip_0.tmp_0", "fc_0.w_0@GRAD"]
    assert (ops[0].attr("min"), ops[0].attr("max")) == (-0.5, 0.5)


def test_clips_set_beforehand_work_for_some_parameters() -> None:
    loss = line()
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(0.5), param_list=["fc_0.w_0"])
    optimizer.SGD(0.1).minimize(loss)
    ops = appended(11)
    assert [op.type for op in ops if op.role == 2].count("elementwise_mul") == 1
    assert [op.input("Grad")[0] for op in ops[-2:]] == ["fc_0.b_0@GRAD", "elementwise_mul_0.tmp_0"]


def test_a_group_has_one_norm() -> None:
    loss = line()
    for name, norm in (("fc_0.w_0", 0.5), ("fc_0.b_0", 0.6)):
        clip.set_gradient_clip(clip.GradientClipByGlobalNorm(norm), param_list=[name])
    with pytest.raises(ValueError, match="all clips of group 'default_group'"):
        optimizer.SGD(0.1).minimize(loss)


def test_clips_that_come_too_late_or_twice_warn() -> None:
    loss = line()
    limit = clip.GradientClipByValue(0.5)
    clip.set_gradient_clip(limit)
    with pytest.warns(UserWarning, match="since the optimizer has a grad_clip"):
        optimizer.SGD(0.1, grad_clip=limit).minimize(loss)
    with pytest.warns(UserWarning, match="no effect after minimize"):
        clip.set_gradient_clip(limit)


def test_errors_are_clipped_on_their_way() -> None:
    loss = line()
    product = loss.block.var("fc_0.tmp_0")
    product._set_error_clip(clip.ErrorClipByValue(0.5))
    optimizer.SGD(0.1).minimize(loss)
    ops = appended(11 - 1)
    assert kinds(ops) == ["clip", "mul_grad", "sgd", "sgd"]
    assert (ops[0].input("X"), ops[0].output("Out")) == (["fc_0.tmp_0@GRAD"],) * 2
    assert ops[0].role == OpRole.BACKWARD


class Halves(clip.GradientClipBase):
    """A clip as scripts of release 1.8.5 define their own."""

    def _static_clip(self, params_grads: Any) -> Any:
        return [(param, fluid.layers.scale(grad, 0.5)) for param, grad in params_grads]


def test_a_clip_of_ones_own_defines_static_clip() -> None:
    _, weight = train(lambda: optimizer.SGD(0.1), 1)
    _, clipped = train(lambda: optimizer.SGD(0.1, grad_clip=Halves()), 1)
    np.testing.assert_allclose(1 - clipped, (1 - weight) / 2, rtol=1e-5)


# ---- bad arguments


def test_bad_arguments() -> None:
    loss = line()
    with pytest.raises(
        TypeError, match="'learning_rate' in SGDOptimizer must be float or Variable"
    ):
        optimizer.SGD("0.1")
    with pytest.raises(TypeError, match="'grad_clip' in SGDOptimizer must be GradientClipBase"):
        optimizer.SGD(0.1, grad_clip=0.5)
    with pytest.raises(TypeError, match="'loss' in minimize must be Variable, but received str"):
        optimizer.SGD(0.1).minimize("loss")
    with pytest.raises(
        AssertionError, match=r"should be \(1,\), but the current loss.shape is \(-1, 1\)"
    ):
        optimizer.SGD(0.1).minimize(loss.block.var("fc_0.tmp_1"))
    with pytest.raises(TypeError, match="'parameter_list' in minimize must be list"):
        optimizer.SGD(0.1).minimize(loss, parameter_list="fc_0.w_0")
    with pytest.raises(TypeError, match="'no_grad_set' in append_backward must be Variable or str"):
        optimizer.SGD(0.1).minimize(loss, no_grad_set={3})
    with pytest.raises(TypeError, match="'clip' in set_gradient_clip must be GradientClipBase"):
        clip.set_gradient_clip(0.5)
    with pytest.raises(ValueError, match="needs max > 0, not -1"):
        clip.GradientClipByValue(-1.0)
    assert kinds(appended(0)) == ["mul", "elementwise_add", "elementwise_sub", "square", "mean"]


# ---- numbers


def train(made: Any, steps: int = 3) -> tuple[list[float], np.ndarray]:
    """Return losses and the weight after some steps with a weight that starts at 1."""
    scope, executor = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [2])
        start = fluid.initializer.Constant(1.0)
        out = layers.fc(
            x, 1, param_attr=fluid.ParamAttr(name="w", initializer=start), bias_attr=False
        )
        loss = layers.mean(out)
        made().minimize(loss)
    feed = {"x": np.array([[1.0, -2.0]], "float32")}
    with fluid.scope_guard(scope):
        executor.run(startup)
        losses = [
            float(executor.run(main, feed=feed, fetch_list=[loss])[0][0]) for _ in range(steps)
        ]
    return losses, np.asarray(scope.find_var("w").get_tensor()).ravel()


CASES: list[tuple[Any, list[float]]] = [
    (lambda: optimizer.SGD(0.1), [0.7, 1.6]),
    (lambda: optimizer.Momentum(0.1, 0.5), [1 - 0.425, 1 + 0.85]),
    (lambda: optimizer.Momentum(0.1, 0.5, use_nesterov=True), [1 - 0.5125, 1 + 1.025]),
    (lambda: optimizer.Adam(0.1), [0.7, 1.3]),
    (lambda: optimizer.SGD(0.1, grad_clip=clip.GradientClipByValue(0.5)), [0.85, 1.15]),
    (lambda: optimizer.SGD(0.1, grad_clip=clip.GradientClipByGlobalNorm(5**0.5 / 2)), [0.85, 1.3]),
    (lambda: optimizer.SGD(0.1, regularization=regularizer.L1Decay(1.0)), [0.4, 1.3]),
]


@pytest.mark.parametrize(("made", "weight"), CASES)
def test_updates(made: Any, weight: list[float]) -> None:
    losses, result = train(made)
    assert losses[0] == pytest.approx(-1.0)
    assert result == pytest.approx(weight, rel=1e-5)


# The rates of the first six steps in Paddle 1.8.5.
SCHEDULES: list[tuple[Any, list[float]]] = [
    (lambda: layers.exponential_decay(1.0, 2, 0.5), [1, 0.7071, 0.5, 0.3536, 0.25, 0.1768]),
    (lambda: layers.exponential_decay(1.0, 2, 0.5, staircase=True), [1, 1, 0.5, 0.5, 0.25, 0.25]),
    (lambda: layers.piecewise_decay([2, 4], [1.0, 0.5, 0.1]), [1, 1, 0.5, 0.5, 0.1, 0.1]),
    (lambda: layers.noam_decay(64, 3), [0.02406, 0.04811, 0.07217, 0.0625, 0.0559, 0.05103]),
    (lambda: layers.cosine_decay(1.0, 2, 4), [1, 1, 0.8536, 0.8536, 0.5, 0.5]),
    (lambda: layers.polynomial_decay(1.0, 4, 0.1, 1.0), [1, 0.775, 0.55, 0.325, 0.1, 0.1]),
    (lambda: layers.inverse_time_decay(1.0, 2, 0.5), [1, 0.8, 0.6667, 0.5714, 0.5, 0.4444]),
    (lambda: layers.natural_exp_decay(1.0, 2, 0.5), [1, 0.7788, 0.6065, 0.4724, 0.3679, 0.2865]),
    (lambda: layers.linear_lr_warmup(0.5, 3, 0.1, 0.4), [0.1, 0.2, 0.3, 0.5, 0.5, 0.5]),
    (
        lambda: layers.linear_lr_warmup(layers.inverse_time_decay(1.0, 2, 0.5), 1, 0.0, 0.1),
        [0.0, 0.8, 0.6667, 0.5714, 0.5, 0.4444],
    ),
]


@pytest.mark.parametrize(("schedule", "rates"), SCHEDULES)
def test_rates(schedule: Any, rates: list[float]) -> None:
    rate = schedule()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(default_startup_program())
    results = [float(executor.run(fetch_list=[rate])[0][0]) for _ in rates]
    assert results == pytest.approx(rates, abs=5e-5)


def test_polynomial_rates_in_cycles() -> None:
    test_rates(lambda: layers.polynomial_decay(1.0, 2, 0.0, cycle=True), [1, 0.5, 0.0, 0.25, 0.0])


def test_a_variable_that_is_no_parameter_is_named_with_what_to_do(exe: Any) -> None:
    block = fluid.default_main_program().global_block()
    weight = block.create_var(name="w", shape=[1], dtype="float32", persistable=True)
    fluid.global_scope().var("w").get_tensor().set(np.ones(1, "float32"), fluid.CPUPlace())
    loss = layers.mean(weight * 2.0)
    with pytest.raises(ValueError, match="'w' is a Variable, not a Parameter") as caught:
        optimizer.SGD(0.1).minimize(loss, parameter_list=["w"])
    block.create_parameter(name="w", shape=[1], dtype="float32")
    assert "create_parameter(name='w', shape=[1], dtype='float32')" in str(caught.value)
    optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    exe.run(fetch_list=[loss])
    assert exe.run(fetch_list=[loss])[0] == pytest.approx(1.6)
