"""Ctrl-C at any moment of training: the executor keeps working, with the same results.

Signals are real, from a timer. State that the interrupted step wrote is new (docs/security.md);
from restored state, steps equal those of an undisturbed run.
"""

import gc
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.cli import limits
from fluid.cli import main as cli
from runtime.executor import Executor as Core

# Python drops an interrupt that comes in a callback of the cycle collector, and warns of it;
# hypothesis has such a callback, wherever it ran before in the same process.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BATCHES = (4, 7, 12)
"""Batch sizes used alternately, so that bindings and arenas change while interrupts arrive."""

State = dict[str, np.ndarray]


class Training:
    """A small net with Adam and a batch norm, in programs and a scope of its own."""

    def __init__(self) -> None:
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.layers.data("x", [6])
            hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 8, act="relu"))
            cost = fluid.layers.square(fluid.layers.fc(hidden, 1))
            self.loss = fluid.layers.mean(cost)
            fluid.optimizer.Adam(0.01).minimize(self.loss)
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(self.startup, scope=self.scope)

    def step(self, number: int) -> float:
        """One step on the batch of a number; its loss."""
        rows = BATCHES[number % len(BATCHES)]
        feed = {"x": np.random.default_rng(number).normal(size=(rows, 6)).astype("float32")}
        (loss,) = self.executor.run(self.main, feed, [self.loss], scope=self.scope)
        return loss.item()

    def state(self) -> State:
        """Copies of all state."""
        return {name: array.copy() for name, array in self.scope.arrays().items()}

    def put_back(self, state: State) -> None:
        """Write all state as it was."""
        for name, array in state.items():
            self.scope.find_var(name).get_tensor().set(array, fluid.CPUPlace())


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """Sends a real SIGINT-like signal after so many seconds, as Ctrl-C: KeyboardInterrupt."""

    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, press)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupted(training: Training, interrupt: Callable[[float], None], seconds: float) -> bool:
    """Train until the signal comes; False if nothing but a finaliser saw it within seconds."""
    until = time.monotonic() + 5
    try:
        interrupt(seconds)
        number = 0
        while time.monotonic() < until:
            training.step(number := number + 1)
    except KeyboardInterrupt:
        return True
    return False


def test_training_continues_after_ctrl_c_at_any_moment(
    interrupt: Callable[[float], None],
) -> None:
    undisturbed = Training()
    begin = undisturbed.state()
    losses = [undisturbed.step(number) for number in range(6)]
    end = undisturbed.state()
    random, until, times = Random(0), time.monotonic() + 4, 0
    training = Training()
    while time.monotonic() < until:
        if times % 8 == 0:
            training = Training()  # so that some come while it compiles and binds
        seconds = random.uniform(0.0001, 0.15 if times % 8 == 0 else 0.004)
        times += interrupted(training, interrupt, seconds)
        training.put_back(begin)
        assert [training.step(number) for number in range(6)] == losses
        for name, array in training.state().items():
            np.testing.assert_array_equal(array, end[name], err_msg=name)
        assert gc.isenabled()
    assert times > 20


def test_a_step_that_is_interrupted_leaves_each_state_of_its_shape(
    interrupt: Callable[[float], None],
) -> None:
    training = Training()
    training.step(0)
    shapes = {name: (array.shape, array.dtype) for name, array in training.state().items()}
    for _ in range(50):
        interrupted(training, interrupt, 0.0015)
        results = {name: (array.shape, array.dtype) for name, array in training.state().items()}
        assert results == shapes


def test_a_step_that_is_interrupted_counts_as_written(monkeypatch: Any) -> None:
    training = Training()
    written = training.scope.clock.written

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Core, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        training.step(0)
    assert training.scope.clock.written > written


# ---- the command line ----


def endless(folder: Path) -> Path:
    """A saved model with a `while` that never ends."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data("x", [1])
        count = fluid.layers.fc(x, 1)
        always = fluid.layers.fill_constant([1], "bool", True)
        with fluid.layers.While(always).block():
            fluid.layers.assign(fluid.layers.scale(count, scale=0.5), count)
            fluid.layers.logical_or(always, always, out=always)
        executor = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            executor.run(fluid.default_startup_program())
            fluid.io.save_inference_model(str(folder), ["x"], [count], executor)
    return folder


def test_ctrl_c_ends_a_model_that_never_ends(
    interrupt: Callable[[float], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = endless(tmp_path / "model")
    files = sorted(tmp_path.rglob("*"))
    interrupt(1.5)
    code = cli.main(["infer", str(model), "--input", "1", "--output", str(tmp_path / "out.npz")])
    assert code == 130
    assert capsys.readouterr().err == "\nfluid infer: stopped; nothing was left half-written\n"
    assert sorted(tmp_path.rglob("*")) == files


def test_a_time_limit_ends_a_model_that_never_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = endless(tmp_path / "model")
    before = signal.getsignal(signal.SIGALRM)
    assert cli.main(["infer", str(model), "--input", "1", "--time-limit", "1.5"]) == 124
    assert capsys.readouterr().err == "fluid infer: stopped after 1.5 s, the time limit\n"
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_time_limit_and_ctrl_c_on_a_system_without_alarms(
    interrupt: Callable[[float], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = endless(tmp_path / "model")
    monkeypatch.setattr(limits, "_HAS_ALARM", False)
    before = signal.getsignal(signal.SIGINT)
    assert cli.main(["infer", str(model), "--input", "1", "--time-limit", "1.5"]) == 124
    assert capsys.readouterr().err == "fluid infer: stopped after 1.5 s, the time limit\n"
    interrupt(1.5)
    assert cli.main(["infer", str(model), "--input", "1", "--time-limit", "100"]) == 130
    assert capsys.readouterr().err == "\nfluid infer: stopped; nothing was left half-written\n"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_time_limit_errors(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["infer", "none", f"--time-limit={text}"])
    assert "is not a number of seconds above 0" in capsys.readouterr().err
