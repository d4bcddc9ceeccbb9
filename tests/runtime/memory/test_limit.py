"""Memory limits: what a step would take is known, and refused, before any of it is taken."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
import runtime
from compiler.options import Options
from runtime.errors import MemoryLimitExceeded, TooLarge
from runtime.memory.limit import bytes_text
from tests.runtime.test_loader import small

LIMIT = 200_000
"""Bytes that a small batch of `network` needs no more of, and a large one does."""


@pytest.fixture(autouse=True)
def programs() -> Any:
    """Programs and a scope of its own for each test."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


def network() -> tuple[fluid.Executor, Any]:
    x = fluid.layers.data(name="x", shape=[64], dtype="float32")
    hidden = fluid.layers.fc(x, size=128, act="relu")
    scores = fluid.layers.fc(hidden, size=10, act="softmax")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor, scores


def batch(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, 64), "float32")}


def check_message(error: MemoryLimitExceeded) -> None:
    """The limit, the total, the parts, and the largest variable with its line."""
    text = str(error)
    assert "memory limit of 195.31 KiB" in text
    packed = "for packed parameters" in text
    assert f"a step takes {'16.50' if packed else '16.46'} MiB" in text
    assert "10.78 MiB for temporaries" in text
    assert "temporary 'fc_0.tmp_2', float32 of shape (20000, 128): 9.77 MiB" in text
    assert "test_limit.py:" in error.source
    assert "feed 'x', float32 of shape (20000, 64): 4.88 MiB" in text


def test_a_module_is_rejected_when_it_is_bound_before_memory_is_taken() -> None:
    _, scores = network()
    options = Options(memory_limit=LIMIT)
    module = compiler.compile(
        fluid.default_main_program(), feed=["x"], fetch=[scores], options=options
    )
    infer = runtime.load(module, fluid.CPUPlace(), fluid.global_scope())
    infer(batch(2))
    held, feed = infer.nbytes, batch(20_000)
    tracemalloc.start()
    with pytest.raises(MemoryLimitExceeded):
        infer(feed)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert infer.nbytes == held
    infer(batch(3))


def test_the_message_names_the_limit_and_what_weighs_most(monkeypatch: Any) -> None:
    executor, scores = network()
    monkeypatch.setenv("FLUID_MEMORY_LIMIT", str(LIMIT))
    executor.run(feed=batch(2), fetch_list=[scores])
    with pytest.raises(MemoryLimitExceeded) as caught:
        executor.run(feed=batch(20_000), fetch_list=[scores])
    check_message(caught.value)
    executor.run(feed=batch(4), fetch_list=[scores])


def test_results_larger_than_the_memory_of_the_machine_are_refused(monkeypatch: Any) -> None:
    x = fluid.layers.data(name="x", shape=[-1, 1], append_batch_size=False)
    y = fluid.layers.data(name="y", shape=[1, -1], append_batch_size=False)
    result = fluid.layers.elementwise_sub(x, y)
    executor = fluid.Executor(fluid.CPUPlace())
    side = 1 << 22
    tracemalloc.start()
    feed = {"x": np.ones((side, 1), "float32"), "y": np.ones((1, side), "float32")}
    with pytest.raises(MemoryLimitExceeded) as caught:
        executor.run(feed=feed, fetch_list=[result])
    assert tracemalloc.get_traced_memory()[1] < 8 * 4 * side
    tracemalloc.stop()
    assert "of this machine" in str(caught.value)
    assert f"float32 of shape ({side}, {side}): 64.00 TiB" in str(caught.value)
    assert "test_limit.py:" in caught.value.source
    monkeypatch.setattr("runtime.loader.machine_memory", lambda: None)
    small = {name: each.reshape(-1)[:2].reshape((each.shape[0] > 1 and (2, 1)) or (1, 2))
             for name, each in feed.items()}  # fmt: skip
    assert executor.run(feed=small, fetch_list=[result])[0].shape == (2, 2)


def test_a_predictor_has_a_limit(tmp_path: Path) -> None:
    executor, scores = network()
    fluid.io.save_inference_model(str(tmp_path), ["x"], [scores], executor)
    predictor = fluid.create_predictor(str(tmp_path), memory_limit="200KB")
    predictor.run(batch(2))
    with pytest.raises(MemoryLimitExceeded, match=r"memory limit of 195\.31 KiB"):
        predictor.run(batch(20_000))
    predictor.run(batch(3))


def test_state_that_a_program_makes_counts(monkeypatch: Any) -> None:
    monkeypatch.setenv("FLUID_MEMORY_LIMIT", "1GiB")
    fluid.layers.create_parameter([1 << 20, 1 << 20], "float32", name="huge")
    with pytest.raises(
        MemoryLimitExceeded, match="'huge', float32 of shape \\(1048576, 1048576\\)"
    ):
        fluid.Executor().run(fluid.default_startup_program())


NO_MEMORY = """
def bind(take, params, N):
    def step(x):
        # y = where_index(x)  model.py:7
        raise MemoryError("Unable to allocate 8.00 EiB")

    return step
"""


def test_no_memory_in_a_step_is_an_error_with_the_op_and_the_line() -> None:
    with pytest.raises(TooLarge, match="where_index: Unable to allocate") as caught:
        runtime.load(small(NO_MEMORY))({"x": np.ones((2, 2), "float32")})
    assert (caught.value.op, caught.value.source) == ("y = where_index(x)", "model.py:7")


@pytest.mark.parametrize("limit", ["60%", "many", "-1", "2 apples"])
def test_memory_limit_errors(limit: str) -> None:
    with pytest.raises(ValueError, match="memory_limit is"):
        Options(memory_limit=limit)


def test_bytes_are_shown_in_a_unit_that_fits() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1024, 1 << 40)] == [
        "0 B", "1023 B", "1.00 KiB", "1.00 TiB",
    ]  # fmt: skip
    assert issubclass(MemoryLimitExceeded, TooLarge)
