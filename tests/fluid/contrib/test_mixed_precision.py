"""Mixed precision: the programs of release 1.8.5, losses as in float32, and scales that move."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.contrib import mixed_precision as amp
from fluid.demo.digits import load_digits

pytestmark = pytest.mark.device

RECORDED = json.loads(
    (Path(__file__).parents[2] / "golden/mixed_precision/programs.json").read_text()
)
Lists = amp.AutoMixedPrecisionLists


def mlp() -> Any:
    x, y = fluid.data("x", [-1, 8]), fluid.data("y", [-1, 1], "int64")
    hidden = fluid.layers.fc(x, 16, act="relu")
    guess = fluid.layers.fc(hidden, 3, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(guess, y))


def conv() -> Any:
    x, y = fluid.data("x", [-1, 1, 12, 12]), fluid.data("y", [-1, 1], "int64")
    seen = fluid.nets.simple_img_conv_pool(x, 4, 5, 2, 2, act="relu")
    seen = fluid.layers.dropout(fluid.layers.batch_norm(seen), 0.3)
    guess = fluid.layers.fc(seen, 10)
    size = fluid.layers.reduce_sum(seen * seen)
    wrong = fluid.layers.softmax_with_cross_entropy(guess, y)
    return fluid.layers.mean(wrong) + 0.01 * size


def lenet() -> Any:
    x, y = fluid.data("x", [-1, 1, 16, 16]), fluid.data("y", [-1, 1], "int64")
    seen = fluid.nets.simple_img_conv_pool(x, 6, 5, 2, 2, act="relu")
    seen = fluid.nets.simple_img_conv_pool(seen, 16, 5, 2, 2, act="relu")
    guess = fluid.layers.fc(fluid.layers.fc(seen, 32, act="relu"), 10, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(guess, y))


class Built:
    """A training program, with mixed precision by default."""

    def __init__(self, build: Any, optimizer: Any = None, mixed: bool = True, **options: Any):
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.main.random_seed = self.startup.random_seed = 7
        self.scope = fluid.Scope()
        with fluid.unique_name.guard(), fluid.program_guard(self.main, self.startup):
            self.optimizer = optimizer or fluid.optimizer.SGD(0.5)
            if mixed:
                self.optimizer = amp.decorate(self.optimizer, **options)
            self.loss = build()
            self.pairs = self.optimizer.minimize(self.loss)[1]

    def start(self, place: Any = None) -> "Built":
        self.exe = fluid.Executor(place or fluid.CPUPlace())
        with fluid.scope_guard(self.scope):
            self.exe.run(self.startup)
        return self

    def step(self, feed: dict[str, Any], *fetched: Any) -> list[Any]:
        with fluid.scope_guard(self.scope):
            return self.exe.run(self.main, feed=feed, fetch_list=[self.loss, *fetched])

    def value(self, name: str) -> Any:
        return np.array(self.scope.find_var(name).get_tensor())


def batch(*shape: int, classes: int = 3) -> dict[str, Any]:
    draw = np.random.default_rng(5)
    labels = draw.integers(0, classes, (shape[0], 1))
    return {"x": draw.normal(size=shape).astype(np.float32), "y": labels}


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlp": (mlp, {}),
    "conv": (conv, {}),
    "static": (mlp, {"use_dynamic_loss_scaling": False, "init_loss_scaling": 8.0}),
    "lists": (mlp, {"amp_lists": Lists({"softmax"}, {"elementwise_add"})}),
    "varnames": (mlp, {"amp_lists": Lists(custom_black_varnames={"fc_1.w_0"})}),
}


def rows(program: Any) -> list[Any]:
    """Its ops as they were recorded; what a branch reads and writes is a set there."""
    attrs = ("in_dtype", "out_dtype", "op_role", "op_role_var")
    results = []
    for op in [op for block in program.blocks for op in block.ops]:
        order = sorted if op.type == "conditional_block" else list
        reads = {s: order(op.input(s)) for s in op.input_names if op.input(s)}
        writes = {s: order(op.output(s)) for s in op.output_names if op.output(s) and s != "Scope"}
        kept = {name: op.attr(name) for name in attrs if op.has_attr(name)}
        results.append([op.block.idx, op.type, reads, writes, {"op_role_var": [], **kept}])
    return results


@pytest.mark.parametrize("name", CASES)
def test_programs_are_those_of_the_reference(name: str) -> None:
    build, options = CASES[name]
    program = Built(build, **options).main
    known = {v.name: int(v.dtype) for v in program.list_vars()}
    dtypes = RECORDED[name]["dtypes"]
    assert rows(program) == RECORDED[name]["ops"]
    assert {var: known[var] for var in dtypes} == dtypes


def losses(built: Built, feed: dict[str, Any], place: Any, steps: int) -> list[float]:
    built.start(place)
    return [float(built.step(feed)[0][0]) for _ in range(steps)]


@pytest.mark.parametrize(
    ("model", "place", "dtype"),
    [
        (mlp, fluid.CPUPlace(), "float16"),
        (mlp, fluid.CPUPlace(), "bfloat16"),
        (mlp, fluid.CUDAPlace(0), "bfloat16"),
        (lenet, fluid.CPUPlace(), "float16"),
        (lenet, fluid.CPUPlace(), "bfloat16"),
        (lenet, fluid.CUDAPlace(0), "float16"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_losses_are_nearly_those_of_float32(model: Any, place: Any, dtype: str) -> None:
    if isinstance(place, fluid.CUDAPlace):
        pytest.importorskip("triton")
    feed = batch(16, 8) if model is mlp else batch(4, 1, 16, 16, classes=10)
    steps = 3 if isinstance(place, fluid.CUDAPlace) else 8
    rate = 0.1 if model is mlp else 0.02
    wide = losses(Built(model, fluid.optimizer.Momentum(rate, 0.9), False), feed, place, steps)
    optimizer = fluid.optimizer.Momentum(rate, 0.9)
    mixed = Built(model, optimizer, init_loss_scaling=256.0, dtype=dtype)
    half = losses(mixed, feed, place, steps)
    assert half[-1] < 0.95 * half[0]
    bound = 5e-3 if dtype == "float16" else 4e-2
    np.testing.assert_allclose(half, wide, rtol=bound, atol=bound / 5)
    assert half != wide


def test_bfloat16_has_the_casts_of_float16_and_no_scale() -> None:
    half, brain = Built(mlp), Built(mlp, dtype="bfloat16", init_loss_scaling=8.0)
    kinds = [op.type for op in brain.main.global_block().ops]
    assert kinds.count("cast") == [op.type for op in half.main.global_block().ops].count("cast")
    dtypes = {var.dtype.name for var in brain.main.list_vars()}
    assert "BF16" in dtypes and "FP16" not in dtypes and "isfinite" not in kinds
    assert brain.optimizer.get_scaled_loss() is brain.loss
    brain.start()
    assert float(brain.step(batch(16, 8), brain.optimizer.get_loss_scaling())[1][0]) == 1.0
    with pytest.raises(
        ValueError, match="dtype of decorate is 'float16' or 'bfloat16', not 'int8'"
    ):
        amp.decorate(fluid.optimizer.SGD(0.1), dtype="int8")


def digits_classifier() -> Any:
    x, y = fluid.data("x", [-1, 64]), fluid.data("y", [-1, 1], "int64")
    guess = fluid.layers.fc(fluid.layers.fc(x, 32, act="relu"), 10, act="softmax")
    accuracy = fluid.layers.accuracy(guess, y)
    digits_classifier.accuracy = accuracy.name
    return fluid.layers.mean(fluid.layers.cross_entropy(guess, y))


def feed_of(digits: Any, part: slice) -> dict[str, Any]:
    return {"x": digits.pixels[part, 0, ::2, ::2].reshape(-1, 64), "y": digits.labels[part]}


def on_digits(place: Any, steps: int, **options: Any) -> tuple[list[float], float]:
    """Losses while digits are learnt, then how many unseen ones are read correctly."""
    taught, asked = load_digits()
    built = Built(digits_classifier, fluid.optimizer.Adam(0.01), **options).start()
    built.exe = fluid.Executor(place)
    starts = [128 * (step % 11) for step in range(steps)]
    results = [float(built.step(feed_of(taught, slice(s, s + 128)))[0][0]) for s in starts]
    last = built.step(feed_of(asked, slice(None)), digits_classifier.accuracy)
    return results, float(last[1][0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_digits_are_learnt_as_well_as_in_float32_and_on_the_device_as_on_the_host(
    dtype: str,
) -> None:
    mixed = {"dtype": dtype, "init_loss_scaling": 1024.0}
    wide, half = (on_digits(fluid.CPUPlace(), 66, **o) for o in ({"mixed": False}, mixed))
    assert wide[1] > 0.84 and abs(half[1] - wide[1]) < 0.03
    np.testing.assert_allclose(half[0], wide[0], rtol=0.05, atol=0.02)
    pytest.importorskip("triton")
    there, _ = on_digits(fluid.CUDAPlace(0), 4, **mixed)
    np.testing.assert_allclose(there, half[0][:4], rtol=5e-3)


def test_scales_move_on_a_device_as_on_the_host() -> None:
    pytest.importorskip("triton")
    high = Built(mlp, init_loss_scaling=2.0**30, decr_every_n_nan_or_inf=2, decr_ratio=0.5)
    low = Built(mlp, init_loss_scaling=4.0, incr_every_n_steps=1)
    wanted = [2.0**30, 2.0**30, 2.0**29], [4.0, 8.0, 8.0]
    for built, scales in zip((high, low), wanted, strict=True):
        built.start(fluid.CUDAPlace(0))
        scale, before = built.optimizer.get_loss_scaling(), built.value("fc_0.w_0")
        assert [float(built.step(batch(16, 8), scale)[1][0]) for _ in range(3)] == scales
        assert np.array_equal(built.value("fc_0.w_0"), before) == (built is high)


def test_an_overflow_shrinks_the_scale_and_skips_the_update() -> None:
    built = Built(mlp, init_loss_scaling=2.0**30, decr_every_n_nan_or_inf=2, decr_ratio=0.5)
    built.start()
    scale, before = built.optimizer.get_loss_scaling(), built.value("fc_0.w_0")
    scales = [float(built.step(batch(16, 8), scale)[1][0]) for _ in range(4)]
    assert scales == [2.0**30, 2.0**30, 2.0**29, 2.0**29]
    np.testing.assert_array_equal(built.value("fc_0.w_0"), before)
    for _ in range(40):
        loss, last = built.step(batch(16, 8), scale)
    assert last[0] < 2.0**26 and np.isfinite(loss).all()
    assert not np.array_equal(built.value("fc_0.w_0"), before)


def test_the_scale_grows_after_good_steps_and_stays_finite_and_at_least_one() -> None:
    built = Built(mlp, init_loss_scaling=4.0, incr_every_n_steps=2).start()
    scale = built.optimizer.get_loss_scaling()
    results = [float(built.step(batch(16, 8), scale)[1][0]) for _ in range(6)]
    assert results == [4.0, 4.0, 8.0, 8.0, 8.0, 16.0]
    feed = batch(16, 8)
    feed["x"][0, 0] = np.inf
    low = Built(mlp, init_loss_scaling=1.5, decr_every_n_nan_or_inf=1, decr_ratio=0.5).start()
    scale = low.optimizer.get_loss_scaling()
    assert [float(low.step(feed, scale)[1][0]) for _ in range(4)] == [1.5, 1.0, 1.0, 1.0]


def test_a_static_scale_stays_and_gradients_do_not_have_it() -> None:
    feed = batch(16, 8)
    built = Built(mlp, use_dynamic_loss_scaling=False, init_loss_scaling=128.0).start()
    plain = Built(mlp, mixed=False).start()
    param, grad = built.pairs[0]
    scaled = built.optimizer.get_scaled_loss()
    loss, actual, total, kept = built.step(feed, grad, scaled, built.optimizer.get_loss_scaling())
    wanted = plain.step(feed, f"{param.name}@GRAD")[1]
    np.testing.assert_allclose(actual, wanted, rtol=0.02, atol=1e-4)
    assert float(total[0]) == pytest.approx(128.0 * float(loss[0])) and float(kept[0]) == 128.0


def test_checkpoints_hold_float32_and_continue_where_they_stopped(tmp_path: Path) -> None:
    feed, adam = batch(16, 8), fluid.optimizer.Adam(0.01)
    built = Built(mlp, adam, init_loss_scaling=4.0, incr_every_n_steps=2).start()
    for _ in range(4):
        built.step(feed)
    with fluid.scope_guard(built.scope):
        fluid.save(built.main, str(tmp_path / "kept"))
        wanted = [built.step(feed)[0] for _ in range(2)]
    state = fluid.load_program_state(str(tmp_path / "kept"))
    floats = {name: each.dtype for name, each in state.items() if "num_" not in name}
    assert "fc_0.w_0" in floats and set(floats.values()) == {np.dtype("float32")}
    again = Built(mlp, fluid.optimizer.Adam(0.01), init_loss_scaling=4.0, incr_every_n_steps=2)
    again.start()
    with fluid.scope_guard(again.scope):
        fluid.load(again.main, str(tmp_path / "kept"), again.exe)
    np.testing.assert_array_equal([again.step(feed)[0] for _ in range(2)], wanted)


def test_lists_are_honoured() -> None:
    lists = Lists(custom_white_list={"softmax", "relu"}, custom_black_list={"mul", "tanh"})
    assert {"softmax", "relu", "conv2d"} <= lists.white_list and "mul" not in lists.white_list
    assert {"mul", "tanh", "exp"} <= lists.black_list and "softmax" not in lists.black_list
    assert lists.gray_list.isdisjoint({"relu", "tanh"}) and lists.black_varnames is None
    with pytest.raises(ValueError, match="Custom white list overlap custom black list: mul"):
        Lists({"mul"}, {"mul"})
    only = {
        op.type for op in Built(mlp, amp_lists=Lists(custom_black_list={"mul"})).main.block(0).ops
    }
    assert "cast" not in only


def branching() -> Any:
    x = fluid.data("x", [-1, 8])
    hidden = fluid.layers.fc(x, 4)
    flag = fluid.layers.reduce_sum(x) > 0.0
    out = fluid.layers.cond(flag, lambda: fluid.layers.exp(hidden), lambda: hidden * 2.0)
    return fluid.layers.mean(out)


def test_branches_read_the_float32_copy() -> None:
    feed = {"x": np.ones((2, 8), np.float32)}
    half, wide = Built(branching).start(), Built(branching, mixed=False).start()
    for _ in range(2):
        np.testing.assert_allclose(half.step(feed)[0], wide.step(feed)[0], rtol=5e-3)


def words(is_sparse: bool) -> Any:
    vectors = fluid.embedding(fluid.data("x", [-1, 1], "int64"), [10, 4], is_sparse)
    return fluid.layers.mean(fluid.layers.square(fluid.layers.fc(vectors, 3)))


def test_sparse_gradients_are_scaled_like_others() -> None:
    feed = {"x": np.array([[1], [2], [1]])}
    dense, sparse = (Built(lambda s=s: words(s)).start() for s in (False, True))
    for _ in range(3):
        np.testing.assert_array_equal(sparse.step(feed)[0], dense.step(feed)[0])


def test_a_loss_of_another_program_or_of_many_numbers_changes_nothing() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        loss, optimizer = mlp(), fluid.optimizer.SGD(0.1)
        half = amp.decorate(optimizer)
        before = str(main)
        with pytest.raises(ValueError, match=r"has shape \(-1, 8\), expected \(1,\)"):
            half.minimize(main.global_block().var("x"))
        assert str(main) == before
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        pytest.raises(ValueError, match="call decorate and minimize under the same program_guard"),
    ):
        amp.decorate(optimizer).minimize(loss)


BELOW_PADDLE = """
import fluid
fluid.install_as_paddle()
import paddle.fluid.contrib.mixed_precision as amp
from paddle.fluid.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
assert AutoMixedPrecisionLists is amp.AutoMixedPrecisionLists
assert amp.decorate is fluid.contrib.decorate is fluid.contrib.mixed_precision.decorate
"""


def test_scripts_find_it_below_paddle() -> None:
    subprocess.run([sys.executable, "-c", BELOW_PADDLE], check=True, timeout=60)
