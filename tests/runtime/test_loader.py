"""Loader: a handwritten module computes correctly, binds once per size, and reports errors."""

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.codegen.module import Module
from compiler.errors import ParseError, ShapeError
from compiler.pack import PackError
from runtime.device import CPUPlace, CUDAPlace
from runtime.errors import FeedError, MemoryLimitExceeded, NotInitialized, PlaceError, StepError
from runtime.loader import Executable, MemoryReport, load
from runtime.memory import packings
from runtime.tensors.scope import Scope

LINE = Module.load(Path(__file__).with_name("fit_a_line.py"))

HEAD = """
import numpy as np
NAME = "small"
TARGET = "numpy"
DIMS = ("N",)
FEEDS = (("x", "float32", ("N", 2)),)
PARAMS = ()
FETCHES = (("y", "float32", ("N", 2)),)
BUFFERS = (("y", "8*N", 0, 1),)
"""
DOUBLE = """
def bind(take, params, N):
    y = take(0, "float32", (N, 2))

    def step(x):
        # (Out=y) = scale(X=x)  model.py:7
        np.multiply(x, 2.0, out=y)
        return (y,)

    return step
"""


def small(body: str = DOUBLE, **fields: object) -> Module:
    """A module of one op; `fields` replace the literals at its top."""
    head = HEAD
    for name, value in fields.items():
        head = re.sub(rf"^{name} = .*$", f"{name} = {value!r}", head, flags=re.MULTILINE)
    return Module.parse(head + body)


def weights() -> dict[str, np.ndarray]:
    draw = np.random.RandomState(0)
    return {
        "fc_0.b_0": np.zeros(1, "float32"),
        "fc_0.w_0": draw.randn(13, 1).astype("float32"),
        "learning_rate_0": np.full(1, 0.01, "float32"),
    }


def batch(size: int, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.RandomState(seed)
    return {
        "x": draw.randn(size, 13).astype("float32"),
        "y": draw.randn(size, 1).astype("float32"),
    }


def expected(params: dict[str, np.ndarray], feed: dict[str, np.ndarray]) -> float:
    """The loss of one step by plain NumPy in double precision, which also updates the params."""
    w, b, rate = (params[n].astype("float64") for n in ("fc_0.w_0", "fc_0.b_0", "learning_rate_0"))
    error = feed["x"] @ w + b - feed["y"]
    slope = 2 * error / len(error)
    params["fc_0.w_0"] = w - rate * (feed["x"].T @ slope)
    params["fc_0.b_0"] = b - rate * slope.sum(axis=0)
    return float((error**2).mean())


def test_steps_agree_with_numpy_over_changing_batch_sizes() -> None:
    params, reference = weights(), weights()
    exe = load(LINE, CPUPlace(), params, poison=True)
    for seed, size in enumerate([20, 20, 7, 50, 20, 1, 7]):
        feed = batch(size, seed)
        (loss,) = exe(feed)
        assert loss.shape == (1,)
        np.testing.assert_allclose(loss[0], expected(reference, feed), rtol=1e-5)
    for name, value in params.items():
        np.testing.assert_allclose(value, reference[name], rtol=1e-5, atol=1e-6)


def test_fetched_arrays_are_copies() -> None:
    exe = load(small())
    first = exe({"x": np.ones((2, 2), "float32")})[0]
    exe({"x": np.zeros((2, 2), "float32")})
    assert first.tolist() == [[2, 2], [2, 2]]


def test_feeds_of_any_layout_and_more_names_than_needed() -> None:
    exe = load(small())
    x = np.arange(6, dtype="float32").reshape(2, 3).T
    assert exe({"x": x, "other": x})[0].tolist() == (2 * x).tolist()


def test_a_module_from_a_file_edited_by_hand(tmp_path: Path) -> None:
    small().save(tmp_path / "m.py")
    text = (tmp_path / "m.py").read_text()
    (tmp_path / "m.py").write_text(text.replace("np.multiply(x, 2.0", "np.multiply(x, 3.0"))
    exe = load(Module.load(tmp_path / "m.py"))
    assert exe({"x": np.ones((1, 2), "float32")})[0].tolist() == [[3, 3]]


# Binding


def test_only_a_new_size_binds() -> None:
    exe = load(LINE, params=weights())
    for size in (20, 20, 7, 20, 7, 7):
        exe(batch(size))
    assert (exe.counters.bindings, exe.counters.runs) == (2, 6)


def test_sixty_sizes_in_turns_are_bound_once_each() -> None:
    exe = load(LINE, params=weights())
    for size in (*range(60, 0, -1), *range(1, 61)):
        exe(batch(size))
    assert exe.counters.bindings == 60


@pytest.mark.parametrize("replaced", list(weights()))
def test_a_new_size_uses_state_that_was_replaced(replaced: str) -> None:
    scope = Scope()
    for name, array in weights().items():
        scope.var(name).get_tensor().set(array, CPUPlace())
    exe = load(LINE, params=scope)
    exe(batch(20))
    params = {name: np.array(scope.var(name).get_tensor()) for name in weights()}
    params[replaced] = np.full_like(params[replaced], 0.05)
    scope.var(replaced).get_tensor().adopt(params[replaced].copy(), is_own=True)
    for size in (7, 20, 3):
        (loss,) = exe(batch(size, seed=size))
        assert loss == pytest.approx(expected(params, batch(size, seed=size)), rel=1e-5)


def test_the_least_recently_used_binding_is_first() -> None:
    exe = load(small(), keep=2)
    for size in (30, 20, 30, 10, 30):  # 10 drives out 20
        exe({"x": np.ones((size, 2), "float32")})
    assert exe.counters.bindings == 3
    exe({"x": np.ones((20, 2), "float32")})
    assert exe.counters.bindings == 4


def test_growth_of_the_arena_drops_the_bindings_to_the_old_one() -> None:
    exe = load(small())
    for size in (10, 1000, 10):
        x = np.full((size, 2), size, "float32")
        assert np.array_equal(exe({"x": x})[0], 2 * x)
    assert exe.counters.bindings == 3


def test_a_replaced_param_is_bound_without_packing_again() -> None:
    params = weights()
    exe = load(LINE, params=params)
    before = exe(batch(20))[0]
    params.update(weights())
    np.testing.assert_array_equal(exe(batch(20))[0], before)
    assert exe.counters.bindings == 1


def test_a_replaced_array_of_a_scope_is_noticed() -> None:
    scope = Scope()
    scope.arrays().update(weights())
    exe = load(LINE, params=scope.arrays())
    before = exe(batch(20))[0]
    for name, value in weights().items():
        scope.var(name).get_tensor().set(value, CPUPlace())
    np.testing.assert_array_equal(exe(batch(20))[0], before)
    scope.arrays().update(weights())
    np.testing.assert_array_equal(exe(batch(20))[0], before)
    assert exe.counters.bindings == 1


def test_params_out_of_row_major_order_are_updated_too() -> None:
    params = weights()
    params["fc_0.w_0"] = np.repeat(params["fc_0.w_0"], 2, axis=0)[::2]
    before = params["fc_0.w_0"].copy()
    load(LINE, params=params)(batch(20))
    assert not np.array_equal(params["fc_0.w_0"], before)


def test_memory_of_sizes_is_reported_without_params() -> None:
    report = load(LINE).memory({"x": (1000, 13), "y": (1000, 1)})
    assert report == MemoryReport(arena=8128, bound=8128, sum_of_buffers=4 * 4000 + 60)


def test_memory_of_shapes_that_do_not_fit() -> None:
    exe = load(LINE)
    with pytest.raises(FeedError, match="missing feed: 'y'"):
        exe.memory({"x": (4, 13)})
    with pytest.raises(ShapeError, match=r"feed 'y' must have the shape \(N, 1\), but \(5, 1\)"):
        exe.memory({"x": (4, 13), "y": (5, 1)})


# State


STARTUP = small(
    """
def bind(take, params):
    def step():
        # (Out=w) = fill_constant()  model.py:3
        params["w"].fill(7.0)
        return ()
    return step
""",
    DIMS=(),
    FEEDS=(),
    PARAMS=(("w", "float32", (2, 3)),),
    FETCHES=(),
    BUFFERS=(),
)


@pytest.mark.parametrize("held", [None, np.zeros((1, 3), "float32"), np.zeros((2, 3))])
def test_state_written_first_is_created(held: np.ndarray | None) -> None:
    params = {} if held is None else {"w": held}
    assert load(STARTUP, params=params)({}) == []
    assert params["w"].dtype == np.float32 and params["w"].tolist() == [[7] * 3] * 2


def test_state_that_fits_is_filled_in_place() -> None:
    params = {"w": np.zeros((2, 3), "float32")}
    before = params["w"]
    exe = load(STARTUP, params=params)
    exe({})
    assert params["w"] is before and before.all()


def test_missing_state_names_the_variable_and_makes_nothing() -> None:
    params = weights()
    del params["fc_0.w_0"]
    exe = load(LINE, params=params)
    with pytest.raises(NotInitialized) as caught:
        exe(batch(20))
    assert str(caught.value) == (
        "'fc_0.w_0' is not initialised: float32 of shape (13, 1) is needed\n"
        "  hint: run the startup program first, in the same scope, or load saved parameters"
    )
    assert isinstance(caught.value, RuntimeError) and "fc_0.w_0" not in params
    params.update(weights())
    assert exe(batch(20))[0].shape == (1,)


def test_state_of_another_shape_names_both() -> None:
    params = weights() | {"fc_0.w_0": np.zeros((12, 1), "float32")}
    message = (
        r"'fc_0.w_0' must be float32 of shape \(13, 1\), but it holds float32 of shape \(12, 1\)"
    )
    with pytest.raises(ShapeError, match=message):
        load(LINE, params=params)(batch(20))


# Feeds that do not fit


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"y": None, "yy": np.zeros((4, 1), "float32")},
            FeedError,
            "missing feed: 'y' (float32 of shape (N, 1))\n  hint: did you mean 'yy'?",
        ),
        (
            {"x": np.zeros((4, 13))},
            FeedError,
            "feed 'x' must be float32, but float64 was given\n  hint: feed x.astype('float32')",
        ),
        (
            {"x": np.zeros((4, 12), "float32")},
            ShapeError,
            "feed 'x' must have the shape (N, 13), but (4, 12) was given",
        ),
        (
            {"x": np.zeros(13, "float32")},
            ShapeError,
            "feed 'x' must have the shape (N, 13), but (13,) was given",
        ),
        (
            {"y": np.zeros((3, 1), "float32")},
            ShapeError,
            "feed 'y' must have the shape (N, 1), but (3, 1) was given\n"
            "  hint: N is 4 in earlier feeds",
        ),
    ],
)
def test_feeds_that_do_not_fit(change: dict[str, Any], error: type, message: str) -> None:
    params, exe = weights(), load(LINE, params=weights())
    feed = {name: value for name, value in (batch(4) | change).items() if value is not None}
    with pytest.raises(error) as caught:
        exe(feed)
    assert str(caught.value).splitlines()[: message.count("\n") + 1] == message.splitlines()
    assert exe(batch(4))[0] == load(LINE, params=params)(batch(4))[0]


def test_other_places_and_targets_are_rejected() -> None:
    message = r"runs on CPUPlace, not on CUDAPlace\(0\)\n  hint: pass place=CPUPlace"
    with pytest.raises(PlaceError, match=message):
        load(small(), CUDAPlace(0))
    with pytest.raises(PlaceError, match="for the target 'abacus' cannot be loaded"):
        load(small(TARGET="abacus"))


def test_a_source_without_bind_is_rejected() -> None:
    with pytest.raises(ParseError, match="module 'small' does not define the function bind"):
        load(small("bind = 3\n"))


def test_a_view_past_its_buffer_is_rejected() -> None:
    exe = load(small(DOUBLE.replace("(N, 2))", "(N, 3))")))
    with pytest.raises(ValueError, match="buffer 'y' holds 16 bytes, not the 24 taken"):
        exe({"x": np.ones((2, 2), "float32")})


def test_every_packing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlapping(lives: Any, **settings: Any) -> Any:
        packing = pack(lives, **settings)
        return type(packing)((0,) * len(lives), packing.height, packing.bound)

    pack = packings.pack
    monkeypatch.setattr(packings, "pack", overlapping)
    with pytest.raises(PackError, match=r"^'fc_0.tmp_1' and 'square_.*_0.tmp_0' overlap"):
        load(LINE, params=weights())(batch(20))


# Errors inside a step


FAULTY = DOUBLE.replace("np.multiply(x, 2.0, out=y)", "np.multiply(x, [1, 2, 3], out=y)")


def raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def test_an_error_in_a_step_names_the_op_and_the_users_line() -> None:
    exe = load(small(FAULTY))
    error = raised(lambda: exe({"x": np.ones((2, 2), "float32")}))
    assert isinstance(error, StepError)
    assert str(error) == (
        "scale: operands could not be broadcast together with shapes (2,2) (3,) (2,2)\n"
        "  op:   (Out=y) = scale(X=x)\n"
        "  line: model.py:7"
    )
    assert "np.multiply(x, [1, 2, 3], out=y)" in "".join(traceback.format_exception(error))


def test_an_error_in_fused_ops_names_them_all() -> None:
    fused = FAULTY.replace("# (Out=y)", "# (Out=h) = relu(X=x)  model.py:6\n        # (Out=y)")
    error = raised(lambda: load(small(fused))({"x": np.ones((2, 2), "float32")}))
    assert isinstance(error, StepError)
    assert error.op == "(Out=h) = relu(X=x) and (Out=y) = scale(X=x)"
    assert (error.message[:16], error.source) == ("relu and scale: ", "model.py:7")


def test_an_error_in_a_helper_names_the_op_that_called_it() -> None:
    helper = "\n# A helper\ndef double(x, y):\n    np.multiply(x, [1, 2, 3], out=y)\n"
    exe = load(small(helper + DOUBLE.replace("np.multiply(x, 2.0, out=y)", "double(x, y)")))
    error = raised(lambda: exe({"x": np.ones((2, 2), "float32")}))
    assert isinstance(error, StepError) and error.op == "(Out=y) = scale(X=x)"


def test_an_error_of_numpys_random_numbers_names_the_op() -> None:
    drawing = FAULTY.replace("np.multiply(x, [1, 2, 3], out=y)", "np.random.uniform(size=(-1,))")
    error = raised(lambda: load(small(drawing))({"x": np.ones((2, 2), "float32")}))
    assert isinstance(error, StepError)
    assert error.message == "scale: negative dimensions are not allowed"


def test_an_error_of_the_users_own_function_stays_what_it_is() -> None:
    def broken(x: Any) -> None:
        raise KeyError("mine")

    module = small(DOUBLE.replace("np.multiply(x, 2.0, out=y)", "broken(x)"))
    error = raised(
        lambda: load(module, names={"broken": broken})({"x": np.ones((2, 2), "float32")})
    )
    assert isinstance(error, KeyError) and error.args == ("mine",)
    assert error.__notes__ == ["in (Out=y) = scale(X=x)  model.py:7"]


def test_a_size_beyond_memory() -> None:
    exe = load(small())
    with pytest.raises(MemoryLimitExceeded, match=r"a step takes 16\.00 EiB, more than the .* GiB"):
        exe.prepare({"x": (2**60, 2)})
    assert exe({"x": np.ones((2, 2), "float32")})[0].tolist() == [[2, 2], [2, 2]]


def interrupted(exe: Executable) -> None:
    """Run a step in which the user presses Ctrl-C."""
    feed = {"x": np.ones((2, 2), "float32")}
    trap = type("Trap", (np.ndarray,), {"__array_ufunc__": _interrupt})
    exe.run([feed["x"].view(trap)])


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_passes_and_the_executable_stays_usable() -> None:
    exe = load(small())
    error = raised(lambda: interrupted(exe))
    assert isinstance(error, KeyboardInterrupt) and not hasattr(error, "__notes__")
    assert exe({"x": np.ones((2, 2), "float32")})[0].tolist() == [[2, 2], [2, 2]]
    assert exe.counters.bindings == 1
