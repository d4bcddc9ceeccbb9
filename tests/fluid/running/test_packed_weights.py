"""Weights that are packed once: however they change, the next run computes with the new values."""

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected
from runtime.native.sequence import NativeCode

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code here")

X = np.random.default_rng(0).standard_normal((5, 64), "f4")


class Model:
    """A model with a program that trains it and one that does not; `scope` holds its weights."""

    def __init__(self, freeze: bool = False) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.data("x", [-1, 64])
            hidden = fluid.layers.fc(x, 128, act="relu", param_attr=_named("w0", not freeze))
            out = fluid.layers.fc(hidden, 32, param_attr=_named("w1", True))
            self.test = self.main.clone(for_test=True)
            self.loss = fluid.layers.reduce_mean(fluid.layers.square(out))
            fluid.optimizer.SGD(0.5).minimize(self.loss)
        self.out = out
        self.scope = fluid.Scope()
        self.native, self.numpy = fluid.Executor(), fluid.Executor()
        self.native.run(self.startup, scope=self.scope)

    def tensor(self, name: str = "w0", scope: fluid.Scope | None = None):
        return (scope or self.scope).find_var(name).get_tensor()

    def run_and_compare(
        self, exe: fluid.Executor | None = None, rows: int = 5, scope=None
    ) -> np.ndarray:
        """Return what the native test program computes, after comparing it with NumPy."""
        scope, result = scope or self.scope, []
        for runner, target in ((exe or self.native, "native"), (self.numpy, "numpy")):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("FLUID_TARGET", target)
                result += runner.run(self.test, {"x": X[:rows]}, [self.out], scope=scope)
        np.testing.assert_allclose(*result, rtol=1e-4, atol=1e-5)
        return result[0]

    def train(self, exe: fluid.Executor | None = None) -> None:
        (exe or self.native).run(self.main, {"x": X}, scope=self.scope)


def _named(name: str, trainable: bool) -> fluid.ParamAttr:
    return fluid.ParamAttr(name, trainable=trainable)


@pytest.fixture(autouse=True)
def _target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_TARGET", "native")


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kernels that packed weights outside of a step, as they ran."""
    ran: list[str] = []
    make = NativeCode.__call__

    def recorded(self, commands):
        listed = list(commands)
        run = make(self, listed)
        if len(listed) != 1 or not listed[0][0].startswith("pack"):
            return run

        def pack():
            ran.append(listed[0][0])
            run()

        return pack

    monkeypatch.setattr(NativeCode, "__call__", recorded)
    yield ran


def counted(packs: list[str]) -> int:
    """How many packings ran since the last call."""
    count = len(packs)
    packs.clear()
    return count


def test_weights_that_do_not_change_are_packed_once(packs: list[str], model: Model) -> None:
    for _ in range(3):
        model.run_and_compare()
    np.array(model.tensor())[:] = 0
    np.asarray(model.tensor())[:] = 0
    for rows in (5, 3, 4, 5):
        model.run_and_compare(rows=rows)
    fluid.executor._fetch_var("w0", model.scope)[:] = 0
    model.native.run(model.test, {"x": X}, ["w0"], scope=model.scope)[0][:] = 0
    model.run_and_compare()
    assert counted(packs) == 2


def test_training_and_testing_alternate(packs: list[str], model: Model) -> None:
    results = []
    for _ in range(4):
        results += [model.run_and_compare(), model.run_and_compare()]
        model.train()
    assert counted(packs) == 8
    for before, same, after in zip(results[::2], results[1::2], results[2::2], strict=False):
        assert np.array_equal(before, same) and not np.allclose(same, after)


def test_weights_that_are_not_trained_are_packed_once(packs: list[str]) -> None:
    model = Model(freeze=True)
    model.train(), model.run_and_compare()
    counted(packs)
    for _ in range(3):
        model.train(), model.run_and_compare()
    assert counted(packs) == 3, "only the trained weight"


def test_another_executor_trains(packs: list[str], model: Model) -> None:
    other = fluid.Executor()
    first = model.run_and_compare()
    model.train(other)
    assert not np.allclose(model.run_and_compare(), first)
    assert not np.allclose(model.run_and_compare(other), first)
    model.train(model.native)
    model.run_and_compare(other), model.run_and_compare()


def test_set_between_runs(packs: list[str], model: Model) -> None:
    model.run_and_compare()
    counted(packs)
    tensor = model.tensor()
    tensor.set(np.array(tensor) * 2, fluid.CPUPlace())
    model.run_and_compare()
    assert counted(packs) == 1, "the other weight is unchanged"
    tensor._set_float_element(3, 1e3)
    model.run_and_compare()
    assert counted(packs) == 1


def test_arrays_that_users_hold_are_packed_in_every_run(packs: list[str], model: Model) -> None:
    model.run_and_compare()
    view = np.array(model.tensor(), copy=False)
    for value in range(3):
        view[:] = value
        model.run_and_compare()
    arrays = model.scope.arrays()
    for value in range(3):
        arrays["w1"][...] += value
        model.run_and_compare()
    counted(packs)
    model.run_and_compare()
    assert counted(packs) == 2


def test_an_array_that_a_user_gave(model: Model) -> None:
    model.run_and_compare()
    inputs = np.ones((64, 128), "f4")
    model.scope.arrays()["w0"] = inputs
    model.run_and_compare()
    inputs[:] = 3
    model.run_and_compare()
    model.tensor().set(np.array(inputs), fluid.CPUPlace())
    model.run_and_compare()


def test_a_shared_tensor(model: Model) -> None:
    model.run_and_compare()
    other = model.scope.var("other").get_tensor()
    other._share_data_with(model.tensor())
    model.run_and_compare()
    other.set(np.ones((64, 128), "f4"), fluid.CPUPlace())
    model.run_and_compare()


def test_loading_between_runs(packs: list[str], model: Model, tmp_path) -> None:
    with fluid.scope_guard(model.scope):
        fluid.io.save_params(model.native, str(tmp_path / "params"), model.main)
        fluid.save(model.main, str(tmp_path / "state"))
        first = model.run_and_compare()
        model.train()
        assert not np.allclose(model.run_and_compare(), first)
        fluid.io.load_params(model.native, str(tmp_path / "params"), model.main)
        assert np.array_equal(model.run_and_compare(), first)
        model.train()
        model.run_and_compare()
        fluid.load(model.main, str(tmp_path / "state"), model.native)
        assert np.array_equal(model.run_and_compare(), first)
        state = fluid.io.load_program_state(str(tmp_path / "state"))
        fluid.io.set_program_state(model.main, {**state, "w1": state["w1"] * 2})
        assert not np.allclose(model.run_and_compare(), first)
        counted(packs)
        model.run_and_compare()
        assert counted(packs) == 0, "saving reads only"


def test_a_startup_program_that_runs_again(model: Model) -> None:
    model.run_and_compare()
    model.native.run(model.startup, scope=model.scope)
    model.run_and_compare()


def test_a_fed_weight(model: Model) -> None:
    for value in range(3):
        weight = np.full((64, 128), value, "f4")
        fed = {"x": X, "w0": weight}
        actual = model.native.run(model.test, fed, [model.out], scope=model.scope)
        expected = fluid.Executor().run(model.test, fed, [model.out], scope=model.scope)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
        np.testing.assert_allclose(actual[0], model.run_and_compare(), rtol=1e-5)


def test_kid_scopes(packs: list[str], model: Model) -> None:
    kid = model.scope.new_scope()
    first = model.run_and_compare()
    assert np.array_equal(model.run_and_compare(scope=kid), first)
    model.train()
    assert not np.allclose(model.run_and_compare(scope=kid), first)
    kid.var("w0").get_tensor().set(np.ones((64, 128), "f4"), fluid.CPUPlace())
    hidden = model.run_and_compare(scope=kid)
    assert not np.allclose(model.run_and_compare(), hidden)
    kid.erase(["w0"])
    assert np.array_equal(model.run_and_compare(scope=kid), model.run_and_compare())
    counted(packs)
    model.run_and_compare(scope=kid), model.run_and_compare()
    assert counted(packs) == 0


def test_a_program_that_writes_other_state_keeps_the_packed_weights(
    packs: list[str], model: Model
) -> None:
    counter, start = fluid.Program(), fluid.Program()
    with fluid.program_guard(counter, start):
        count = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
        fluid.layers.increment(count)
    model.native.run(start, scope=model.scope)
    model.run_and_compare()
    counted(packs)
    for _ in range(3):
        model.native.run(counter, scope=model.scope)
        model.run_and_compare()
    assert counted(packs) == 0


def test_a_python_function_writes_into_a_weight(model: Model) -> None:
    kept = []

    def write(tensor):
        tensor._set_float_element(0, 100.0)
        kept.append(tensor)
        return np.array(tensor)[:1]

    meddling = fluid.Program()
    with fluid.program_guard(meddling):
        weight = meddling.global_block().create_var(
            name="w0", shape=[64, 128], dtype="float32", persistable=True
        )
        out = meddling.global_block().create_var(name="out", shape=[1, 128], dtype="float32")
        fluid.layers.py_func(write, weight, out)
    first = model.run_and_compare()
    model.native.run(meddling, fetch_list=["out"], scope=model.scope)
    second = model.run_and_compare()
    assert not np.allclose(first, second)
    kept[0].set(np.zeros((64, 128), "f4"), fluid.CPUPlace())
    assert not np.allclose(model.run_and_compare(), second)


def test_a_python_function_runs_the_program_within_a_step(model: Model) -> None:
    """Weights of a step in progress may change at any moment."""
    seen = []
    nested = fluid.Executor()

    def look(loss):
        seen.append(model.run_and_compare(nested))
        return np.array(loss)

    with fluid.program_guard(model.main, model.startup):
        copied = model.main.global_block().create_var(name="copied", shape=[1], dtype="float32")
        fluid.layers.py_func(look, model.loss, copied)
    for _ in range(3):
        model.native.run(model.main, {"x": X}, ["copied"], scope=model.scope)
        model.run_and_compare(nested)
    assert len(seen) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_its_own_weights(model: Model) -> None:
    first = model.run_and_compare()
    child = os.fork()
    if not child:
        status = 1
        try:
            model.train()
            status = int(np.allclose(model.run_and_compare(), first))
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(model.run_and_compare(), first)


def test_threads_over_one_scope(model: Model) -> None:
    """While one thread trains, others compute with weights of that time, and then the last ones."""
    others, errors = [fluid.Executor() for _ in range(2)], []

    def test(exe):
        try:
            for _ in range(20):
                exe.run(model.test, {"x": X}, [model.out], scope=model.scope)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=test, args=(exe,)) for exe in others]
    for thread in threads:
        thread.start()
    for _ in range(20):
        model.train()
    for thread in threads:
        thread.join()
    assert not errors
    for exe in others:
        model.run_and_compare(exe)
