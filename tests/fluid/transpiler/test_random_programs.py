"""What holds of every program, on programs made by chance: transpilers change no number."""

from typing import Any

import numpy as np
from hypothesis import given, settings

import fluid
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.conversion.reused_names import REUSES
from compiler.ir.text.printer import show
from fluid.transpiler.flow import sources
from tests.fluid.transpiler import random_programs as chance

X = np.random.default_rng(3).standard_normal((3, 4)).astype("float32")
WAYS = (("0",), ("1", "release"), ("release", "0", "1"))


def rewritten(program: fluid.Program, *way: str) -> fluid.Program:
    """A copy by levels of `memory_optimize` and `release_memory`, each of which is idempotent."""
    program = program.clone()
    for step in way:
        rewrite(program, step)
        once = program.to_string(True)
        rewrite(program, step)
        assert program.to_string(True) == once, step
    return program


def rewrite(program: fluid.Program, step: str) -> None:
    if step == "release":
        fluid.release_memory(program)
    else:
        fluid.memory_optimize(program, level=int(step))


def without_marks(program: fluid.Program) -> fluid.Program:
    for op in [op for block in program.blocks for op in block.ops]:
        op.attrs.pop(REUSES, None)
    program.touch()
    return program


def run(program: fluid.Program, startup: fluid.Program, fetch: list[Any], times: int = 2) -> Any:
    exe = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        return [exe.run(program, {"x": X}, fetch) for _ in range(times)]


def recorded(steps: list[chance.Step]) -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
    """A training program made by chance, its startup program and its loss."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = chance.record(steps)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


@settings(max_examples=25)
@given(chance.steps)
def test_what_is_compiled_is_the_same(steps: list[chance.Step]) -> None:
    """To the letter, whatever is fetched; and every op reads what the same op wrote as before."""
    main, _, _ = recorded(steps)
    tensor = fluid.core.VarDesc.VarType.LOD_TENSOR
    block = main.global_block()
    written = {name for op in block.ops for name in op.writes()}
    fetch = [v.name for v in block.vars.values() if v.type == tensor and v.name in written]
    want, graph = sources(main), show(to_graph(main, {"x": X.shape}, fetch))
    for way in WAYS:
        program = rewritten(main, *way)
        assert sources(program) == want, way
        assert show(to_graph(program, {"x": X.shape}, fetch)) == graph, way


@settings(max_examples=4)
@given(chance.steps)
def test_numbers_are_the_same(steps: list[chance.Step]) -> None:
    """Bit for bit, also where only the names that are left are known, as of a file."""
    main, startup, loss = recorded(steps)
    losses = run(main, startup, [loss])
    program = rewritten(main, "1", "release")
    np.testing.assert_array_equal(run(program, startup, [loss]), losses)
    np.testing.assert_array_equal(run(without_marks(program), startup, [loss]), losses)


@settings(max_examples=12)
@given(chance.norm_steps)
def test_networks_with_folded_norms_compute_the_same(steps: list[chance.Step]) -> None:
    """To 1e-4 of the largest; what can be folded is, a second time there is nothing to do."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        result = chance.record_norms(steps)
    random, exe = np.random.default_rng(1), fluid.Executor()
    feed = {"x": random.standard_normal((2, 4, 5, 5)).astype("float32")}
    test = main.clone(for_test=True)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for var in main.all_parameters():
            if len(var.shape) == 1:
                tensor = fluid.global_scope().find_var(var.name).get_tensor()
                tensor.set(random.uniform(0.5, 1.5, var.shape).astype("float32"), exe.place)
        (want,) = exe.run(test, feed, [result])
        transpiler = fluid.InferenceTranspiler()
        transpiler.transpile(test, exe.place)
        report, once = transpiler.report, test.to_string(True)
        (got,) = exe.run(test, feed, [result])
        assert np.abs(got - want).max() <= 1e-4 * max(np.abs(want).max(), 1e-3)
        transpiler.transpile(test, exe.place)
    assert test.to_string(True) == once
    left = sum(op.type == "batch_norm" for op in test.global_block().ops)
    assert left == len(report.refused) and all(each.refusal for each in report.refused)
