"""Copies of results from the device, in generated modules."""

import re

import pytest

import fluid
from compiler.driver import compile_stages
from compiler.options import Options

pytest.importorskip("triton")
pytest.importorskip("torch")


def step_of(*wanted: str, rows: int | None = None) -> str:
    """The step of a module whose results are some of: y f32[rows, 4], flags bool[rows, 4], and
    where the flags are set, which the host computes.
    """
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        y = fluid.layers.softmax(fluid.data("x", [rows, 4]))
        flags = fluid.layers.cast(y, "bool")
        values = {"y": y, "flags": flags, "places": fluid.layers.where(flags)}
    fetch = [values[name] for name in wanted]
    created = compile_stages(main, feed=["x"], fetch=fetch, target="triton", options=Options())
    return created.module.source.partition("    def step(")[2].partition("    return step")[0]


def results(step: str) -> list[str]:
    """The names that a step returns."""
    (text,) = re.findall(r"return \((.*),\)", step)
    return text.split(", ")


@pytest.mark.parametrize("rows", [None, 1 << 12])
def test_a_large_result_is_copied_to_memory_of_the_caller(rows: int | None) -> None:
    step = step_of("y", rows=rows)
    (name,) = results(step)
    assert re.search(rf" {name} = fetch\(\w+_host, \w+\)", step)
    assert "download" not in step


def test_a_small_result_is_copied_with_the_arena() -> None:
    step = step_of("y", rows=1 << 11)
    assert "fetch(" not in step
    assert f"download({results(step)[0]}, " in step and "downloaded()" in step


def test_a_result_that_the_host_reads_stays_in_the_arena() -> None:
    step = step_of("y", "flags", "places")
    assert step.count("fetch(") == 1
    y, flags, _ = results(step)
    assert f" {y} = fetch(" in step and f"download({flags}, " in step
