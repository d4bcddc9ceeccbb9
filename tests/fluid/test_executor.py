"""fluid.Executor: accepted arguments, and the errors of all others."""

import re
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import ShapeError
from fluid.executor import Executor, global_scope, scope_guard
from fluid.framework import Program, program_guard
from fluid.lod_tensor import create_lod_tensor
from fluid.recording import pruning
from fluid.saving.inference_model import append_fetch_ops, prepend_feed_ops
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.errors import NotInitialized, PlaceError
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

CPU = CPUPlace()
X = np.arange(12, dtype="float32").reshape(4, 3)
Y = np.ones((4, 1), "float32")
FEED = {"x": X, "y": Y}
WRONG_SHAPE = (
    "The fed Variable 'x' should have dimensions = 2, shape = (-1, 3), "
    "but received fed shape [4, 2] on each device"
)
WRONG_DTYPE = "The data type of fed Variable 'x' must be 'float32', but received 'float64'"


def model(checked: bool = False) -> tuple[Program, Program]:
    """A program for loss = mean(x w + b - y), and one that makes w = 2 and b = 1."""
    main, startup = Program(), Program()
    block = main.global_block()
    for each in (block, startup.global_block()):
        each.create_var(name="w", shape=[3, 1], dtype="float32", persistable=True)
        each.create_var(name="b", shape=[1], dtype="float32", persistable=True)
    block.create_var(name="x", shape=[-1, 3], dtype="float32", need_check_feed=checked)
    block.create_var(name="y", shape=[-1, 1], dtype="float32", need_check_feed=checked)
    for name in ("product", "line", "error", "loss"):
        block.create_var(name=name, dtype="float32")
    op(main, "mul", "product", X="x", Y="w")
    op(main, "elementwise_add", "line", {"axis": 1}, X="product", Y="b")
    op(main, "elementwise_sub", "error", X="line", Y="y")
    op(main, "mean", "loss", X="error")
    op(startup, "fill_constant", "b", {"shape": [1], "value": 1.0, "dtype": 5})
    op(startup, "fill_constant", "w", {"shape": [3, 1], "value": 2.0, "dtype": 5})
    return main, startup


def op(program: Program, kind: str, out: str, attrs: Any = None, **inputs: str) -> None:
    slots = {slot: [name] for slot, name in inputs.items()}
    program.global_block().append_op(kind, inputs=slots, outputs={"Out": [out]}, attrs=attrs)


class Case:
    """A model whose startup program has run, in a scope of its own."""

    def __init__(self, place: Any = None, checked: bool = False) -> None:
        self.main, self.startup = model(checked)
        self.exe, self.scope = Executor(place), Scope()
        self.exe.run(self.startup, scope=self.scope)

    def run(self, **changed: Any) -> list[Any]:
        defaults = {"feed": FEED, "fetch_list": ["loss"], "scope": self.scope}
        return self.exe.run(self.main, **defaults | changed)

    def var(self, name: str) -> Any:
        return self.main.global_block().var(name)


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.fixture
def checked() -> Case:
    return Case(checked=True)


LINE = X @ np.full((3, 1), 2.0) + 1
LOSS = float((LINE - Y).mean())


# What it takes


def test_startup_then_main(case: Case) -> None:
    (loss,) = case.run()
    assert isinstance(loss, np.ndarray) and loss.shape == (1,) and loss[0] == LOSS
    assert case.exe.run(case.startup, scope=case.scope) == []


def test_fetch_lists_of_names_and_variables(case: Case) -> None:
    loss = case.var("loss")
    lists = ["loss", loss, ["loss"], [loss], (loss,)]
    assert [case.run(fetch_list=items)[0].tolist() for items in lists] == [[LOSS]] * 5
    assert [case.run(fetch_list=each) for each in (None, [], ())] == [[], [], []]
    both = case.run(fetch_list=["line", loss, "line", "x", "w"])
    expected = [LINE, [LOSS], LINE, X, np.full((3, 1), 2.0)]
    for value, wanted in zip(both, expected, strict=True):
        assert np.array_equal(value, wanted)


def test_lod_tensors_go_in_and_come_out(case: Case) -> None:
    feed = {"x": create_lod_tensor(X, [[1, 3]], CPU), "y": Y}
    (line,) = case.run(feed=feed, fetch_list="line", return_numpy=False)
    assert isinstance(line, LoDTensor) and np.array_equal(line, LINE)


@pytest.mark.parametrize("one", [2, 2.0, np.float32(2), np.float64(2), np.int64(2)])
def test_a_single_number_is_fed_in_the_variables_type(case: Case, one: Any) -> None:
    (error,) = case.run(feed={"x": X, "y": one}, fetch_list=["error"])
    assert np.array_equal(error, LINE - 2)


def test_a_list_of_one_feed(case: Case) -> None:
    assert case.run(feed=[FEED]) == case.run(feed=(FEED,)) == case.run()


def test_only_the_batch_size_changes(case: Case) -> None:
    for size in (4, 2, 3, 1):
        (line,) = case.run(feed={"x": X[:size], "y": Y[:size]}, fetch_list=["line"])
        assert np.array_equal(line, LINE[:size])
    counters = case.exe.counters
    assert (counters.compiles, counters.runs) == (2, 5)  # startup and main


def test_feeding_a_persistable_variable_sets_it(case: Case) -> None:
    two = np.full((3, 1), 3.0, "float32")
    (line,) = case.run(feed={**FEED, "w": two}, fetch_list=["line"])
    assert np.array_equal(line, X @ two + 1)
    assert np.array_equal(case.run(fetch_list=["line"])[0], line)


def test_feeding_a_persistable_variable_makes_it() -> None:
    case = Case()
    main = case.main.clone()
    state = {"w": np.ones((3, 1), "float32"), "b": np.ones(1, "float32")}
    result = case.exe.run(main, {**FEED, **state}, ["line"], scope=Scope())[0]
    np.testing.assert_allclose(result, X.sum(1, keepdims=True) + 1, rtol=1e-6)


def test_feeding_what_an_op_computes_changes_nothing(case: Case) -> None:
    (line,) = case.run(feed={**FEED, "line": np.zeros((4, 1), "float32")}, fetch_list=["line"])
    assert np.array_equal(line, LINE)


def test_an_edited_program_is_compiled_again(case: Case) -> None:
    case.run()
    case.main.global_block().create_var(name="twice", dtype="float32")
    op(case.main, "scale", "twice", {"scale": 2.0}, X="loss")
    assert case.run(fetch_list=["twice"])[0] == 2 * LOSS


def test_pruning_needs_only_what_the_fetches_need(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        (line,) = case.run(feed={"x": X}, fetch_list=["line"], use_prune=True)
        assert np.array_equal(line, LINE)
        monkeypatch.setattr(pruning, "updates_state", None)  # the next run scans no ops
    assert case.exe.counters.compiles == 2


def two_losses() -> tuple[fluid.Variable, fluid.Variable, list[Any]]:
    """A persistable feed `x`, and two losses of a weight `w`, each with an optimizer's update."""
    x = fluid.layers.data("x", [3])
    x.persistable = True
    weight = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(1.0))
    losses: list[fluid.Variable] = []
    for _ in range(2):
        losses.append(fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=weight, bias_attr=False)))
        losses[-1].persistable = True
    return losses[0], losses[1], [fluid.optimizer.SGD(0.5).minimize(loss)[0] for loss in losses]


@pytest.mark.parametrize("devices", [0, 1, 2])
def test_updates_in_the_fetches_are_the_only_ones(devices: int) -> None:
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup), scope_guard(scope):
        first, second, updates = two_losses()
        exe = Executor()
        exe.run(startup)
        program: Any = main
        if devices:
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss_name=first.name, places=[CPU] * devices
            )
        exe.run(program, feed={"x": X}, fetch_list=[first, updates[0]])
        assert scope.find_var(second.name) is None
        weight = np.array(scope.find_var("w").get_tensor()).ravel()
        assert weight.tolist() == [1 - 0.5 * mean for mean in X.mean(0)]
        exe.run(program, feed={"x": X}, fetch_list=[second, updates[1]])
        weight = np.array(scope.find_var("w").get_tensor()).ravel()
        assert weight.tolist() == [1 - mean for mean in X.mean(0)]


@pytest.mark.parametrize("devices", [0, 1])
def test_a_method_of_a_script_may_prune(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def prune(self: Executor, program: Any, feed: Any, fetch: Any, updates: Any) -> Any:
        calls.append(program)
        return program

    monkeypatch.setattr(Executor, "_prune_program", prune)
    with program_guard(Program(), Program()), scope_guard(Scope()):
        loss, _, _ = two_losses()
        exe, program = Executor(), fluid.default_main_program()
        exe.run(fluid.default_startup_program())
        if devices:
            program = fluid.CompiledProgram(program).with_data_parallel(loss_name=loss.name)
        for _ in range(3):
            exe.run(program, feed={"x": X}, fetch_list=[loss], use_prune=True)
        assert calls == [program]


def test_a_run_that_fails_leaves_its_state_in_the_scope(case: Case) -> None:
    case.main.global_block().create_var(name="state", shape=[1], dtype="float32", persistable=True)
    refused(case, ValueError, "missing feed", feed={})
    assert case.scope.find_var("state") is not None


def test_sequences_whose_rows_are_joined_compile_once_for_all_lengths() -> None:
    """Their LoDs differ, so their numbers of rows have one name only because the program adds them."""
    with program_guard(Program(), Program()):
        x, y = (fluid.layers.data(name, [1], lod_level=1) for name in "xy")
        total = fluid.layers.elementwise_add(x, y)
        exe = Executor()
        for rows in (7, 8, 9):
            values = np.arange(rows, dtype=np.float32).reshape(-1, 1)
            feed = {"x": create_lod_tensor(values, [[rows - 2, 2]], CPUPlace()),
                    "y": create_lod_tensor(values, [[3, rows - 3]], CPUPlace())}  # fmt: skip
            (result,) = exe.run(feed=feed, fetch_list=[total], return_numpy=False)
            assert np.array_equal(result, 2 * values)
    assert exe.counters.compiles == 1


def test_defaults_are_the_default_program_and_the_global_scope() -> None:
    main, startup = model()
    with scope_guard(Scope()), program_guard(main, startup):
        exe = Executor()
        exe.run(startup)
        assert exe.run(feed=FEED, fetch_list=["loss"])[0] == LOSS
        assert np.array_equal(global_scope().find_var("b").get_tensor(), [1])
    assert global_scope().find_var("b") is None


def test_feed_and_fetch_ops_of_saved_models_are_let_be(case: Case) -> None:
    prepend_feed_ops(case.main, ["x", "y"])
    append_fetch_ops(case.main, ["loss"])
    assert case.run()[0] == LOSS
    with pytest.raises(ValueError, match=r"missing feed: 'y'"):
        case.run(feed={"x": X})


def test_scope_guard_restores_the_scope_after_an_error() -> None:
    before = global_scope()
    with pytest.raises(KeyError), scope_guard(Scope()):
        raise KeyError
    assert global_scope() is before
    with pytest.raises(TypeError, match="the scope of scope_guard must be a Scope, not int"):
        scope_guard(3).__enter__()  # type: ignore[arg-type]


# What it does not take


def refused(case: Case, error: type[BaseException], message: str, **changed: Any) -> None:
    """A run is refused with these words at the start of its message, and changes nothing."""
    before = case.scope.arrays()["w"].copy()
    with pytest.raises(error) as caught:
        case.run(**changed)
    assert str(caught.value).startswith(message)
    assert np.array_equal(case.scope.arrays()["w"], before)
    assert case.run()[0] == LOSS


def test_missing_feeds_are_named_with_the_op_that_needs_one(case: Case) -> None:
    here = r"test_executor\.py:\d+"
    with pytest.raises(ValueError, match="missing feed") as caught:
        case.run(feed={"x": X})
    assert re.fullmatch(
        r"missing feed: 'y' \(float32 of shape \(-1, 1\)\)\n"
        r"  op:   \(Out=error\) = elementwise_sub\(X=line, Y=y\)\n"
        rf"  line: .*{here}\n"
        r"  hint: feed it, or pass use_prune=True if what is fetched does not need it",
        str(caught.value),
    )
    both = "missing feed: 'x' (float32 of shape (-1, 3)), 'y' (float32 of shape (-1, 1))"
    for nothing in (None, {}, [{}]):
        refused(case, ValueError, both, feed=nothing)


def test_a_misspelt_feed_is_ignored_with_a_warning(case: Case) -> None:
    message = r"feed 'yy' is ignored: the program has no such variable; did you mean 'y'\?"
    with pytest.warns(UserWarning, match=message) as caught:
        assert case.run(feed={**FEED, "yy": Y})[0] == LOSS
    assert caught[0].filename == __file__


@pytest.mark.parametrize("fixture", ["case", "checked"])
def test_shapes_and_types_are_held_against_the_declaration(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    """Scripts compare the messages for `fluid.data` with those of release 1.8.5."""
    case, is_checked = request.getfixturevalue(fixture), fixture == "checked"
    for x, words, checked_words in [
        (X[:, :2], "feed 'x' must have the shape (-1, 3), but (4, 2) was given", WRONG_SHAPE),
        (X.ravel(), "feed 'x' must have the shape (-1, 3), but (12,) was given", "The fed Var"),
        (X.astype("float64"), "feed 'x' must be float32, but float64 was given", WRONG_DTYPE),
        (tuple(map(tuple, X.tolist())), "feed 'x' must be float32, but float64", WRONG_DTYPE),
        (X.astype("int64"), "feed 'x' must be float32, but int64 was given", "The data type"),
        ("abc", "feed 'x' must be float32, but <U3 was given", "The data type of fed Variable"),
        (None, *["feed 'x' must be an array, but received None"] * 2),
        (object(), *["feed 'x' must be an array, but received <object object"] * 2),
    ]:
        expected = checked_words if is_checked else words
        refused(case, ValueError, expected, feed={"x": x, "y": Y})


def test_the_rows_of_sequences_are_not_compared() -> None:
    with program_guard(Program(), Program()):
        total = fluid.layers.reduce_sum(fluid.data("words", [2, 3]))
        words = create_lod_tensor(np.ones((5, 3), "float32"), [[2, 3]], CPU)
        assert Executor().run(feed={"words": words}, fetch_list=[total])[0] == 15
        wider = create_lod_tensor(np.ones((5, 4), "float32"), [[2, 3]], CPU)
        with pytest.raises(ShapeError, match="should have dimensions = 2"):
            Executor().run(feed={"words": wider}, fetch_list=[total])


def test_batches_that_do_not_go_together_are_reported_in_the_numbers_fed(case: Case) -> None:
    message = r"elementwise_sub: shapes \[\d, 1\] and \[3, 1\] do not broadcast"
    with pytest.raises(ValueError, match=message):
        case.run(feed={"x": X, "y": Y[:3]})


def test_images_too_small_for_a_window_are_an_error(fresh_programs: Any) -> None:
    """Also where another image was run before, for which the same module serves."""
    images = fluid.data("images", [-1, 1, -1, -1])
    pooled = fluid.layers.pool2d(images, 3)
    exe = fluid.Executor()
    big, small = (np.ones(shape, "float32") for shape in ((2, 1, 5, 6), (2, 1, 1, 6)))
    assert exe.run(feed={"images": big}, fetch_list=[pooled])[0].shape == (2, 1, 3, 4)
    with pytest.raises(ShapeError, match="3 taps, dilation 1, does not fit on an axis of 1"):
        exe.run(feed={"images": small}, fetch_list=[pooled])


def test_what_is_fetched_twice_comes_as_two_arrays(case: Case) -> None:
    first, second = case.run(fetch_list=["loss", "loss"])
    assert first == second
    assert not np.shares_memory(first, second)


def test_a_program_that_fixes_the_batch_runs_for_that_batch(fresh_programs: Any) -> None:
    x = fluid.layers.data("x", [2])
    weights = fluid.layers.fill_constant([3, 2], "float32", 2.0)
    y = fluid.layers.elementwise_mul(x, weights)
    exe = fluid.Executor()
    rows = np.ones((3, 2), np.float32)
    assert np.array_equal(exe.run(feed={"x": rows}, fetch_list=[y])[0], rows * 2)
    with pytest.raises(ValueError, match=r"shapes \[4, 2\] and \[3, 2\] do not broadcast"):
        exe.run(feed={"x": np.ones((4, 2), np.float32)}, fetch_list=[y])


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        (3, TypeError, "feed must be a dict from names to arrays, not int"),
        ("x", TypeError, "feed must be a dict from names to arrays, not str"),
        ([3], TypeError, "feed must be a dict from names to arrays, not int"),
        (
            [FEED, FEED],
            AssertionError,
            "a list of 2 feeds requires a program compiled with data par",
        ),
        ([], AssertionError, "a list of 0 feeds"),
        ({3: X}, TypeError, "a key of feed must be a name, not int"),
        ({"x": X.tolist(), "y": Y}, RuntimeError, "feed 'x' is a Python list: feed np.array(…, dt"),
    ],
)
def test_feeds_of_another_kind(case: Case, feed: Any, error: type, message: str) -> None:
    refused(case, error, message, feed=feed)


@pytest.mark.parametrize(
    ("fetch", "error", "message"),
    [
        ({"loss": 1}, TypeError, "fetch_list must be a list of Variables or names, not dict"),
        (3, TypeError, "fetch_list must be a list of Variables or names, not int"),
        ([3], TypeError, "an item of fetch_list must be a Variable, a name or an op, not int"),
        (
            ["los"],
            ValueError,
            "fetch 'los' is not a variable the program computes\n  hint: did you",
        ),
        ("nothing", ValueError, "fetch 'nothing' is not a variable the program computes"),
    ],
)
def test_fetches_of_another_kind(case: Case, fetch: Any, error: type, message: str) -> None:
    refused(case, error, message, fetch_list=fetch)


def test_fetches_of_another_program_and_of_eager_mode(case: Case) -> None:
    with program_guard(Program()):
        other = fluid.data("other", [1])
    with pytest.raises(ValueError, match=f"fetch {other.name!r} is a variable of another program"):
        case.run(fetch_list=[other])
    exe = Executor(CPU)
    with fluid.dygraph.guard():
        value = fluid.dygraph.to_variable(X)
        for options in ({"feed": {"x": X}}, {"fetch_list": [value]}):
            with pytest.raises(
                TypeError, match=r"the default program within fluid.dygraph.guard\("
            ):
                exe.run(**options)


def test_main_before_startup_hints_at_startup() -> None:
    main, _ = model()
    with pytest.raises(NotInitialized) as caught:
        Executor().run(main, feed=FEED, fetch_list=["loss"], scope=Scope())
    assert str(caught.value) == (
        "'w' is not initialised: float32 of shape (3, 1) is needed\n"
        "  hint: run the startup program first, in the same scope, or load saved parameters"
    )


def test_a_parameter_set_to_another_shape(case: Case) -> None:
    case.scope.var("w").get_tensor().set(np.zeros((2, 1), "float32"), CPU)
    message = r"'w' must be float32 of shape \(3, 1\), but it holds float32 of shape \(2, 1\)"
    with pytest.raises(ValueError, match=message):
        case.run()


def test_programs_and_scopes_of_another_kind(case: Case) -> None:
    with pytest.raises(TypeError, match=r"the program of Executor\.run must be a Program, not int"):
        case.exe.run(3)  # type: ignore[arg-type]
    refused(case, TypeError, "the scope of Executor.run must be a Scope, not str", scope="s")


def test_a_closed_executor(case: Case) -> None:
    case.exe.close()
    case.exe.close()
    with pytest.raises(RuntimeError, match="this Executor is closed: create a new one"):
        case.run()


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"a place is CPUPlace\(\) or CUDAPlace\(i\), not 'cpu'"):
        Executor("cpu")  # type: ignore[arg-type]
    with pytest.raises(PlaceError, match="no program runs on CUDAPinnedPlace"):
        Executor(CUDAPinnedPlace())
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(PlaceError, match=r"CUDAPlace\(4096\) cannot be used: torch"):
        Case(CUDAPlace(4096))


def test_a_program_without_ops_warns(case: Case) -> None:
    with pytest.warns(
        UserWarning, match="the program has no ops: were its layers added to another"
    ):
        assert case.exe.run(Program()) == []
