"""Programs on a fake GPU that runs queued work as late, or as oddly, as CUDA allows.

Kernels are executed by the PTX machine. Numbers must be those of the machine alone, bit for bit.
"""

from contextlib import ExitStack

import numpy as np
import pytest

import fluid
from compiler.codegen.triton.graph_segments import MIN_LAUNCHES
from compiler.support.thresholds import lowered

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

from runtime.gpu import copies, staging  # noqa: E402
from runtime.gpu.captures import CapturedLines  # noqa: E402
from runtime.gpu.drivers import Driver  # noqa: E402
from tests.runtime.gpu.fake_cuda import FakeCuda, QueuedLibrary, Stream  # noqa: E402
from tools.ptx.errors import MemoryFault  # noqa: E402

BATCHES = (4, 4, 4, 6, 6, 6, 4)


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


class Program:
    """A classifier with dropout, momentum and a decaying learning rate."""

    fetched = 2

    def __init__(self, place):
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.main.random_seed = self.startup.random_seed = 5
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x, y = fluid.data("x", [None, 9]), fluid.data("y", [None, 1], "int64")
            hidden = fluid.layers.dropout(fluid.layers.fc(x, 6, act="relu"), 0.25, seed=3)
            self.logits = fluid.layers.fc(hidden, 4)
            loss = fluid.layers.softmax_with_cross_entropy(self.logits, y)
            self.loss = fluid.layers.mean(loss)
            rate = fluid.layers.exponential_decay(0.1, 10, 0.9)
            fluid.optimizer.Momentum(rate, 0.9).minimize(self.loss)
        self.executor, self.scope = fluid.Executor(place), fluid.Scope()
        with fluid.scope_guard(self.scope):
            fluid.Executor(fluid.CPUPlace()).run(self.startup)

    def step(self, batch, number, return_numpy=True):
        """The loss and, if both are fetched, the logits of a step; the arrays it was fed are overwritten afterwards."""
        values = np.random.default_rng(number)
        x, y = values.random((batch, 9), "f4"), values.integers(0, 4, (batch, 1))
        with fluid.scope_guard(self.scope):
            fetch = [self.loss, self.logits][: self.fetched]
            feed = {"x": x, "y": y}
            result = self.executor.run(self.main, feed, fetch, return_numpy=return_numpy)
        x[:], y[:] = np.nan, 0
        return result

    def set_weights(self, value):
        """Change the first layer's weights, in place."""
        name = self.main.all_parameters()[0].name
        self.scope.find_var(name).get_tensor().set(np.full((9, 6), value, "f4"), fluid.CPUPlace())


def numbers(steps=BATCHES):
    """What some steps compute, the parameters being changed before the last."""
    program, result = Program(fluid.CUDAPlace(0)), []
    for number, batch in enumerate(steps):
        if number == len(steps) - 1:
            program.set_weights(0.25)
        result += program.step(batch, number)
    return result


@pytest.fixture(scope="module")
def wanted():
    """The numbers of the PTX machine, whose work ends when a launch returns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        patch.setenv("FLUID_GPU", "ptx:80")
        return numbers()


@pytest.fixture
def on_fake(monkeypatch):
    """A function that enters a fake device with an order of work."""
    monkeypatch.setenv("FLUID_CUDA_GRAPH", "0")
    with ExitStack() as stack:

        def enter(order):
            created = FakeCuda(order)
            created.patch(monkeypatch)
            library = QueuedLibrary(created)
            for module in ("runtime.gpu.package", "fluid.running.kernels_ahead"):
                monkeypatch.setattr(f"{module}.driver_of", lambda *_: Driver("cuda", 0, library))
            monkeypatch.setattr(copies, "LARGE", 64)
            monkeypatch.setattr(staging, "SMALLEST", 1024)
            return stack.enter_context(created)

        yield enter


def same(found, wanted):
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("order", ["late", 1])
def test_a_program_computes_the_same_in_every_order(on_fake, wanted, order):
    on_fake(order)
    assert same(numbers(), wanted)


def test_results_that_stay_on_the_device_do_not_change(on_fake, wanted):
    device, kept = on_fake("late"), []
    program = Program(fluid.CUDAPlace(0))
    for number, batch in enumerate(BATCHES[:-1]):
        kept += program.step(batch, number, return_numpy=False)
    assert all(device.is_there(each._result.tensor) for each in kept[1::2])
    assert same(map(np.array, kept), wanted[:-2])


def test_steps_alternate_between_streams(on_fake, wanted, monkeypatch):
    device, step = on_fake("late"), Program.step
    streams = [Stream(device), Stream(device)]

    def alternating(self, batch, number):
        with device.entered(streams[number % 2]):
            return step(self, batch, number)

    monkeypatch.setattr(Program, "step", alternating)
    monkeypatch.setattr(Program, "fetched", 1)  # updates are queued when a step returns
    assert same(numbers(), wanted[::2])
    monkeypatch.setattr(Stream, "wait_stream", lambda self, other: None)
    with pytest.raises((AssertionError, MemoryFault)):  # wrong numbers, or addresses
        assert same(numbers(), wanted[::2])


# ---- CUDA graphs ----


@pytest.fixture
def captures(monkeypatch):
    """The graphs captured."""
    created, capture = [], CapturedLines._captured

    def counted(self, arrays, destinations):
        created.append(self)
        return capture(self, arrays, destinations)

    monkeypatch.setattr(CapturedLines, "_captured", counted)
    monkeypatch.setenv("FLUID_CUDA_GRAPH", "1")
    return created


@pytest.mark.parametrize("order", ["side first", "side last"])
def test_captured_steps_compute_the_same(on_fake, wanted, captures, order):
    """A batch of 6 outgrows the arena, so that of 4 is bound anew, and only warms up."""
    device = on_fake(order)
    assert same(numbers(), wanted)
    assert (len(captures), device.replays) == (2, 4)


def split_numbers():
    """Results of a net whose hidden states a Python function changes on the host."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = fluid.layers.fc(fluid.data("x", [4, 9]), 6, act="relu")
        changed = main.current_block().create_var(
            name="changed", dtype="float32", shape=hidden.shape
        )
        fluid.layers.py_func(lambda array: np.asarray(array) + 1, hidden, changed)
        result = fluid.layers.fc(changed, 4)
    executor, scope = fluid.Executor(fluid.CUDAPlace(0)), fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    feeds = [{"x": np.full((4, 9), number, "f4")} for number in range(4)]
    return [executor.run(main, feed, [result], scope=scope)[0] for feed in feeds]


def test_a_step_is_captured_on_both_sides_of_an_op_of_the_host(on_fake, captures, monkeypatch):
    with lowered({MIN_LAUNCHES.name: 1}):
        with monkeypatch.context() as patch:
            patch.setenv("FLUID_GPU", "ptx:80")
            wanted = split_numbers()
        device = on_fake("late")
        assert same(split_numbers(), wanted)
    assert (len(captures), device.replays) == (2, 6)


def test_parameters_at_other_addresses_are_captured_anew(on_fake, captures, monkeypatch):
    def replaced(self, value):
        name = self.main.all_parameters()[0].name
        self.scope.find_var(name).get_tensor().adopt(np.full((9, 6), value, "f4"))

    monkeypatch.setattr(Program, "set_weights", replaced)
    with monkeypatch.context() as patch:
        patch.setenv("FLUID_GPU", "ptx:80")
        wanted = numbers([4] * 4)
    device = on_fake("late")
    assert same(numbers([4] * 4), wanted)
    assert (len(captures), device.replays) == (1, 2)


def test_the_fake_shows_stale_inputs(on_fake, wanted, captures, monkeypatch):
    on_fake("late")
    replay = CapturedLines._replay

    def stale(self, arrays):
        self.first = getattr(self, "first", [*map(np.copy, arrays)])
        return replay(self, self.first)

    monkeypatch.setattr(CapturedLines, "_replay", stale)
    assert not same(numbers(), wanted)


def test_the_fake_shows_a_result_that_was_not_waited_for(on_fake, wanted, captures, monkeypatch):
    on_fake("late")
    monkeypatch.setattr(copies.Copies, "downloaded", lambda self: None)
    assert not same(numbers(), wanted)


def test_timed_steps_are_not_captured(on_fake, captures):
    device = on_fake("late")
    with fluid.profiler.profiler("All"):
        numbers([4] * 3)
    assert not captures and not device.replays
