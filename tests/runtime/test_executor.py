"""The executor's core: one Module a pattern of sizes, one binding a size, a look-up after that."""

import gc
import weakref
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.codegen.module import Module
from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.types import DType, Shape
from runtime import executor
from runtime.device import CPUPlace, CUDAPlace
from runtime.errors import FeedError, NotInitialized, PlaceError
from runtime.executor import Executor
from runtime.feeds import Declared
from runtime.loader import Counters, Executable
from runtime.program_source import ProgramSource
from runtime.sizes import Pattern, name_sizes
from runtime.tensors.scope import Scope

LINE = Module.load(Path(__file__).with_name("fit_a_line.py"))
LOSS = ("mean_0.tmp_0",)


class Program:
    """A fake program: `modules` are compiled one after another, and requests are recorded."""

    def __init__(self, *modules: Module) -> None:
        self.version = 0
        self.modules = modules or (LINE,)
        self.asked: list[tuple[Pattern, list[str]]] = []
        self.declared = {
            "x": Declared(DType.FP32, (UNKNOWN, 13)),
            "y": Declared(DType.FP32, (UNKNOWN, 1)),
            "learning_rate_0": Declared(DType.FP32, (1,), kept=True),
        }


class Programs(ProgramSource[Program]):
    """Fake programs: nothing is compiled."""

    def compile(self, program: Program, feed: Pattern, fetch: list[str]) -> Module:
        program.asked.append((feed, fetch))
        return program.modules[(len(program.asked) - 1) % len(program.modules)]

    def declared(self, program: Program, name: str) -> Declared:
        return program.declared[name]

    def digest(self, program: Program) -> str:
        return f"{'+'.join(module.digest for module in program.modules)} at {program.version}"


def make() -> Executor[Program]:
    return Executor(Programs())


def initialised() -> Scope:
    scope, draw = Scope(), np.random.RandomState(0)
    values = {
        "fc_0.b_0": np.zeros(1, "float32"),
        "fc_0.w_0": draw.randn(13, 1).astype("float32"),
        "learning_rate_0": np.full(1, 0.01, "float32"),
    }
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, CPUPlace())
    return scope


def batch(size: int) -> dict[str, np.ndarray]:
    draw = np.random.RandomState(size)
    return {
        "x": draw.randn(size, 13).astype("float32"),
        "y": draw.randn(size, 1).astype("float32"),
    }


def weight(scope: Scope) -> np.ndarray:
    return scope.arrays()["fc_0.w_0"].copy()


# Patterns

ANY = UNKNOWN


@pytest.mark.parametrize(
    ("declared", "given_", "pattern"),
    [
        ({"x": (ANY, 13), "y": (ANY, 1)}, {"x": (20, 13), "y": (20, 1)}, ("N", 13, "N", 1)),
        ({"x": (ANY, 13), "y": (ANY, 1)}, {"x": (1, 13), "y": (1, 1)}, ("N", 13, "N", 1)),
        ({"x": (ANY, 13), "y": (ANY, 1)}, {"x": (4, 13), "y": (1, 1)}, ("N", 13, 1, 1)),
        ({"x": (ANY, ANY), "y": (ANY, ANY)}, {"x": (8, 5), "y": (5, 3)}, ("N", "M", "M", "K")),
        ({"x": (ANY, 13), "y": (ANY,)}, {"x": (0, 13), "y": (7,)}, ("N", 13, "M")),
        ({"x": (3, 4), "y": ()}, {"x": (3, 4), "y": ()}, (3, 4)),
    ],
)
def test_open_sizes_get_names(
    declared: dict[str, Shape], given_: dict[str, tuple[int, ...]], pattern: tuple[object, ...]
) -> None:
    named = name_sizes(declared, given_)
    assert (*named["x"], *named["y"]) == pattern
    backwards = {name: declared[name] for name in reversed(declared)}
    assert name_sizes(backwards, given_) == named and list(named) == ["x", "y"]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40))
def test_names_stand_for_one_size(sizes: list[int]) -> None:
    (named,) = name_sizes({"x": (ANY,) * len(sizes)}, {"x": sizes}).values()
    values = dict(zip(named, sizes, strict=True))
    assert [values[name] for name in named] == sizes
    assert len(set(named)) == len(set(sizes))
    assert all(isinstance(name, str) or name == 1 for name in named)


# What is kept


def test_another_batch_size_only_binds() -> None:
    exe, program, scope = make(), Program(), initialised()
    exe.run(program, batch(20), LOSS, scope)
    for size in (7, 20, 1, 7, 512):
        exe.run(program, batch(size), LOSS, scope)
    assert exe.counters == Counters(compiles=1, bindings=4, runs=6)
    assert program.asked == [({"x": ("N", 13), "y": ("N", 1)}, ["mean_0.tmp_0"])]


def test_binding_takes_less_than_five_milliseconds() -> None:
    exe, program, scope = make(), Program(), initialised()
    exe.run(program, batch(64), LOSS, scope)
    times: list[float] = []
    for size in range(2, 22):
        feed = batch(size)
        start = perf_counter()
        exe.run(program, feed, LOSS, scope)
        times.append(perf_counter() - start)
    assert exe.counters.bindings == 21
    assert min(times) < 5e-3


def test_sizes_that_are_equal_no_more_compile_again() -> None:
    exe, program, scope = make(), Program(LINE, _one_target()), initialised()
    feed = batch(4)
    exe.run(program, feed, LOSS, scope)
    exe.run(program, feed | {"y": np.zeros((1, 1), "float32")}, LOSS, scope)
    exe.run(program, batch(5), LOSS, scope)
    assert [pattern["y"] for pattern, _ in program.asked] == [("N", 1), (1, 1)]


def _one_target() -> Module:
    """`LINE` for a batch that shares one target."""
    return Module.parse(
        LINE.source.replace('("y", "float32", ("N", 1))', '("y", "float32", (1, 1))')
    )


def test_an_edit_compiles_again() -> None:
    exe, program, scope = make(), Program(), initialised()
    for version in (0, 0, 1, 1):
        program.version = version
        exe.run(program, batch(4), LOSS, scope)
    assert (exe.counters.compiles, exe.counters.bindings) == (2, 2)


def test_other_fetches_compile_again_and_doubles_do_not() -> None:
    exe, program, scope = make(), Program(), initialised()
    once = exe.run(program, batch(4), (), scope)
    twice = exe.run(program, batch(4), LOSS * 2, scope)
    assert [once, len(twice)] == [[], 2] and twice[0] == twice[1]
    assert [fetch for _, fetch in program.asked] == [[], ["mean_0.tmp_0"]]
    exe.run(program, batch(4), LOSS, scope)
    assert exe.counters.compiles == 2


def test_each_scope_has_its_own_state() -> None:
    exe, program, one, other = make(), Program(), initialised(), initialised()
    before = weight(other)
    exe.run(program, batch(4), LOSS, one)
    assert np.array_equal(weight(other), before)
    exe.run(program, batch(4), LOSS, other)
    assert np.array_equal(weight(other), weight(one))
    assert exe.counters.compiles == 1


def test_a_kid_scope_trains_the_parents_state() -> None:
    exe, program, scope = make(), Program(), initialised()
    before = weight(scope)
    exe.run(program, batch(4), LOSS, scope.new_scope())
    assert not np.array_equal(weight(scope), before)


def test_values_set_between_runs_are_used() -> None:
    exe, program, scope, fresh = make(), Program(), initialised(), initialised()
    first = exe.run(program, batch(4), LOSS, scope)
    scope.var("fc_0.w_0").get_tensor().set(weight(fresh), CPUPlace())
    scope.arrays()["fc_0.b_0"] = np.zeros(1, "float32")
    assert exe.run(program, batch(4), LOSS, scope) == first
    assert exe.counters.bindings == 1


@pytest.mark.parametrize("drop", ["scope", "program"])
def test_nothing_keeps_a_scope_or_a_program_alive(drop: str) -> None:
    exe = make()
    held: dict[str, object] = {"scope": initialised(), "program": Program()}
    exe.run(held["program"], batch(4), LOSS, held["scope"])  # type: ignore[arg-type]
    gone = weakref.ref(held.pop(drop))
    gc.collect()
    assert gone() is None


def test_executor_evicts_old_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MAX_RUNS", 3)
    exe, program, scope = make(), Program(), initialised()
    for size in [*range(2, 12), 2]:
        exe.run(program, batch(size), LOSS, scope)
    assert (exe.counters.compiles, exe.counters.runs) == (1, 11)


def test_close_forgets() -> None:
    exe, program, scope = make(), Program(), initialised()
    exe.run(program, batch(4), LOSS, scope)
    exe.close()
    exe.run(program, batch(4), LOSS, scope)
    assert exe.counters.compiles == 2


# Feeds


def test_feeding_state_sets_it() -> None:
    exe, program, scope = make(), Program(), initialised()
    before, rate = weight(scope), np.zeros(1, "float32")
    exe.run(program, batch(4) | {"learning_rate_0": rate}, LOSS, scope)
    assert np.array_equal(weight(scope), before)
    assert scope.arrays()["learning_rate_0"] == 0
    assert "learning_rate_0" not in program.asked[0][0]
    exe.run(program, batch(4), LOSS, scope)
    assert np.array_equal(weight(scope), before)


def test_a_feed_declared_without_a_shape_takes_any() -> None:
    exe, program, scope = make(), Program(), initialised()
    program.declared["x"] = Declared(DType.FP32, None)
    with pytest.raises(ShapeError, match=r"must have the shape \(N, 13\), but \(4, 4\) was given"):
        exe.run(program, batch(4) | {"x": np.zeros((4, 4), "float32")}, LOSS, scope)
    assert program.asked[0][0]["x"] == ("N", "N")


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((4, 13)), FeedError, "'x' must be 'float32', but received 'float64'"),
        (np.zeros((4, 13), ">f4"), FeedError, "'x' must be 'float32', but received '>f4'"),
        (np.zeros((4, 12), "f4"), ShapeError, r"= \(-1, 13\), but received fed shape \[4, 12\]"),
        (np.zeros((4,), "f4"), ShapeError, r"= \(-1, 13\), but received fed shape \[4\]"),
        (
            np.zeros((4, 13, 1), "f4"),
            ShapeError,
            r"\(-1, 13\), but received fed shape \[4, 13, 1\]",
        ),
    ],
)
def test_feeds_that_do_not_fit_change_nothing(x: np.ndarray, error: type, message: str) -> None:
    exe, program, scope = make(), Program(), initialised()
    rate = np.zeros(1, "float32")
    with pytest.raises(error, match=message):
        exe.run(program, {"learning_rate_0": rate, **batch(4), "x": x}, LOSS, scope)
    assert program.asked == [] and scope.arrays()["learning_rate_0"] != 0


# Errors


def test_a_run_rejected_can_be_repeated_once_it_is_mended() -> None:
    exe, program, scope = make(), Program(), Scope()
    with pytest.raises(NotInitialized, match=r"'fc_0.b_0' is not initialised"):
        exe.run(program, batch(4), LOSS, scope)
    scope.arrays().update(initialised().arrays())
    assert exe.run(program, batch(4), LOSS, scope)[0].shape == (1,)
    assert exe.counters.compiles == 1


def test_failed_compilations_are_retried() -> None:
    class Refusing(Programs):
        def compile(self, program: Program, feed: Pattern, fetch: list[str]) -> Module:
            raise ValueError("no")

    exe = Executor(Refusing())
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            exe.run(Program(), batch(4), LOSS, initialised())
    assert exe.counters.compiles == 0


def test_no_garbage_is_collected_while_a_module_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled = list[bool]()
    load, prepare = executor.load, Executable.prepare
    monkeypatch.setattr(
        executor,
        "load",
        lambda *args, **named: enabled.append(gc.isenabled()) or load(*args, **named),
    )
    monkeypatch.setattr(
        Executable, "prepare", lambda *args: enabled.append(gc.isenabled()) or prepare(*args)
    )
    make().run(Program(), batch(2), LOSS, initialised())
    assert enabled == [False, False] and gc.isenabled()


def test_another_place_is_rejected_when_loading() -> None:
    exe = Executor(Programs(), CUDAPlace(0))
    with pytest.raises(PlaceError, match=r"not on CUDAPlace\(0\)"):
        exe.run(Program(), batch(4), LOSS, initialised())


def test_equal_programs_share_modules() -> None:
    exe, scope = make(), initialised()
    for program in (Program(), Program()):
        exe.run(program, batch(4), LOSS, scope)
    assert exe.counters.compiles == 1
