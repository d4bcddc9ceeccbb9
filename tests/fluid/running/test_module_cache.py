"""An Executor reuses what another one of the same process compiled of an equal program."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from compiler.ir.text import program_printer as program_text


@pytest.fixture(name="compilations")
def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The fetches of every compilation from here on."""
    seen: list[list[str]] = []
    genuine = compiler.compile

    def compile(program: Any, **given: Any) -> Any:
        seen.append(list(given["fetch"]))
        return genuine(program, **given)

    monkeypatch.setattr(compiler, "compile", compile, raising=False)
    return seen


def run_afresh(factor: float, rows: int = 2) -> Any:
    """Record a program and run it in an Executor of its own."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        y = fluid.layers.scale(fluid.data("module_cache_x", [None, 3]), factor)
    feed = {"module_cache_x": np.ones((rows, 3), "float32")}
    return fluid.Executor().run(main, feed=feed, fetch_list=[y])[0]


def test_an_equal_program_is_compiled_once_in_a_process(compilations: list[list[str]]) -> None:
    first, second = run_afresh(2.5), run_afresh(2.5, rows=4)
    assert len(compilations) == 1
    assert (first.sum(), second.sum()) == (15.0, 30.0)


def test_other_programs_and_options_are_compiled(
    compilations: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_afresh(3.5)
    run_afresh(4.5)
    monkeypatch.setenv("FLUID_CHECK", "1")
    assert run_afresh(3.5).sum() == 21.0
    assert len(compilations) == 3


def test_dumps_are_written_again(
    compilations: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("FLUID_DUMP", str(tmp_path))
    run_afresh(5.5)
    run_afresh(5.5)
    assert len(compilations) == 2


SCRIPT = """
import sys
import numpy as np
import fluid

x = fluid.data("x", [None, 3])
loss = fluid.layers.mean(fluid.layers.fc(x, 2, param_attr=fluid.initializer.Constant(0.5)))
fluid.optimizer.SGD(0.1).minimize(loss)
executor = fluid.Executor()
executor.run(fluid.default_startup_program())
feed = {"x": np.ones((4, 3), "float32")}
print([float(executor.run(feed=feed, fetch_list=[loss])[0][0]) for _ in range(3)])
print("compiler.driver" in sys.modules, "networkx" in sys.modules)
"""


def test_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "FLUID_CACHE": str(tmp_path / "cache")}

    def run(**changed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(tmp_path / "train.py")], env=environment | changed,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    losses, loaded = run()
    assert loaded == "True True"
    assert run() == [losses, "False False"]
    assert run(FLUID_CACHE_SIZE="0") == [losses, "True True"]
    for place in (tmp_path / "cache" / "modules").iterdir():
        place.write_text("damaged")
    assert run() == [losses, "True True"]
    assert run() == [losses, "False False"]


def test_the_text_of_a_program_is_made_once_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    genuine = program_text.program_text
    monkeypatch.setattr(
        program_text, "program_text", lambda program: written.append(program) or genuine(program)
    )
    run_afresh(6.5)
    assert len(written) == 1


def test_an_edit_changes_the_digest_of_a_program_and_of_no_other() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.layers.scale(fluid.data("module_cache_x", [None, 3]), 2.0)
    before, clone = program_text.program_digest(main), main.clone()
    main.global_block().ops[0]._set_attr("scale", 3.0)
    assert program_text.program_digest(clone) == before != program_text.program_digest(main)
