"""`InferenceTranspiler`: what is folded, under which names, and what must not be."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from runtime.errors import NotInitialized
from tests.support.nets import timed, zoo

pytestmark = pytest.mark.usefixtures("fresh_programs")
layers = fluid.layers
CPU = fluid.CPUPlace()
GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
Net = Callable[[], Any]


def pictures(shape: tuple[int, ...] = (3, 8, 8)) -> fluid.Variable:
    return layers.data("x", list(shape))


def started(seed: int = 0) -> fluid.Executor:
    """Run the startup program, and let every norm have learnt something."""
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    learn(fluid.default_main_program(), fluid.global_scope(), seed)
    return exe


def learn(program: fluid.Program, scope: fluid.Scope, seed: int = 0) -> None:
    """Give norms statistics, scales and shifts, and layers biases that are not 0."""
    random = np.random.default_rng(seed)
    for var in sorted(program.all_parameters(), key=lambda each: each.name):
        tensor = scope.find_var(var.name).get_tensor()
        kind = tensor.dtype if hasattr(tensor, "dtype") else np.asarray(tensor).dtype
        if len(var.shape) == 1:
            tensor.set((random.random(var.shape) + 0.5).astype(kind), CPU)


def batch(program: fluid.Program, name: str = "x") -> dict[str, np.ndarray]:
    var = program.global_block().var(name)
    shape = (2, *var.shape[1:])
    return {name: np.random.default_rng(5).random(shape).astype(var.element.numpy)}


def transpiled(program: fluid.Program) -> tuple[fluid.Program, Any]:
    """A copy that was transpiled, twice, and the report of the first time."""
    program, transpiler = program.clone(), fluid.InferenceTranspiler()
    transpiler.transpile(program, CPU)
    report, text = transpiler.report, program.to_string(True)
    transpiler.transpile(program, CPU)
    assert program.to_string(True) == text
    return program, report


def checked(*results: fluid.Variable, tolerance: float = 1e-5) -> tuple[fluid.Program, Any]:
    """Transpile what tests the main program; results are the same, and so is what is left."""
    exe = started()
    test = fluid.default_main_program().clone(for_test=True)
    feed = batch(test)
    before = {n: np.array(t.get_tensor()) for n, t in variables()}
    want = exe.run(test, feed, list(results))
    program, report = transpiled(test)
    for got, wanted in zip(exe.run(program, feed, list(results)), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    for name, value in before.items():
        held = np.asarray(fluid.global_scope().find_var(name).get_tensor())
        np.testing.assert_array_equal(held, value)
    for again, wanted in zip(exe.run(test, feed, list(results)), want, strict=True):
        np.testing.assert_array_equal(again, wanted)
    return program, report


def variables() -> list[tuple[str, Any]]:
    scope = fluid.global_scope()
    return [(name, scope.find_var(name)) for name in scope.local_var_names()]


def kinds(program: fluid.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


def norms(program: fluid.Program) -> int:
    return sum(op.type == "batch_norm" for block in program.blocks for op in block.ops)


# ---- names and stages, as the seed describes them


def test_a_layer_without_bias() -> None:
    """An add is inserted, and its result has the name of the norm's."""
    result = layers.conv2d(pictures(), 4, 3, bias_attr=False)
    result = layers.relu(layers.batch_norm(result))
    program, _ = checked(result)
    assert kinds(program) == ["conv2d", "elementwise_add", "relu"]
    conv, add, relu = program.global_block().ops
    assert conv.input("Filter") == ["conv2d_0.w_0_fuse_bn"]
    assert (add.input("X"), add.input("Y")) == (["conv2d_0.tmp_0"], ["batch_norm_0.b_0_fuse_bn"])
    assert (add.output("Out"), add.attr("axis")) == (["batch_norm_0.tmp_2"], 1)
    assert relu.input("X") == ["batch_norm_0.tmp_2"]


def test_a_layer_with_bias() -> None:
    """The bias changes, the norm's result is gone, and readers read the add's."""
    result = layers.relu(layers.batch_norm(layers.conv2d(pictures(), 4, 3)))
    program, report = checked(result)
    assert kinds(program) == ["conv2d", "elementwise_add", "relu"]
    conv, add, relu = program.global_block().ops
    assert conv.input("Filter") == ["conv2d_0.w_0_fuse_bn"]
    assert (add.input("Y"), add.output("Out")) == (["conv2d_0.b_0_fuse_bn"], ["conv2d_0.tmp_1"])
    assert relu.input("X") == ["conv2d_0.tmp_1"]
    assert str(report).splitlines()[0] == "1 of 1 batch norms folded"
    assert "test_inference_transpiler.py:" in report.fused[0].source


def test_variables_that_no_op_touches_are_gone_and_new_ones_are_in_the_scope() -> None:
    layers.data("label", [1])
    result = layers.relu(layers.batch_norm(layers.conv2d(pictures(), 4, 3)))
    program, _ = checked(result)
    assert list(program.global_block().vars) == [
        "x", "conv2d_0.tmp_0", "conv2d_0.tmp_1", "relu_0.tmp_0",
        "conv2d_0.w_0_fuse_bn", "conv2d_0.b_0_fuse_bn",
    ]  # fmt: skip
    names = {name for name, _ in variables()}
    assert {"conv2d_0.w_0", "batch_norm_0.w_1", "conv2d_0.w_0_fuse_bn"} <= names
    assert [parameter.name for parameter in program.all_parameters()] == [
        "conv2d_0.w_0_fuse_bn",
        "conv2d_0.b_0_fuse_bn",
    ]


def test_what_was_the_result_of_a_norm_can_still_be_fetched() -> None:
    normed = layers.batch_norm(layers.conv2d(pictures(), 4, 3))
    checked(layers.relu(normed), normed)


def test_a_result_that_outlives_a_run_keeps_its_name() -> None:
    normed = layers.batch_norm(layers.fc(layers.data("x", [2, 3], append_batch_size=False), 4))
    normed.persistable = True
    program, _ = checked(layers.relu(normed), normed)
    assert [op.type for op in program.global_block().ops] == ["mul", "elementwise_add", "relu"]
    assert program.global_block().var(normed.name).persistable


def test_a_norm_at_the_end_keeps_its_name() -> None:
    """The reference does not fold it."""
    result = layers.batch_norm(layers.conv2d(pictures(), 4, 3))
    program, _ = checked(result)
    assert kinds(program) == ["conv2d", "elementwise_add"]
    assert program.global_block().ops[-1].output("Out") == [result.name]


# ---- every layer


def product(**attrs: Any) -> fluid.Variable:
    x = layers.data("x", [6])
    shape = [4, 6] if attrs.get("transpose_y") else [6, 4]
    weight = layers.create_parameter(shape, "float32", name="weight")
    return layers.batch_norm(layers.matmul(x, weight, **attrs))


def after(layer: Callable[..., Any], *args: Any, shape: Any = (4, 6, 6), **given: Any) -> Net:
    """A network of a layer and a norm."""
    norm = given.pop("norm", {})
    return lambda: layers.batch_norm(layer(pictures(shape), *args, **given), **norm)


NHWC = {"norm": {"data_layout": "NHWC"}}
NETS: dict[str, Net] = {
    "conv": after(layers.conv2d, 6, 3, padding=1, bias_attr=False),
    "conv with bias": after(layers.conv2d, 6, 3),
    "conv in groups": after(layers.conv2d, 6, 3, groups=2, bias_attr=False),
    "conv, channels last": after(layers.conv2d, 6, 3, data_format="NHWC", **NHWC),
    "depthwise": after(layers.conv2d, 4, 3, groups=4, use_cudnn=False, bias_attr=False),
    "conv, epsilon": after(layers.conv2d, 6, 3, norm={"epsilon": 0.05}),
    "conv, global": after(layers.conv2d, 6, 3, norm={"use_global_stats": True}),
    "conv3d": after(layers.conv3d, 6, 3, shape=(2, 4, 5, 6)),
    "conv3d, channels last": after(
        layers.conv3d, 6, 3, shape=(4, 5, 6, 2), data_format="NDHWC", **NHWC
    ),
    "transposed": after(layers.conv2d_transpose, 6, filter_size=3, stride=2, bias_attr=False),
    "transposed with bias": after(layers.conv2d_transpose, 6, filter_size=3),
    "transposed in groups": after(layers.conv2d_transpose, 6, filter_size=3, groups=2),
    "transposed, last": after(
        layers.conv2d_transpose, 6, filter_size=3, data_format="NHWC", **NHWC
    ),
    "transposed 3d": after(layers.conv3d_transpose, 4, filter_size=2, shape=(2, 3, 4, 5)),
    "fc": after(layers.fc, 5, shape=(7,)),
    "fc without bias": after(layers.fc, 5, bias_attr=False, shape=(7,)),
    "fc of rows": after(layers.fc, 5, num_flatten_dims=2, shape=(3, 7), **NHWC),
    "matmul": product,
    "matmul, turned and scaled": lambda: product(transpose_y=True, alpha=0.5),
}


@pytest.mark.parametrize("net", NETS)
def test_every_layer_takes_its_norm_in(net: str) -> None:
    program, report = checked(NETS[net]())
    assert (norms(program), len(report.fused)) == (0, 1)


def test_the_op_s_own_epsilon_counts() -> None:
    """The reference takes 1e-5, and is off by 5e-3 where the op has 1e-3."""
    result = layers.batch_norm(layers.conv2d(pictures(), 4, 3), epsilon=1e-1)
    checked(result, tolerance=1e-5)


def test_element_types_stay() -> None:
    """The reference makes everything float32."""
    x = layers.data("x", [3, 8, 8], dtype="float64")
    program, _ = checked(layers.batch_norm(layers.conv2d(x, 4, 3)), tolerance=1e-12)
    assert norms(program) == 0
    scope = fluid.global_scope()
    assert np.asarray(scope.find_var("conv2d_0.w_0_fuse_bn").get_tensor()).dtype == "float64"


# ---- graphs


def test_two_norms_in_a_row() -> None:
    result = layers.conv2d(pictures(), 4, 3)
    program, report = checked(layers.relu(layers.batch_norm(layers.batch_norm(result))))
    assert (norms(program), len(report.fused)) == (0, 2)
    assert "conv2d_0.w_0_fuse_bn_fuse_bn" in program.global_block().vars
    assert "conv2d_0.w_0_fuse_bn" not in {name for name, _ in variables()}


def test_a_filter_that_two_layers_share() -> None:
    """The reference writes both under one name."""
    shared = fluid.ParamAttr(name="shared")
    x = pictures()
    both = [layers.conv2d(x, 4, 3, param_attr=shared, bias_attr=False) for _ in range(2)]
    result = layers.elementwise_add(*map(layers.batch_norm, both))
    program, _ = checked(result)
    assert norms(program) == 0
    known = program.global_block().vars
    assert {"shared_fuse_bn", "shared_fuse_bn_1"} <= known.keys() and "shared" not in known


def test_a_filter_that_a_layer_without_norm_shares() -> None:
    shared = fluid.ParamAttr(name="shared")
    x = pictures()
    plain = layers.conv2d(x, 4, 3, param_attr=shared, bias_attr=False)
    normed = layers.batch_norm(layers.conv2d(x, 4, 3, param_attr=shared, bias_attr=False))
    program, _ = checked(layers.elementwise_add(plain, normed))
    assert norms(program) == 0 and "shared" in program.global_block().vars


def test_ops_of_other_branches_may_stand_between() -> None:
    x = pictures()
    a = layers.conv2d(x, 4, 3)
    b = layers.conv2d(x, 4, 3, bias_attr=False)
    result = layers.elementwise_add(layers.batch_norm(b), layers.batch_norm(a), act="relu")
    program, _ = checked(result)
    assert norms(program) == 0


@pytest.mark.parametrize("bias", [None, False])
def test_a_norm_in_place(bias: Any) -> None:
    x = layers.conv2d(pictures(), 4, 3, bias_attr=bias)
    result = layers.relu(layers.batch_norm(x, in_place=True))
    program, _ = checked(result)
    assert norms(program) == 0


def test_a_bias_of_another_form() -> None:
    """One number for all channels, and one each but laid out in axes."""
    x = layers.conv2d(pictures(), 4, 3, bias_attr=False)
    one = layers.create_parameter([1], "float32", name="one")
    each = layers.create_parameter([4, 1, 1], "float32", name="each")
    first = layers.batch_norm(layers.elementwise_add(x, one))
    second = layers.conv2d(pictures(), 4, 3, bias_attr=False)
    second = layers.batch_norm(layers.elementwise_add(second, each))
    program, _ = checked(layers.elementwise_add(first, second))
    assert norms(program) == 0


def test_a_layer_with_a_bias_of_its_own() -> None:
    """Tools that rewrite models for one library of kernels leave such layers behind."""
    x, main = pictures(), fluid.default_main_program().global_block()
    weight = layers.create_parameter([4, 3, 3, 3], "float32", name="w")
    bias = layers.create_parameter([4], "float32", name="b")
    out = main.create_var(name="out", dtype="float32")
    conv = main.append_op("conv2d", {"Input": x, "Filter": weight, "Bias": bias}, {"Output": out})
    result = layers.batch_norm(out)
    program, _ = checked(result)
    assert kinds(program) == ["conv2d", "elementwise_add"]
    assert program.global_block().ops[0].input("Bias") == []
    conv._set_attr("fuse_relu", True)
    program, report = transpiled(fluid.default_main_program())
    assert "conv2d has fuse_relu, which come before" in report.refused[0].refusal


def test_norms_in_blocks() -> None:
    x = pictures()
    many = layers.less_than(layers.fill_constant([1], "float32", 1.0), layers.reduce_sum(x))

    def inside() -> fluid.Variable:
        actual = layers.conv2d(x, 4, 3)
        return layers.relu(layers.batch_norm(actual))

    result = layers.cond(many, inside, lambda: layers.conv2d(x, 4, 3))
    program, _ = checked(result)
    assert norms(program) == 0
    owner = next(op for op in program.global_block().ops if op.type == "conditional_block")
    assert owner.input("Input") == ["x", "conv2d_0.w_0_fuse_bn", "conv2d_0.b_0_fuse_bn"]
    assert not [name for name in program.global_block().vars if name.startswith("batch_norm_0")]


def test_saved_models_are_folded_and_saved_again(exe: Any, tmp_path: Path) -> None:
    """Models that the reference saved: its outputs to 1e-5, before and after another saving."""
    for name in ("mobilenet_block", "resnet_cifar8"):
        with np.load(GOLDEN / f"{name}__io.npz") as recorded:
            feed = {key[3:]: recorded[key] for key in recorded.files if key.startswith("in.")}
            want = recorded["out"]
        with fluid.scope_guard(fluid.Scope()):
            folder = str(GOLDEN / f"{name}__separate")
            program, feeds, fetches = fluid.io.load_inference_model(folder, exe)
            fluid.InferenceTranspiler().transpile(program, CPU)
            assert norms(program) == 0
            np.testing.assert_allclose(exe.run(program, feed, fetches)[0], want, 1e-5, 1e-5)
            saved = str(tmp_path / name)
            fluid.io.save_inference_model(saved, feeds, fetches, exe, program)
        with fluid.scope_guard(fluid.Scope()):
            program, feeds, fetches = fluid.io.load_inference_model(saved, exe)
            assert norms(program) == 0
            np.testing.assert_allclose(exe.run(program, feed, fetches)[0], want, 1e-5, 1e-5)


def test_a_program_that_was_optimized_for_memory() -> None:
    result = layers.batch_norm(layers.conv2d(pictures(), 4, 3), act="relu")
    result = layers.batch_norm(layers.conv2d(result, 4, 3, bias_attr=False), act="relu")
    main = fluid.default_main_program().clone(for_test=True)
    exe, feed = started(), batch(main)
    (want,) = exe.run(main, feed, [result])
    fluid.release_memory(main)
    fluid.memory_optimize(main, level=1)
    program, report = transpiled(main)
    assert len(report.fused) == 2
    np.testing.assert_allclose(exe.run(program, feed, [result])[0], want, 1e-5, 1e-5)


PAPERS = ["resnet18", "mobilenet_v1", "unet", "vgg16_bn", "se_resnext50"]


@pytest.mark.parametrize("name", PAPERS)
def test_networks_of_papers(name: str) -> None:
    """To 1e-4 of the largest; `bench/transpilers.py` has all of them."""
    settings = zoo.small(name)
    recorded = zoo.build(fluid, name, train=False, **settings)
    feed = timed.fed(fluid, zoo.draw(name, np.random.RandomState(0), 2, **settings))
    exe = fluid.Executor(CPU)
    exe.run(recorded.startup)
    (want,) = exe.run(recorded.test, feed, [recorded.output])
    program, report = transpiled(recorded.test)
    assert (norms(program), report.refused) == (0, [])
    (got,) = exe.run(program, feed, [recorded.output])
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


# ---- what must not be folded


def residual() -> Any:
    x = layers.conv2d(pictures(), 4, 3)
    y = layers.conv2d(pictures(), 4, 3, bias_attr=False)
    return layers.batch_norm(layers.elementwise_add(y, x))


def read_twice() -> Any:
    x = layers.conv2d(pictures(), 4, 3)
    return layers.elementwise_add(layers.batch_norm(x), x)


def after_pooling() -> Any:
    return layers.batch_norm(layers.pool2d(layers.conv2d(pictures(), 4, 3), 2))


def other_channels() -> Any:
    return layers.batch_norm(layers.fc(layers.data("x", [5, 7]), 3, num_flatten_dims=2))


def by_place() -> Any:
    result = layers.conv2d(pictures(), 4, 3, bias_attr=False)
    map_ = layers.create_parameter([4, 6, 6], "float32", name="map")
    return layers.batch_norm(layers.elementwise_add(result, map_))


REFUSED: dict[str, tuple[Net, str]] = {
    "residual": (residual, "is no bias: 'conv2d_0.tmp_1' is no parameter"),
    "read twice": (read_twice, "'conv2d_0.tmp_1' has other readers"),
    "after pooling": (after_pooling, "its input comes from pool2d, and not from a convolution"),
    "on a feed": (lambda: layers.batch_norm(pictures()), "comes from no op of its block"),
    "other channels": (other_channels, "its channels are axis 1 of 3, but the weights of mul"),
    "by place": (by_place, "'map' is [4, 6, 6], not one number for each channel"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_must_stay_stays_and_reports_why(case: str) -> None:
    net, why = REFUSED[case]
    program, report = checked(net())
    assert norms(program) == 1
    (refused,) = report.refused
    assert why in refused.refusal
    assert "not folded" in str(report) and "test_inference_transpiler.py" in str(report)


def test_a_filter_that_the_program_changes() -> None:
    attr = fluid.ParamAttr(name="w")
    result = layers.conv2d(pictures(), 4, 3, param_attr=attr, bias_attr=False)
    weight = fluid.default_main_program().global_block().var("w")
    layers.assign(layers.scale(weight, 2.0), weight)
    layers.batch_norm(result)
    started()
    _, report = transpiled(fluid.default_main_program())
    assert "'w' is written by (Out=w) = assign(" in report.refused[0].refusal


def test_an_intermediate_that_is_fetched(exe: Any, tmp_path: Path) -> None:
    x = layers.conv2d(pictures(), 4, 3)
    y = layers.batch_norm(x)
    started()
    fluid.io.save_inference_model(str(tmp_path), ["x"], [x, y], exe)
    program, _, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
    feed = batch(program)
    want = exe.run(program, feed, fetches)
    program, report = transpiled(program)
    assert len(report.refused) == 1
    for got, wanted in zip(exe.run(program, feed, fetches), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_statistics_of_the_batch_are_not_folded() -> None:
    """By `fuse_batch_norm`; `transpile` sets the program to inference before."""
    layers.batch_norm(layers.conv2d(pictures(), 4, 3))
    started()
    program, transpiler = fluid.default_main_program(), fluid.InferenceTranspiler()
    transpiler.fuse_batch_norm(program, CPU, fluid.global_scope())
    assert norms(program) == 1
    assert "statistics of the batch (training)" in str(transpiler.report)
    transpiler.transpile(program, CPU)
    assert norms(program) == 0
    assert all(op.attr("is_test") for op in program.global_block().ops if op.has_attr("is_test"))


# ---- errors


def test_arguments_are_checked_in_order() -> None:
    transpiler, program = fluid.InferenceTranspiler(), fluid.Program()
    wrong: Any = "wrong"
    for method in (transpiler.transpile, transpiler.fuse_batch_norm):
        with pytest.raises(TypeError, match=r"'program' in .* must be Program, but received str"):
            method(wrong, wrong, wrong)
        with pytest.raises(TypeError, match=r"'place' in .* must be CPUPlace or CUDAPlace"):
            method(program, wrong, wrong)
        with pytest.raises(TypeError, match=r"'scope' in .* must be Scope"):
            method(program, CPU, wrong)
    assert fluid.transpiler.InferenceTranspiler is fluid.InferenceTranspiler


def test_a_program_that_trains_is_rejected() -> None:
    loss = layers.mean(layers.batch_norm(layers.conv2d(pictures(), 4, 3)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    before = fluid.default_main_program().to_string(True)
    message = r"the program trains: .*test_inference_transpiler.py:\d+.*clone\(for_test=True\)"
    with pytest.raises(ValueError, match=message):
        fluid.InferenceTranspiler().transpile(fluid.default_main_program(), CPU)
    assert fluid.default_main_program().to_string(True) == before


def test_missing_values_change_nothing() -> None:
    layers.batch_norm(layers.conv2d(layers.batch_norm(layers.conv2d(pictures(), 4, 3)), 4, 3))
    started()
    program = fluid.default_main_program().clone(for_test=True)
    fluid.global_scope().erase(["batch_norm_1.w_1"])
    before, names = program.to_string(True), [name for name, _ in variables()]
    with pytest.raises(NotInitialized, match=r"'batch_norm_1\.w_1' is not initialised") as caught:
        fluid.InferenceTranspiler().transpile(program, CPU)
    assert "run the startup program" in str(caught.value)
    assert "test_inference_transpiler.py:" in str(caught.value)
    assert program.to_string(True) == before
    assert [name for name, _ in variables()] == names


@pytest.mark.parametrize(
    ("name", "shape"), [("conv2d_0.w_0", (4, 3, 5, 5)), ("batch_norm_0.w_1", (5,))]
)
def test_values_of_another_shape_are_reported(name: str, shape: tuple[int, ...]) -> None:
    layers.batch_norm(layers.conv2d(pictures(), 4, 3))
    started()
    program = fluid.default_main_program().clone(for_test=True)
    fluid.global_scope().find_var(name).get_tensor().set(np.zeros(shape, "float32"), CPU)
    message = f"'{name}' is {list(shape)} in this scope, but the program declares ["
    with pytest.raises(ValueError, match=re.escape(message)):
        fluid.InferenceTranspiler().transpile(program, CPU)
