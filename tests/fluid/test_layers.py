"""Layers: names, parameters, shapes, and errors of bad arguments."""

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Block, Variable, default_main_program, default_startup_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def ops() -> list[str]:
    return [op.type for op in default_main_program().global_block().ops]


def started() -> dict[str, str]:
    """Return which op writes each variable of the startup program, in the order of its ops."""
    block = default_startup_program().global_block()
    return {op.output("Out")[0]: op.type for op in block.ops}


def image(*shape: int) -> Variable:
    return layers.data("image", list(shape or (3, 8, 8)))


# ---- names


def test_fully_connected() -> None:
    out = layers.fc(layers.data("x", [4, 5]), 3, act="relu")
    assert ops() == ["mul", "elementwise_add", "relu"]
    names = ["x", "fc_0.w_0", "fc_0.tmp_0", "fc_0.b_0", "fc_0.tmp_1", "fc_0.tmp_2"]
    assert list(default_main_program().global_block().vars) == names
    assert (out.name, out.shape) == ("fc_0.tmp_2", (-1, 3))
    assert default_main_program().global_block().var("fc_0.w_0").shape == (20, 3)
    assert list(started()) == ["fc_0.b_0", "fc_0.w_0"]


def test_fully_connected_keeps_axes() -> None:
    x = layers.data("x", [4, 5])
    assert layers.fc(x, 3, num_flatten_dims=2).shape == (-1, 4, 3)
    assert layers.fc(x, 3, num_flatten_dims=-1).shape == (-1, 4, 3)


def test_two_inputs_have_two_weights_and_one_bias() -> None:
    x, y = layers.data("x", [4]), layers.data("y", [5])
    layers.fc([x, y], 3)
    assert ops() == ["mul", "mul", "sum", "elementwise_add"]
    params = [param.name for param in default_main_program().all_parameters()]
    assert params == ["fc_0.w_0", "fc_0.w_1", "fc_0.b_0"]


def test_a_given_name_is_the_layer_s() -> None:
    out = layers.fc(layers.data("x", [4]), 3, name="mine")
    params = [param.name for param in default_main_program().all_parameters()]
    assert (params, out.name) == (["mine.w_0", "mine.b_0"], "mine.tmp_1")


def test_convolution_and_batch_norm() -> None:
    out = layers.batch_norm(layers.conv2d(image(), 4, 3, padding=1), act="relu")
    block = default_main_program().global_block()
    assert ops() == ["conv2d", "elementwise_add", "batch_norm", "relu"]
    assert block.var("conv2d_0.w_0").shape == (4, 3, 3, 3)
    assert (out.name, out.shape) == ("batch_norm_0.tmp_3", (-1, 4, 8, 8))
    roles = {name: block.ops[2].input(slot)[0] for slot, name in RUNNING.items()}
    assert roles == {name: f"batch_norm_0.{name}" for name in RUNNING.values()}
    frozen = [p.name for p in block.all_parameters() if not p.trainable]
    assert frozen == ["batch_norm_0.w_1", "batch_norm_0.w_2"]
    assert all(block.var(name).stop_gradient for name in frozen)
    assert started()["conv2d_0.w_0"] == "gaussian_random"


RUNNING = {"Scale": "w_0", "Bias": "b_0", "Mean": "w_1", "Variance": "w_2"}


def test_names_of_losses_and_accuracy() -> None:
    chances = layers.softmax(layers.data("x", [4]))
    label = layers.data("label", [1], dtype="int64")
    loss, accuracy = layers.cross_entropy(chances, label), layers.accuracy(chances, label)
    both = layers.softmax_with_cross_entropy(chances, label, return_softmax=True)
    cost = layers.square_error_cost(chances, chances)
    assert ops() == [
        "softmax",
        "cross_entropy2",
        "top_k",
        "accuracy",
        "softmax_with_cross_entropy",
        "elementwise_sub",
        "square",
    ]
    assert (loss.name, accuracy.name) == ("cross_entropy2_0.tmp_0", "accuracy_0.tmp_0")
    assert [var.name.rpartition(".")[2] for var in both] == ["tmp_1", "tmp_0"]
    assert cost.name == "square_error_cost_0.tmp_1"


def test_data_has_a_batch_in_front_by_default() -> None:
    cases: list[tuple[Any, dict[str, Any], tuple[int, ...]]] = [
        ([3], {}, (-1, 3)),
        ([3], {"append_batch_size": False}, (3,)),
        ([-1, 3], {}, (-1, 3)),
        ([4, None], {}, (4, -1)),
    ]
    for index, (shape, rest, wanted) in enumerate(cases):
        var = layers.data(f"x{index}", shape, **rest)
        assert (var.shape, var.stop_gradient, var.is_data) == (wanted, True, True)
    strict = fluid.data("y", [None, 3], "int64")
    assert (strict.shape, strict.need_check_feed, strict.is_data) == ((-1, 3), True, True)


def test_parameters_shared_by_name_start_once() -> None:
    for _ in range(2):
        layers.fc(layers.data("x", [4]), 3, param_attr="shared", bias_attr=False)
    assert [p.name for p in default_main_program().all_parameters()] == ["shared"]
    assert list(started()) == ["shared"]


def test_names_begin_with_the_guard_s_prefix() -> None:
    with fluid.unique_name.guard("pre_"):
        out = layers.fc(layers.data("x", [4]), 3)
    assert out.name == "pre_pre_fc_0.tmp_1"
    assert fluid.unique_name.generate("fc") == "fc_0"


def test_guards_of_names_restore_what_was() -> None:
    fluid.unique_name.generate("a")
    with pytest.raises(KeyError), fluid.unique_name.guard():
        assert fluid.unique_name.generate("a") == "a_0"
        raise KeyError
    assert fluid.unique_name.generate("a") == "a_1"


# ---- arguments


@pytest.mark.parametrize(
    ("padding", "paddings", "algorithm"),
    [
        (1, [1, 1], "EXPLICIT"),
        ([1, 2], [1, 2], "EXPLICIT"),
        ([1, 1, 2, 2], [1, 2], "EXPLICIT"),
        ([1, 2, 3, 4], [1, 2, 3, 4], "EXPLICIT"),
        ([[0, 0], [0, 0], [1, 2], [3, 4]], [1, 2, 3, 4], "EXPLICIT"),
        ("same", [0, 0], "SAME"),
        ("VALID", [0, 0], "VALID"),
    ],
)
def test_paddings(padding: Any, paddings: list[int], algorithm: str) -> None:
    for op in (
        layers.conv2d(image(), 2, 3, padding=padding, bias_attr=False).op,
        layers.pool2d(image(), 3, pool_padding=padding).op,
    ):
        assert (op.attr("paddings"), op.attr("padding_algorithm")) == (paddings, algorithm)


def test_alone_standing_channels_are_depthwise() -> None:
    out = layers.conv2d(image(), 6, 3, groups=3, use_cudnn=False)
    assert (ops()[0], out.name) == ("depthwise_conv2d", "depthwise_conv2d_0.tmp_1")


def test_channels_in_groups() -> None:
    weight = layers.conv2d(image(), 6, 3, groups=3, bias_attr=False).op.input("Filter")[0]
    assert default_main_program().global_block().var(weight).shape == (6, 1, 3, 3)
    assert ops() == ["conv2d"]


def test_reductions() -> None:
    x = layers.data("x", [4, 5])
    attrs = [
        layers.reduce_sum(x).op.all_attrs(),
        layers.reduce_mean(x, dim=1).op.all_attrs(),
        layers.reduce_sum(x, dim=[1, 2], keep_dim=True).op.all_attrs(),
    ]
    picked = [(a["dim"], a["keep_dim"], a["reduce_all"]) for a in attrs]
    assert picked == [([0], False, True), ([1], False, False), ([1, 2], True, False)]


def test_reshape() -> None:
    x = layers.data("x", [4, 6])
    out = layers.reshape(x, [0, -1, 3], act="relu")
    assert (out.shape, ops()) == ((-1, 8, 3), ["reshape2", "relu"])
    assert layers.reshape(x, [-1, 24], inplace=True) is x


def test_constants() -> None:
    ones, counts = layers.ones([2, 3], "float32"), layers.fill_constant([1], "int64", 2**53 + 1)
    assert (ones.shape, ones.stop_gradient, ones.op.attr("value")) == ((2, 3), True, 1.0)
    assert counts.op.attr("str_value") == str(2**53 + 1)
    assert layers.zeros([1], "bool").dtype == fluid.core.VarDesc.VarType.BOOL
    assert layers.zeros_like(ones).shape == (2, 3)


def test_global_variables_start_at_their_value() -> None:
    var = layers.create_global_var([1], 3.0, "int64", persistable=True, name="steps")
    assert (var.persistable, var.stop_gradient) == (True, True)
    assert started() == {"steps": "fill_constant"}
    assert default_startup_program().global_block().ops[0].attr("value") == 3.0


def test_own_parameters() -> None:
    weight = layers.create_parameter([2, 3], "float32", name="mine")
    bias = layers.create_parameter([3], "float32", is_bias=True)
    assert (weight.name, bias.name) == ("mine", "create_parameter_0.b_0")
    assert started() == {"create_parameter_0.b_0": "fill_constant", "mine": "uniform_random"}


def test_sums_and_assign_write_into_what_is_given() -> None:
    x = layers.data("x", [3])
    out = layers.create_tensor("float32")
    assert layers.sums([x, x], out=out) is out
    assert layers.assign(x, out) is out
    assert (out.shape, ops()) == ((-1, 3), ["sum", "assign"])


def test_groups_of_convolutions() -> None:
    out = fluid.nets.img_conv_group(
        image(),
        conv_num_filter=[4, 6],
        pool_size=2,
        pool_stride=2,
        conv_act="relu",
        conv_with_batchnorm=[True, False],
        conv_batchnorm_drop_rate=[0.3, 0.0],
    )
    convolved = ["conv2d", "elementwise_add"]
    normalised = ["batch_norm", "relu", "dropout"]
    assert ops() == [*convolved, *normalised, *convolved, "relu", "pool2d"]
    assert out.shape == (-1, 6, 4, 4)


CALLS: list[tuple[Callable[[Variable], Any], type[Exception], str]] = [
    (lambda x: layers.fc(3, 4), TypeError, "The type of 'input' in fc must be Variable or list of Variable, but received int 3"),
    (lambda x: layers.fc([x, "x"], 4), TypeError, "but received str"),
    (lambda x: layers.fc(layers.cast(x, "int64"), 4), TypeError, "data type of 'input' in fc must be one of float16"),
    (lambda x: layers.fc(x, 4, act=3), TypeError, "The type of 'act' in fc must be str, but received int 3"),
    (lambda x: layers.fc(x, 4, act="rellu"), ValueError, "did you mean 'relu'?"),
    (lambda x: layers.fc(x, 4, param_attr=3), TypeError, "int can not be cast to ParamAttr"),
    (lambda x: layers.fc([x, x], 4, param_attr=["a", "b", "c"]), ValueError, "has 2 inputs, but 3"),
    (lambda x: layers.conv2d(x, 4, 3), ValueError, "conv2d takes images [N, C, H, W], but 'x' is"),
    (lambda x: layers.batch_norm(layers.reduce_mean(x)), ValueError, "batch_norm takes [N, C] or"),
    (lambda x: layers.dynamic_lstm(x, 8), ValueError, "input 'x' is [-1, 3] and size is 8, expe"),
    (lambda x: layers.dynamic_lstm(x, 3), ValueError, "and a size that 4 divides"),
    (lambda x: layers.conv2d(image(), 4, 3, groups=2), ValueError, "'image' has 3 and groups is 2"),
    (lambda x: layers.conv2d(image(), 4, 3, padding="most"), ValueError, "'SAME' or 'VALID', not 'most'"),
    (lambda x: layers.conv2d(image(), 4, [3, 3, 3]), ValueError, "filter_size must be a number or two"),
    (lambda x: layers.conv2d(image(), 4, 3, padding=[[1, 0], [0, 0], [0, 0], [0, 0]]), ValueError, "can not be padded"),
    (lambda x: layers.conv2d(image(), 4, 3, data_format="HWC"), ValueError, "'NCHW' or 'NHWC'"),
    (lambda x: layers.conv2d(image(-1, -1, 8, 8), 4, 3), ValueError, "channels of 'image' must be static"),
    (lambda x: layers.pool2d(image(), pool_type="sum"), ValueError, "'max' or 'avg', not 'sum'"),
    (lambda x: layers.pool2d(image()), ValueError, "needs a pool_size, or global_pooling"),
    (lambda x: layers.pool2d(image(), 2, pool_padding="VALID", ceil_mode=True), ValueError, "can not have ceil_mode"),
    (lambda x: layers.batch_norm(image(), bias_attr=False), ValueError, "neither attribute can be False"),
    (lambda x: layers.mean(None), TypeError, "'x' in mean must be Variable, but received NoneType"),
    (lambda x: layers.relu("x"), TypeError, "'x' in relu must be Variable, but received str"),
    (lambda x: layers.reshape(x, [-1, -1]), ValueError, "at most one -1"),
    (lambda x: layers.reshape(x, [1, 1, 0]), ValueError, "is beyond its axes"),
    (lambda x: layers.assign(3.0), TypeError, "must be Variable or ndarray, but received float"),
    (lambda x: layers.assign(np.zeros(2)), TypeError, "bool, float32, int32, int64, but received float64"),
    (lambda x: layers.data(3, [1]), TypeError, "'name' in data must be str"),
    (lambda x: layers.piecewise_decay([1], [0.1]), ValueError, "len(values) - len(boundaries) should be 1"),
    (lambda x: layers.Switch().case(x < 1.0), ValueError, "case should be called inside with"),
    (lambda x: layers.Switch().__enter__().case(x), TypeError, "'condition' in Switch.case must be one of bool"),
    (lambda x: layers.Switch().__enter__().default(), ValueError, "at least one condition"),
    (lambda x: layers.create_parameter([2], "int64"), TypeError, "is not floating point, so it has no default initializer"),
    (lambda x: fluid.ParamAttr(name=""), ValueError, "can not be empty str"),
    (lambda x: fluid.ParamAttr(learning_rate="1"), TypeError, "'learning_rate' in ParamAttr must be float, but received str '1'"),
    (lambda x: fluid.nets.img_conv_group(image(), [1, 2], 2, conv_padding=[1]), ValueError, "has 2 convolutions"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), CALLS, ids=[c[2][:40] for c in CALLS])
def test_bad_arguments(
    call: Callable[[Variable], Any], error: type[Exception], message: str
) -> None:
    x = layers.data("x", [3])
    with pytest.raises(error, match=re.escape(message)):
        call(x)


# ---- blocks


def test_switch_takes_one_case() -> None:
    x = layers.data("x", [1], append_batch_size=False)
    out = layers.create_global_var([1], 0.0, "float32")
    with layers.Switch() as switch:
        with switch.case(x < 1.0):
            layers.assign(x * 2.0, out)
        with switch.case(x < 2.0):
            layers.assign(x, out)
        with switch.default():
            layers.assign(x + 1.0, out)
    program = default_main_program()
    owners = [op for op in program.global_block().ops if op.type == "conditional_block"]
    assert [op.attr("sub_block") for op in owners] == [1, 2, 3]
    assert [op.input("Input") for op in owners] == [["x"], ["x"], ["x"]]
    assert [op.output("Out") for op in owners] == [[out.name]] * 3
    assert all(op.attr("is_scalar_condition") for op in owners)
    assert program.current_block() is program.global_block()
    assert [op.type for op in program.block(1).ops] == ["scale", "assign"]


def test_a_case_that_fails_leaves_no_block() -> None:
    x = layers.data("x", [1], append_batch_size=False)
    program = default_main_program()
    with pytest.raises(KeyError), layers.Switch() as switch, switch.case(x < 1.0):
        raise KeyError
    assert (program.num_blocks, program.current_block_idx) == (1, 0)
    assert "conditional_block" not in ops()


# ---- how parameters start


def block_with(shape: list[int], initializer: Any) -> Block:
    layers.create_parameter(shape, "float32", name="w", default_initializer=initializer)
    return default_startup_program().global_block()


@pytest.mark.parametrize(
    ("initializer", "kind", "attrs"),
    [
        (fluid.initializer.Constant(2.0), "fill_constant", {"value": 2.0}),
        (fluid.initializer.Uniform(-2, 3, seed=5), "uniform_random", {"min": -2.0, "max": 3.0, "seed": 5}),
        (fluid.initializer.Normal(1.0, 2.0), "gaussian_random", {"mean": 1.0, "std": 2.0, "seed": 0}),
        pytest.param(fluid.initializer.TruncatedNormal(1.0, 2.0), "truncated_gaussian_random", {"mean": 1.0, "std": 2.0}),
        (fluid.initializer.Xavier(), "uniform_random", {"min": -((6 / 14) ** 0.5), "max": (6 / 14) ** 0.5}),
        (fluid.initializer.Xavier(uniform=False, fan_in=2, fan_out=6), "gaussian_random", {"std": 0.5}),
        (fluid.initializer.MSRA(), "uniform_random", {"min": -1.0, "max": 1.0}),
        (fluid.initializer.MSRA(uniform=False, fan_in=8), "gaussian_random", {"mean": 0.0, "std": 0.5}),
    ],
)  # fmt: skip
def test_initializers(initializer: Any, kind: str, attrs: dict[str, Any]) -> None:
    op = block_with([6, 8], initializer).ops[0]
    assert (op.type, op.output("Out")) == (kind, ["w"])
    assert {name: op.attr(name) for name in attrs} == pytest.approx(attrs)


def test_fans_of_a_convolution() -> None:
    op = block_with([4, 3, 5, 5], fluid.initializer.Xavier()).ops[0]
    assert op.attr("max") == pytest.approx((6 / (3 * 25 + 4 * 25)) ** 0.5)


def test_arrays_start_parameters() -> None:
    values = np.arange(6, dtype="float32").reshape(2, 3)
    op = block_with([2, 3], fluid.initializer.NumpyArrayInitializer(values)).ops[0]
    assert (op.attr("shape"), op.attr("fp32_values")) == ([2, 3], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    attr = fluid.ParamAttr("v", fluid.initializer.NumpyArrayInitializer(values))
    with pytest.warns(UserWarning, match=re.escape("array of shape (2, 3) initializes 'v'")):
        layers.create_parameter([4], "float32", attr=attr)
    assert fluid.default_startup_program().global_block().ops[0].attr("shape") == [2, 3]


def test_init_on_cpu_has_no_effect() -> None:
    with pytest.warns(DeprecationWarning, match="no effect"), fluid.initializer.init_on_cpu():
        assert not fluid.initializer.force_init_on_cpu()


def test_bilinear_weights_enlarge_evenly() -> None:
    op = block_with([1, 1, 4, 4], fluid.initializer.Bilinear()).ops[0]
    weights = np.reshape(op.attr("fp32_values"), (4, 4))
    assert np.array_equal(weights[1], [0.1875, 0.5625, 0.5625, 0.1875])
    assert np.array_equal(weights, weights.T)


def test_bilinear_weights_need_four_axes() -> None:
    with pytest.raises(ValueError, match=re.escape("[out, in, size, size], not [2, 3]")):
        block_with([2, 3], fluid.initializer.Bilinear())


def test_a_seed_of_the_program_seeds_each_op_differently() -> None:
    def seeds() -> list[int]:
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 11
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x = layers.data("x", [4])
            layers.dropout(layers.fc([x, x, x], 4, bias_attr=False), 0.5)
        results = [op.attr("seed") for op in reversed(startup.global_block().ops)]
        return [*results, main.global_block().ops[-1].attr("seed")]

    first = seeds()
    assert first == seeds()
    assert (first[0], first[3], len(set(first[:3]))) == (11, 11, 3)
    assert all(0 < seed < 2**31 for seed in first)


def test_dropout_has_a_seed_where_one_is_given() -> None:
    x = layers.data("x", [4])
    results = [layers.dropout(x, 0.5, seed=seed).op for seed in (None, 3)]
    assert [(op.attr("fix_seed"), op.attr("seed")) for op in results] == [(False, 0), (True, 3)]


def test_a_size_that_is_no_number() -> None:
    with pytest.raises(TypeError, match="'size' in fc must be int, but received str '8'"):
        layers.fc(layers.data("x", [4]), "8")


@pytest.mark.parametrize("module", [fluid.layers, fluid.contrib.layers, fluid.lod_tensor])
def test_functions_are_where_pickle_looks(module) -> None:
    public = {name: f for name, f in vars(module).items() if not name.startswith("_")}
    functions = {name: f for name, f in public.items() if inspect.isfunction(f)}
    assert functions
    for name, function in functions.items():
        home = importlib.import_module(function.__module__)
        assert getattr(home, function.__qualname__, None) is function, name


def test_warnings_name_the_users_line() -> None:
    x = image()
    array = fluid.initializer.NumpyArrayInitializer(np.ones([3, 3], "f4"))
    calls = [
        lambda: layers.create_parameter([4, 3], "float32", default_initializer=array),
        lambda: layers.layer_norm(x, scale=False, param_attr="unused"),
        lambda: x.block.append_op("relu", {"X": x}, {"Out": x}, {"unknown": 1}),
        lambda: layers.resize_bilinear(
            x, [4, 4], actual_shape=layers.assign(np.array([2, 2], "i4"))
        ),
    ]
    for call in calls:
        with pytest.warns(UserWarning) as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]
