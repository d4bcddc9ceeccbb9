"""Kernels that are compiled while their module is written."""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected, host_machine
from compiler.codegen.native.target import NativeTarget
from compiler.errors import CompileError
from fluid.running import early_kernels
from runtime.native import build, early
from runtime.native.early import EarlyObjects
from runtime.native.executor import EXECUTOR
from tests.runtime.native.kernels import double

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_CACHE_SIZE", "0")


def test_objects_are_those_of_the_texts_that_are_left() -> None:
    kernel, machine = double(), host_machine()
    text = kernel.text()
    with EarlyObjects() as started:
        started.add("double", text, machine)
        started.add("dropped", text.replace("@double(", "@dropped("), machine)
        started.add("again", text.replace("@double(", "@again("), machine)
    result = started.of({"double": text, "again": text, "later": text})
    assert sorted(result) == ["double", EXECUTOR]
    assert result["double"] == build.build({"double": text}, machine)["double"]


def test_invalid_ir_is_an_error_of_its_kernel_only() -> None:
    with EarlyObjects() as started:
        started.add("wrong", "define nothing", host_machine())
    assert started.of({"right": ""}).keys() == {EXECUTOR}
    with pytest.raises(CompileError, match="kernel wrong"):
        started.of({"wrong": "define nothing"})


def test_an_error_of_the_compilation_ends_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[EarlyObjects] = []
    monkeypatch.setattr(early, "EarlyObjects", lambda: created.append(EarlyObjects()) or created[0])
    monkeypatch.setattr(early_kernels, "available", lambda: 2)

    def fails(target: Any) -> Any:
        assert isinstance(target, NativeTarget)
        created[0].add("double", double().text(), host_machine())
        raise CompileError("no")

    with pytest.raises(CompileError, match="no"):
        early_kernels.with_early_kernels("native", fails)
    assert created[0]._pool is not None and created[0]._pool._shutdown  # pyright: ignore


@pytest.mark.parametrize("cpus", [1, 2])
def test_programs_compile_on_any_number_of_cpus(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_kernels, "available", lambda: cpus)
    monkeypatch.setenv("FLUID_TARGET", "native")
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 8])
        loss = fluid.layers.mean(fluid.layers.softmax(fluid.layers.fc(x, 5)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(startup, scope=scope)
    feed = {"x": np.ones((3, 8), "float32")}
    (result,) = executor.run(main, feed=feed, fetch_list=[loss], scope=scope)
    np.testing.assert_allclose(result, [0.2], rtol=1e-6)
