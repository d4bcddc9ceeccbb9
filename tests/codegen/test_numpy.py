"""Generated NumPy code computes the same as the interpreter, in place and in little memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import runtime
from compiler.codegen.module import Module
from compiler.errors import CompileError, ParseError, VerifyError
from compiler.interpret import run
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.memory import reuse_memory
from compiler.passes.pipeline import named
from tests.codegen.support import compare, inputs, module_of

OFF = Options(disable=frozenset({"fuse_pointwise", "schedule", "reuse_memory"}))
SEPARATE = Options(disable=frozenset({"fuse_pointwise"}))
UNSHARED = Options(disable=frozenset({"reuse_memory"}))
EVERY = {"all passes": Options(), "unfused": SEPARATE, "no reuse": UNSHARED, "none": OFF}

GRAPHS = {
    "columns that are negated": """
graph main {
  feed x: f32[N, 4]
  (Out=[a: f32[N, 1], b: f32[N, 3]]) = split(X=x) {'sections': [1, 3], 'axis': 1}
  (Out=n: f32[N, 1]) = logsigmoid(X=a)
  (Out=y: f32[N, 4]) = concat(X=[b, n]) {'axis': 1}
  return y
}
""",
    "chain": """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  param b: f32[4]
  (Out=h: f32[N, 4]) = mul(X=x, Y=w)
  (Out=a: f32[N, 4]) = elementwise_add(X=h, Y=b) {'axis': 1}
  (Out=r: f32[N, 4]) = relu(X=a)
  (Out=s: f32[N, 4]) = elementwise_mul(X=r, Y=a)
  (Out=t: f32[N, 4]) = elementwise_sub(X=s, Y=h)
  return t, r
}
""",
    "momentum updates two states in place": """
graph main {
  feed g: f32[3, 4]
  param w: f32[3, 4]
  param v: f32[3, 4]
  param lr: f32[1]
  (Out=d: f32[3, 4]) = scale(X=w) {'scale': 0.5}
  (Out=e: f32[3, 4]) = sum(X=[g, d])
  (ParamOut=w#1: f32[3, 4] over w, VelocityOut=v#1: f32[3, 4] over v) = momentum(Grad=e, LearningRate=lr, Param=w, Velocity=v) {'mu': 0.9, 'use_nesterov': True}
  return w#1
}
""",
    "adam updates five": """
graph main {
  feed g: f32[3, 4]
  param w: f32[3, 4]
  param m: f32[3, 4]
  param n: f32[3, 4]
  param p: f32[1]
  param q: f32[1]
  param lr: f32[1]
  (Beta1PowOut=p#1: f32[1] over p, Beta2PowOut=q#1: f32[1] over q, Moment1Out=m#1: f32[3, 4] over m, Moment2Out=n#1: f32[3, 4] over n, ParamOut=w#1: f32[3, 4] over w) = adam(Beta1Pow=p, Beta2Pow=q, Grad=g, LearningRate=lr, Moment1=m, Moment2=n, Param=w)
  return w#1
}
""",
    "a sum over broadcast axes": """
graph main {
  feed x: f32[N, 3, 2, 2]
  feed d: f32[N, 3, 2, 2]
  param b: f32[3]
  (X@GRAD=dx: f32[N, 3, 2, 2], Y@GRAD=db: f32[3]) = elementwise_mul_grad(Out@GRAD=d, X=x, Y=b) {'axis': 1}
  (Out=y: f32[N, 3, 2, 2]) = relu(X=dx)
  return db, y
}
""",
    "two outputs, each over an input of both": """
graph main {
  feed x: f32[N, 4]
  feed y: f32[N, 4]
  param w: f32[4, 4]
  (Out=a: f32[N, 4]) = mul(X=x, Y=w)
  (Out=b: f32[N, 4]) = mul(X=y, Y=w)
  (X@GRAD=da: f32[N, 4], Y@GRAD=db: f32[N, 4]) = elementwise_mul_grad(Out@GRAD=x, X=a, Y=b)
  return da, db
}
""",
    "a shape that is asked for when its data is gone": """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  (Out=a: f32[N, 4]) = mul(X=x, Y=w)
  (Out=b: f32[N, 4]) = mul(X=a, Y=w)
  (Out=c: f32[N, 4]) = mul(X=b, Y=w)
  (X@GRAD=d: f32[N, 4]) = elementwise_add_grad(Out@GRAD=c, X=a, Y=x)
  return d
}
""",
    "rowwise": """
graph main {
  feed x: f32[N, 5]
  (Out=s: f32[N, 5]) = softmax(X=x)
  (X@GRAD=g: f32[N, 5]) = softmax_grad(Out=s, Out@GRAD=x)
  return g, s
}
""",
    "a condition that holds, and one that does not": """
graph main {
  feed x: f32[1]
  param rate: f32[1]
  (Out=zero: f32[1]) = fill_constant() {'shape': [1], 'value': 0.0}
  (Out=yes: bool[1]) = less_than(X=zero, Y=x)
  (Out=no: bool[1]) = less_than(X=x, Y=zero)
  (Written=[rate#1: f32[1] over rate]) = if(Cond=[yes], Captured=[x, rate]) graph block_1 {
    feed x: f32[1]
    feed rate: f32[1]
    (Out=two: f32[1]) = scale(X=x) {'scale': 2.0}
    (Out=rate#1: f32[1]) = assign(X=two)
    return rate#1
  }
  (Written=[rate#2: f32[1] over rate#1]) = if(Cond=[no], Captured=[zero, rate#1]) graph block_2 {
    feed zero: f32[1]
    feed rate: f32[1]
    (Out=rate#1: f32[1]) = assign(X=zero)
    return rate#1
  }
  return rate#2
}
""",
    "a feed and a state returned as they are": """
graph main {
  feed x: f32[N, 2]
  param w: f32[2]
  (Out=y: f32[N, 2]) = elementwise_add(X=x, Y=w)
  return x, w, y
}
""",
    "an output in place of what another output reads": """
graph main {
  feed x: f32[N, 3]
  feed y: f32[N, 3]
  (Out=o: f32[N, 3]) = elementwise_div(X=x, Y=y)
  (Out=d: f32[N, 3]) = square(X=x)
  (X@GRAD=dx: f32[N, 3], Y@GRAD=dy: f32[N, 3]) = elementwise_div_grad(Out=o, Out@GRAD=d, X=x, Y=y)
  return dx, dy
}
""",
    "constants that no literal or no float holds": """
graph main {
  (Out=a: f32[3]) = assign_value() {'shape': [3], 'dtype': 5, 'fp32_values': [inf, -inf, nan]}
  (Out=b: i64[2]) = fill_constant() {'shape': [2], 'dtype': 3, 'str_value': '9007199254740993'}
  (Out=c: i64[2]) = assign(X=b)
  return a, c
}
""",
    "integers, comparison and choice": """
graph main {
  feed x: f32[N, 3]
  feed y: f32[N, 3]
  (Out=c: bool[N, 3]) = less_than(X=x, Y=y)
  (Out=f: f32[N, 3]) = cast(X=c) {'in_dtype': 0, 'out_dtype': 5}
  (Out=m: f32[N, 3]) = elementwise_max(X=x, Y=y)
  (Out=z: f32[N, 3]) = elementwise_mul(X=f, Y=m)
  (Out=p: f32[N, 3]) = elementwise_pow(X=z, Y=y)
  return p, c
}
""",
}


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("text", GRAPHS.values(), ids=GRAPHS)
def test_generated_code_agrees_with_the_interpreter(text, options):
    compare(text, options)


@pytest.mark.parametrize("name", ["np", "take", "__debug__"])
def test_a_size_with_a_name_of_the_modules_own_is_rejected(name):
    with pytest.raises(CompileError, match=f"a dim cannot be named '{name}'"):
        module_of(GRAPHS["chain"].replace("N", name))


@pytest.mark.parametrize("name", ["min", "range", "__debug__"])
def test_a_variable_may_have_any_name(name):
    compare(GRAPHS["chain"].replace("=x", f"={name}").replace("feed x", f"feed {name}"))


def test_folding_keeps_whole_numbers_that_no_float_holds():
    compute = runtime.load(module_of(GRAPHS["constants that no literal or no float holds"]))
    assert compute({})[1].tolist() == [2**53 + 1] * 2


def test_one_module_serves_every_batch_size():
    compute = compare(GRAPHS["chain"], size=5)
    feed, _ = inputs(parse(GRAPHS["chain"]), size=9)
    assert compute({"x": feed["x"]})[0].shape == (9, 4)


def test_a_module_is_the_same_bytes_under_two_hash_seeds():
    code = "from tests.codegen.test_numpy import *; print(module_of(GRAPHS['adam updates five']).source)"
    sources = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(sources) == 1


def test_a_module_read_from_its_file_is_the_module(tmp_path):
    module = module_of(GRAPHS["chain"])
    module.save(tmp_path / "chain.py")
    assert Module.load(tmp_path / "chain.py") == module


def test_a_file_that_is_no_module_is_rejected():
    with pytest.raises(ParseError, match="it does not assign NAME"):
        Module.parse("x = 1\n")
    with pytest.raises(ParseError, match="not a generated module"):
        Module.parse("def (:\n")


def test_a_module_runs_alone_as_a_script(tmp_path):
    module_of(GRAPHS["chain"]).save(tmp_path / "chain.py")
    done = subprocess.run(
        [sys.executable, "chain.py", "N=4"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "main: one step in" in done.stdout
    assert "t: float32[4, 4], mean" in done.stdout


@pytest.mark.parametrize("text", GRAPHS.values(), ids=GRAPHS)
def test_module_run_as_script_equals_loaded_module(text):
    module = module_of(text)
    space = {"__name__": "alone"}
    exec(module.source, space)
    graph, sizes = parse(text), dict.fromkeys(module.dims, 5)
    feed, state = inputs(graph, size=5)
    loaded = {name: array.copy() for name, array in state.items()}
    step = space["bind"](space["allocate"](sizes), state, **sizes)
    alone = [array.copy() for array in step(*(feed[each.name] for each in module.feeds))]
    for a, b in zip(alone, runtime.load(module, params=loaded)(feed), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in state:
        np.testing.assert_array_equal(state[name], loaded[name])


def test_code_names_the_op_and_the_users_line():
    text = GRAPHS["rowwise"].replace("softmax(X=x)", "softmax(X=x)  // train.py:12")
    assert "# s = softmax(x)  train.py:12" in module_of(text).source


def test_an_optimizer_needs_no_memory_but_its_gradients():
    module = module_of(GRAPHS["momentum updates two states in place"])
    assert sum(int(buffer.nbytes) for buffer in module.buffers) <= 2 * 48


def test_deletes_free_values_without_a_slot():
    source = module_of(GRAPHS["chain"], OFF).source
    assert "del " in source
    assert "take(" not in source.partition("def bind")[2].partition("def step")[0]


def test_the_interpreter_deletes_data_and_keeps_shapes():
    text = GRAPHS["a shape that is asked for when its data is gone"]
    graph, whole = parse(text), parse(text)
    run_passes(graph, named(["insert_deletes"]), Context())
    feed, state = inputs(graph)
    np.testing.assert_array_equal(run(graph, feed, state)[0], run(whole, feed, state)[0])


# ---- a fault in reuse_memory is caught ----


def _one_step_too_early(ops, step, alive):
    """The seeded fault: what is read once more is taken for dead."""
    read = dict.fromkeys(var for op in ops for var in op.needs_data() if var in alive)
    return [var for var in read if alive[var][0] < step and alive[var][1] <= step + 2]


def _seed_fault(monkeypatch):
    """Let the pass take what lives for dead, and not look where it writes."""
    monkeypatch.setattr(reuse_memory, "_dying", _one_step_too_early)
    monkeypatch.setattr(reuse_memory, "clashes", lambda *_: iter(()))


FAULTY = """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  (Out=a: f32[N, 4]) = mul(X=x, Y=w)
  (Out=b: f32[N, 4]) = softmax(X=a)
  (Out=c: f32[N, 4]) = matmul(X=a, Y=w)
  (Out=d: f32[N, 4]) = elementwise_add(X=b, Y=c)
  return d
}
"""


def test_a_fault_in_reuse_memory_is_caught_by_the_plan_check(monkeypatch):
    _seed_fault(monkeypatch)
    with pytest.raises(VerifyError):
        run_passes(parse(FAULTY), named(["schedule", "reuse_memory"]), Context())


def test_a_fault_in_reuse_memory_shows_as_poison_in_the_interpreter(monkeypatch):
    _seed_fault(monkeypatch)
    graph = parse(FAULTY)
    feed, state = inputs(graph)
    reuse_memory.ReuseMemory().run(graph, Context())
    assert np.isnan(run(graph, feed, state)[0]).all()
