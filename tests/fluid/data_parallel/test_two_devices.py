"""Programs on two processes: what ParallelExecutor computes, returns and rejects."""

import re
import warnings
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.core import EnforceNotMet
from fluid.data_parallel.devices import Devices
from runtime.errors import WorkerError

pytestmark = pytest.mark.usefixtures("fresh_programs", "two_devices")
X = np.arange(4, dtype=np.float32).reshape(4, 1)
Strategy = fluid.BuildStrategy
Scales, Reduces = Strategy.GradientScaleStrategy, Strategy.ReduceStrategy


def net(width: int = 2, weight: str = "w") -> tuple[fluid.Variable, fluid.Variable]:
    """Outputs x·weight with a weight of ones, and their mean, which SGD makes smaller."""
    x = fluid.data("x", [None, 1])
    ones = fluid.initializer.Constant(1.0)
    attr = fluid.ParamAttr(name=weight, initializer=ones)
    hidden = fluid.layers.fc(x, width, param_attr=attr, bias_attr=False)
    return hidden, fluid.layers.mean(hidden)


@pytest.fixture
def loss(exe: Any) -> fluid.Variable:
    """The loss of a started network that trains."""
    _, result = net()
    fluid.optimizer.SGD(0.1).minimize(result)
    exe.run(fluid.default_startup_program())
    return result


def weights() -> Any:
    return np.array(fluid.global_scope().find_var("w").get_tensor()).ravel()


@pytest.mark.parametrize("reduce", list(Reduces))
@pytest.mark.parametrize(
    ("scale", "seeds", "gradient", "weight"),
    [
        (Scales.CoeffNumDevice, [0.5, 0.5], 0.75, 0.925),
        (Scales.One, [1, 1], 1.5, 0.85),
        (Scales.Customized, [0.7, 0.3], 0.55, 0.945),
    ],
)
def test_numbers_of_the_reference(
    loss: fluid.Variable, reduce: Any, scale: Any, seeds: list[float], gradient: float, weight: Any
) -> None:
    strategy = Strategy()
    strategy.gradient_scale_strategy, strategy.reduce_strategy = scale, reduce
    runner = fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=strategy)
    seed = f"{loss.name}@GRAD"
    feed: Any = {"x": X}
    if scale is Scales.Customized:
        pairs = zip(seeds, (X[:2], X[2:]), strict=True)
        feed = [{"x": part, seed: np.array([value], "float32")} for value, part in pairs]
    losses, result, seen, fetched = runner.run([loss, "w@GRAD", seed, "w"], feed=feed)
    assert np.allclose(losses, [0.5, 2.5]) and np.allclose(seen, seeds)
    assert result.shape == (2, 2)  # the rows of both devices: one has the sum at least
    assert any(np.allclose(row, gradient) for row in result)
    assert np.allclose(fetched, weight) and np.allclose(weights(), weight)


def test_three_rows_on_two_devices(loss: fluid.Variable) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    assert runner.device_count == 2
    losses, rows = runner.run([loss.name, "x"], feed={"x": X[:3]})
    assert losses.tolist() == [0, 1.5] and rows.ravel().tolist() == [0, 1, 2]


def test_a_feed_for_each_device(loss: fluid.Variable) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    (rows,) = runner.run(["x"], feed=[{"x": X}, {"x": X[:3]}])
    assert rows.ravel().tolist() == [0, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        ([{"x": X}] * 3, ValueError, "a list of 3, but the number of devices is 2"),
        ([{"x": X}], ValueError, "a list of 1, but the number of devices is 2"),
        ([X, X], TypeError, "Each element of feed list should be a dict"),
        (7, ValueError, "not int"),
        (None, EnforceNotMet, "missing feed: 'x'"),
        ({"x": X, "z": X}, ValueError, "var z not in this block"),
        ({"x": X[:1]}, EnforceNotMet, r"number\(1\) of samples\[x\].*less than the count\(2\)"),
        ({"x": X.astype("float64")}, EnforceNotMet, "must be 'float32'"),
        ({"x": X.tolist()}, RuntimeError, "Python list"),
    ],
)
def test_feeds_that_do_not_fit(
    loss: fluid.Variable, feed: Any, error: type[Exception], message: str
) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    with pytest.raises(error, match=message):
        runner.run([loss], feed=feed)
    assert len(runner.run([loss], feed={"x": X})[0]) == 2


def test_an_error_of_a_device_is_short(exe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUID_TRACEBACK", raising=False)
    ids = fluid.data("ids", [None, 1], "int64")
    loss = fluid.layers.mean(fluid.embedding(ids, [5, 2], param_attr="table"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    with pytest.raises(WorkerError) as seen:
        runner.run([loss], feed={"ids": np.array([[0], [7]])})
    said, op, line = str(seen.value).splitlines()
    assert "rank 1 (host" in said and "id 7 at position 0 is not a row of the table" in said
    assert op.startswith("  op:   embedding_0.tmp_0 = lookup_table_v2(ids, table)")
    assert line.startswith("  line: ") and "test_two_devices.py" in line
    assert not getattr(seen.value, "__notes__", [])


def test_fetch_errors(loss: fluid.Variable) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    with pytest.raises(EnforceNotMet, match="nobody"):
        runner.run(["nobody"], feed={"x": X})
    assert runner.run([], feed={"x": X}) == []


def test_before_the_startup_program() -> None:
    _, result = net()
    fluid.optimizer.SGD(0.1).minimize(result)
    runner = fluid.ParallelExecutor(False, loss_name=result.name, scope=fluid.Scope())
    with pytest.raises(EnforceNotMet, match="'w' is not initialised"):
        runner.run([result], feed={"x": X})


def test_values_of_each_device(loss: fluid.Variable, exe: Any) -> None:
    program = fluid.CompiledProgram(fluid.default_main_program())
    program.with_data_parallel(loss_name=loss.name)
    fetch = {"feed": {"x": X}, "fetch_list": [loss, "x"]}
    losses, rows = exe.run(program, **fetch, return_merged=False)
    assert np.array(losses).shape == (2, 1) and np.array(rows).shape == (2, 2, 1)
    losses, rows = exe.run(program, **fetch)
    assert losses.shape == (2,) and rows.shape == (4, 1)
    tensors = exe.run(program, **fetch, return_numpy=False)
    assert [tensor.shape() for tensor in tensors] == [[2], [4, 1]]


def test_sequences_on_two_devices(exe: Any) -> None:
    words = fluid.data("words", [None, 1], "float32", lod_level=1)
    pooled = fluid.layers.sequence_pool(words, "sum")
    doubled = fluid.layers.scale(words, 2.0)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    rows = np.arange(7, dtype=np.float32).reshape(7, 1)
    feed = {"words": fluid.create_lod_tensor(rows, [[1, 2, 4]], fluid.CPUPlace())}
    sums, whole = exe.run(program, feed=feed, fetch_list=[pooled, doubled], return_numpy=False)
    assert np.array(sums).ravel().tolist() == [0, 3, 18]
    assert whole.recursive_sequence_lengths() == [[1, 2, 4]]
    assert np.array_equal(whole, rows * 2)


def test_a_test_program_reads_the_variables_of_training(exe: Any) -> None:
    hidden, loss = net()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    training = fluid.ParallelExecutor(False, loss_name=loss.name)
    testing = fluid.ParallelExecutor(False, main_program=test_program, share_vars_from=training)
    apart = fluid.ParallelExecutor(False, main_program=test_program)
    with pytest.raises(ValueError, match="not compiled and executed"):
        testing.run([loss.name], feed={"x": X})
    assert np.allclose(apart.run([loss.name], feed={"x": X}), [[0.5, 2.5]])
    training.run([loss.name], feed={"x": X})
    shared = testing.run([hidden], feed={"x": X})[0]
    assert np.allclose(shared, 0.925 * np.repeat(X, 2, axis=1))
    with pytest.warns(UserWarning, match="pass share_vars_from"):
        (stale,) = apart.run([hidden], feed={"x": X})
    assert np.allclose(stale[:2], shared[:2]) and np.allclose(stale[2:], X[2:])


def test_programs_without_common_variables_are_trained_by_turns(exe: Any) -> None:
    runners: list[tuple[fluid.CompiledProgram, fluid.Variable]] = []
    for weight in ("first", "second"):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            loss = net(weight=weight)[1]
            fluid.optimizer.SGD(0.1).minimize(loss)
        exe.run(startup)
        runner = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name)
        runners.append((runner, loss))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(2):
            for runner, loss in runners:
                exe.run(runner, feed={"x": X}, fetch_list=[loss])


def test_values_written_between_steps_reach_all_devices(loss: fluid.Variable, exe: Any) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    runner.run([loss], feed={"x": X})
    tensor = fluid.global_scope().find_var("w").get_tensor()
    tensor.set(np.full((1, 2), 2, "float32"), fluid.CPUPlace())
    (losses,) = runner.run([loss], feed={"x": X})
    assert np.allclose(losses, [1, 5])
    exe.run(fluid.default_startup_program())
    assert np.allclose(runner.run([loss], feed={"x": X})[0], [0.5, 2.5])


def test_persistable_feeds(exe: Any) -> None:
    _, result = net()
    rate = fluid.layers.create_global_var([1], 0.1, "float32", persistable=True, name="rate")
    fluid.optimizer.SGD(rate).minimize(result)
    exe.run(fluid.default_startup_program())
    runner = fluid.ParallelExecutor(False, loss_name=result.name)
    (rates,) = runner.run(["rate"], feed={"x": X, "rate": np.array([0.2], "float32")})
    assert np.allclose(rates, 0.2) and np.allclose(weights(), 0.85)
    (rates,) = runner.run(["rate"], feed={"x": X, "rate": np.array([0.1, 0.2], "float32")})
    assert np.allclose(rates, [0.1, 0.2])
    with pytest.raises(EnforceNotMet, match=r"'rate' must have the shape \(1,\), but \(2,\)"):
        runner.run(["rate"], feed={"x": X, "rate": np.ones(3, "float32")})


def test_fewer_rows_than_devices_where_nothing_is_trained(exe: Any) -> None:
    x = fluid.data("x", [None, 1])
    doubled = fluid.layers.scale(x, 2.0)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    for rows in range(1, 5):
        (result,) = exe.run(program, feed={"x": X[:rows]}, fetch_list=[doubled])
        assert np.array_equal(result, X[:rows] * 2)
    (result,) = exe.run(program, feed=[{"x": X}], fetch_list=[doubled])
    assert np.array_equal(result, X * 2)


def test_state_of_optimizers_is_held_once_and_saved_whole(exe: Any, tmp_path: Any) -> None:
    hidden, _ = net(4)
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 3))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe.run(fluid.default_startup_program())
    strategy = Strategy()
    strategy.reduce_strategy = Reduces.Reduce
    scope = fluid.global_scope()
    fluid.io.save_persistables(exe, str(tmp_path / "start"))

    def trained(build: Any) -> dict[str, Any]:
        fluid.io.load_persistables(exe, str(tmp_path / "start"))
        runner = fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=build)
        for _ in range(2):
            runner.run([], feed={"x": X})
        is_offloaded = [
            scope.find_var(n).get_tensor().is_offloaded for n in scope.local_var_names()
        ]
        fluid.io.save_persistables(exe, str(tmp_path / "there"))
        runner.run([], feed={"x": X})
        fluid.io.load_persistables(exe, str(tmp_path / "there"))
        runner.run([], feed={"x": X})
        names = [n for n in scope.local_var_names() if "velocity" in n]
        (fetched,) = runner.run([names[0]], feed={"x": X})
        assert any(is_offloaded) == (build is strategy) and len(fetched)
        return {name: np.array(array) for name, array in scope.arrays().items()}

    every, owned = trained(Strategy()), trained(strategy)
    for name, value in every.items():
        assert np.allclose(owned[name], value, atol=1e-6), name


def test_rates_that_decay_and_branches(exe: Any) -> None:
    fluid.default_startup_program().random_seed = 3
    x = fluid.data("x", [None, 1])
    hidden = fluid.layers.fc(x, 2, param_attr="w", bias_attr="b")
    mean = fluid.layers.reduce_mean(hidden)
    half = fluid.layers.fill_constant([1], "float32", 100.0)
    loss = fluid.layers.mean(
        fluid.layers.cond(mean < half, lambda: hidden * hidden, lambda: hidden * 2.0)
    )
    rate = fluid.layers.exponential_decay(0.1, decay_steps=1, decay_rate=0.5)
    fluid.optimizer.SGD(rate).minimize(loss)
    program = fluid.CompiledProgram(fluid.default_main_program())
    program.with_data_parallel(loss_name=loss.name)
    results = []
    for each in (fluid.default_main_program(), program):
        exe.run(fluid.default_startup_program())
        for _ in range(3):
            rates, _ = exe.run(each, feed={"x": X}, fetch_list=[rate, loss])
        results.append((weights(), rates))
    assert np.allclose(results[0][0], results[1][0], atol=1e-6)
    assert results[1][1].shape == (2,) and np.allclose(results[1][1], results[0][1])


@pytest.mark.parametrize("seed", [0, 11])
def test_masks_of_dropout_differ_unless_there_is_a_seed(exe: Any, seed: int) -> None:
    """As in the reference, an op with a seed draws the same numbers on every device."""
    fluid.default_main_program().random_seed = seed
    dropped = fluid.layers.dropout(fluid.data("x", [None, 64]), 0.5)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    feed = {"x": np.ones((4, 64), "float32")}
    (result,) = exe.run(program, feed=feed, fetch_list=[dropped])
    assert np.array_equal(result[:2], result[2:]) == bool(seed)


def test_python_functions_are_called_by_each_device(exe: Any) -> None:
    """Two programs of equal modules call their own functions."""
    for factor in (2.0, 3.0):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            x = fluid.data("x", [None, 1])
            main = fluid.default_main_program()
            out = main.current_block().create_var(name="out", dtype="float32", shape=[-1, 1])
            rows: list[int] = []

            def multiply(given: Any, factor: float = factor, rows: list[int] = rows) -> Any:
                rows.append(len(np.array(given)))
                return np.array(given) * factor

            fluid.layers.py_func(multiply, x, out)
            program = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
            (result,) = exe.run(program, feed={"x": X}, fetch_list=[out])
            assert np.array_equal(result, X * factor) and sum(rows) == len(X) and len(rows) == 2


def test_python_functions_stay_in_their_process(monkeypatch: pytest.MonkeyPatch, exe: Any) -> None:
    x = fluid.data("x", [None, 1])
    main = fluid.default_main_program()
    out = main.current_block().create_var(name="out", dtype="float32", shape=[-1, 1])
    fluid.layers.py_func(lambda given: given, x, out)
    monkeypatch.setattr(Devices, "calls_python", False)  # as for devices of other processes
    program = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    with pytest.raises(fluid.core.EnforceNotMet, match="py_func calls a Python function") as seen:
        exe.run(program, feed={"x": X}, fetch_list=[out])
    assert re.search(r"test_two_devices\.py:\d+", str(seen.value))
    assert "hint: run it on one device, or compute it from what is fetched" in str(seen.value)


def test_an_error_of_a_worker_has_its_traceback(exe: Any) -> None:
    ids = fluid.data("ids", [None, 1], "int64")
    rows = fluid.embedding(ids, [5, 2])
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    with pytest.raises(EnforceNotMet) as caught:
        exe.run(program, feed={"ids": np.array([[1], [9]])}, fetch_list=[rows])
    assert "rank 1" in str(caught.value) and "Traceback" in str(caught.value)
    (result,) = exe.run(program, feed={"ids": np.array([[1], [2]])}, fetch_list=[rows])
    assert result.shape[0] == 2


def test_temporaries_are_dropped_on_all_devices(loss: fluid.Variable) -> None:
    runner = fluid.ParallelExecutor(False, loss_name=loss.name)
    runner.run([loss], feed={"x": X})
    assert not runner._need_create_local_exe_scopes()
    assert runner.drop_local_exe_scopes() is None
    assert runner._need_create_local_exe_scopes()
    (losses,) = runner.run([loss], feed={"x": X})
    assert np.allclose(losses, 0.925 * np.array([0.5, 2.5]))


def test_passes_are_inserted_and_removed(exe: Any, tmp_path: Any) -> None:
    _, loss = net()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    strategy = Strategy()
    strategy.fuse_elewise_add_act_ops = True
    strategy.debug_graphviz_path = str(tmp_path / "debug.dot")
    builder = strategy._finalize_strategy_and_create_passes()
    kinds = [pass_.type() for pass_ in builder.all_passes()]
    assert "fuse_elewise_add_act_pass" in kinds
    drawing = builder.append_pass("graph_viz_pass")
    builder.insert_pass(len(kinds) + 1, "graph_viz_pass")
    builder.remove_pass(len(kinds) + 1)
    assert len(builder.all_passes()) == len(kinds) + 1
    with pytest.raises(ValueError, match="graph_viz_pass"):
        builder.append_pass("graph_vis_pass")
    drawing.set("graph_viz_path", str(tmp_path / "passes.dot"))
    training = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, build_strategy=strategy
    )
    testing = fluid.CompiledProgram(test_program).with_data_parallel(
        loss_name=loss.name, build_strategy=strategy, share_vars_from=training
    )
    for _ in range(3):
        exe.run(training, feed={"x": X}, fetch_list=[loss])
        tested = exe.run(testing, feed={"x": X}, fetch_list=[loss.name])
        assert np.allclose(exe.run(training, feed={"x": X}, fetch_list=[loss]), tested)
    for name in ("debug.dot", "passes.dot"):
        assert "digraph" in (tmp_path / name).read_text()


def test_readers_feed_every_device(exe: Any) -> None:
    x = fluid.data("x", [None, 1])
    doubled = fluid.layers.scale(x, 2.0)
    for drop_last, batches in ((True, 4), (False, 5)):
        program = fluid.default_main_program()
        program.readers.clear()
        loader = fluid.io.DataLoader.from_generator([x], 4, iterable=False, drop_last=drop_last)
        loader.set_batch_generator(lambda: ([X[:2]] for _ in range(5)))
        compiled = fluid.CompiledProgram(program).with_data_parallel()
        loader.start()
        rows = 0
        with pytest.raises(fluid.core.EOFException):
            while True:
                rows += len(exe.run(compiled, fetch_list=[doubled])[0])
        loader.reset()
        assert rows == 2 * batches
