"""`compiler.debugging.bisect` finds faults that are put into passes, and the smallest program that shows one."""

from typing import Any

import pytest

import runtime
from compiler.codegen.module import Module
from compiler.debugging.bisect import CODE, Finding, Trial, bisect
from compiler.debugging.values import inputs, numbers, repeatable
from compiler.errors import CompileError
from compiler.ir.analysis.liveness import lives
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text.parser import parse
from compiler.ir.types import Array
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.fusion import fuse_batch_norm
from compiler.passes.memory.reuse_memory import ReuseMemory
from compiler.passes.simplify import fold_constants, merge_common, remove_dropout, remove_identities
from compiler.passes.simplify.value_replacement import merge

NETWORK = """graph main {
  feed x: f32[N, 2, 4, 4]
  param filter: f32[2, 2, 3, 3]
  param scale: f32[2]
  param shift: f32[2]
  param mean: f32[2]
  param variance: f32[2]
  param w: f32[32, 4]
  (Output=c: f32[N, 2, 4, 4]) = conv2d(Input=x, Filter=filter) {'paddings': [1, 1]}  // net.py:1
  (Y=b: f32[N, 2, 4, 4]) = batch_norm(X=c, Scale=scale, Bias=shift, Mean=mean,\
 Variance=variance) {'is_test': True}  // net.py:2
  (Out=r: f32[N, 2, 4, 4]) = relu(X=b)  // net.py:3
  (Out=k: f32[N, 2, 4, 4]) = dropout(X=r) {'dropout_prob': 0.25, 'is_test': True}  // net.py:4
  (Out=f: f32[N, 32]) = reshape(X=k) {'shape': [0, 32]}  // net.py:5
  (Out=h: f32[N, 4]) = mul(X=f, Y=w)  // net.py:6
  (Out=t: f32[N, 4]) = scale(X=h) {'scale': 2.0}  // net.py:7
  (Out=u: f32[N, 4]) = scale(X=h) {'scale': 3.0}  // net.py:8
  (Out=n: f32[4]) = fill_constant() {'shape': [4], 'value': 0.5}  // net.py:9
  (Out=e: f32[4]) = exp(X=n)  // net.py:10
  (Out=s: f32[N, 4]) = elementwise_add(X=t, Y=u)  // net.py:11
  (Out=y: f32[N, 4]) = elementwise_mul(X=s, Y=e)  // net.py:12
  return y
}
"""


def run(module: Module, feed: dict[str, Array], params: dict[str, Array]) -> list[Array]:
    return runtime.load(module, params=params)(feed)


def found(text: str = NETWORK, **how: Any) -> Finding | None:
    graph = parse(text)
    feed = inputs(graph.feeds(), {}, {})
    state = inputs((var for var in graph.params() if not var.version), {}, {})
    trial = {"constant_params": True, "execute": run} | how
    return bisect(graph, feed, state, Trial(**trial))


def test_bisect_finds_nothing_without_a_fault() -> None:
    assert found() is None


# ---- a fault in each pass ----------------------------------------------------------------------


def scales_too_much(patch: pytest.MonkeyPatch) -> None:
    known = fuse_batch_norm.known_factor

    def wrong(norm: Op, ctx: Context) -> tuple[Array, Array]:
        factor, shift = known(norm, ctx)
        return factor * 1.5, shift

    patch.setattr(fuse_batch_norm, "known_factor", wrong)


def folds_wrongly(patch: pytest.MonkeyPatch) -> None:
    known = fold_constants._evaluate

    def wrong(op: Op, given: Any) -> dict[Var, Array]:
        return {var: array + (op.kind == "exp") for var, array in known(op, given).items()}

    patch.setattr(fold_constants, "_evaluate", wrong)


def merges_what_differs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merge_common, "_key", lambda op: (op.kind, *map(id, op.reads())))


def forgets_the_factor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remove_dropout, "_remove", lambda g, op: merge(g, op, op["Out"], op["X"]))


def takes_any_scale_for_a_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remove_identities, "_is_identity", lambda op, given: op.kind == "scale")


FAULTS = {
    "fuse_batch_norm": (scales_too_much, "net.py:2", "conv2d batch_norm"),
    "fold_constants": (folds_wrongly, "net.py:10", "fill_constant exp"),
    "merge_common": (merges_what_differs, "net.py:11", "scale scale elementwise_add"),
    "remove_dropout": (forgets_the_factor, "net.py:4", "relu dropout"),
    "remove_identities": (takes_any_scale_for_a_copy, "net.py:4", "relu scale"),
}
"""By pass: what breaks it, the line of the op that is off then, and the smallest program."""


@pytest.mark.parametrize("name", FAULTS)
def test_bisect_finds_the_wrong_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, source, smallest = FAULTS[name]
    breaks(monkeypatch)
    seen = found()
    assert seen is not None
    assert seen.fault.stage == name
    assert seen.op.source == source
    assert [op.kind for op in parse(seen.program).ops()] == smallest.split()


@pytest.mark.parametrize("name", FAULTS)
def test_the_smallest_program_shows_it_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name][0](monkeypatch)
    seen = found()
    assert seen is not None
    trial = Trial(seen.options, constant_params=True)
    again = bisect(parse(seen.program), seen.feed, seen.params, trial)
    assert again is not None
    assert (again.fault.stage, again.program) == (name, seen.program)


def test_bisect_finds_a_pass_that_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: ReuseMemory, g: Graph, ctx: Context) -> None:
        for var in lives(g):
            var.slot = 0

    monkeypatch.setattr(ReuseMemory, "run", wrong)
    seen = found()
    assert seen is not None
    assert seen.fault.stage == "reuse_memory"
    assert "slot" in seen.fault.difference.why
    assert seen.ops[1] <= 4


def test_bisect_finds_wrong_codegen() -> None:
    def lies(module: Module, feed: dict[str, Array], params: dict[str, Array]) -> list[Array]:
        results = run(module, feed, params)
        return [array + (" = mul(" in module.source) for array in results]

    seen = found(execute=lies)
    assert seen is not None
    assert seen.fault.stage == CODE
    assert [op.kind for op in parse(seen.program).ops()] == ["mul"]


def test_a_program_that_cannot_run_reports_it() -> None:
    with pytest.raises(CompileError, match="the program cannot be run unchanged"):
        bisect(parse(NETWORK), {}, {})


def test_bisect_seeds_or_rejects_random_ops() -> None:
    text = """graph main {
      feed x: f32[N, 4]
      (Out=y: f32[N, 4], Mask=m: u8[N, 4]) = dropout(X=x) {'dropout_prob': 0.5}
      return y
    }"""
    graph = parse(text)
    repeatable(graph)
    feed = inputs(graph.feeds(), {}, {"N": 64})
    first, second = (numbers(graph, feed, {}).left["y"] for _ in range(2))
    assert (first == second).all() and (first == 0).any()


def test_a_pass_that_means_to_move_numbers_is_not_at_fault() -> None:
    assert found(options=Options(dtype="fp16"), tolerance=1e-3) is None


def test_a_device_that_draws_its_own_numbers_is_not_at_fault() -> None:
    pytest.importorskip("triton")
    text = """graph main {
      feed x: f32[N, 8]
      param w: f32[8, 8]
      (Out=a: f32[N, 8]) = mul(X=x, Y=w)
      (Out=d: f32[N, 8], Mask=m: u8[N, 8]) = dropout(X=a) {'dropout_prob': 0.4}
      (Out=o: f32[N, 8]) = tanh(X=d)
      (X@GRAD=g: f32[N, 8]) = dropout_grad(Mask=m, Out@GRAD=o) {'dropout_prob': 0.4}
      return o, g
    }"""
    graph, told = parse(text), list[str]()
    repeatable(graph)
    feed, params = inputs(graph.feeds(), {}, {"N": 5}), inputs(graph.params(), {}, {})
    trial = Trial(Options(), "triton", 1e-4, False, on_device)
    assert bisect(graph, feed, params, trial, told.append) is None
    assert told[-1] == "code: compared"


def on_device(module: Module, feed: Any, state: Any) -> list[Array]:
    """Run a module where its kernels run."""
    return [each.copy() for each in runtime.load(module, runtime.CUDAPlace(0), state)(feed)]
