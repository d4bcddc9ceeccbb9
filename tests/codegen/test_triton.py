"""Kernels of the Triton target, run by Triton's interpreter and compared with the graph interpreter."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import runtime
from compiler.codegen.triton.helpers import HELPERS, with_needed
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from runtime.gpu.cuda import device_of
from tests.codegen.support import inputs

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

ROOT = Path(__file__).resolve().parents[2]


def module_of(text, options=None, context=None):
    """The module of a graph's text for the device."""
    graph, target = parse(text), TritonTarget()
    run_passes(graph, pipeline(options or Options(), target), context or Context())
    return target.emit(freeze(graph))


def compare(text, options=None, size=3, steps=2, rtol=2e-5, atol=1e-6):
    """Hold kernels against the interpreter of graphs: results and state, over several steps."""
    graph = parse(text)
    feed, state = inputs(graph, size)
    mine, theirs = ({name: array.copy() for name, array in state.items()} for _ in range(2))
    module = module_of(text, options)
    compute = runtime.load(module, runtime.CUDAPlace(0), mine)
    for _ in range(steps):
        got, want = compute(feed), run(graph, feed, theirs)
        for var, a, b in zip(graph.results, got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=var.label)
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=rtol, atol=atol)
    return module


CHAIN = """graph main {
  feed x: f32[N, 5, 7]
  param w: f32[5]
  (Out=a: f32[N, 5, 7]) = elementwise_add(X=x, Y=w) {'axis': 1}
  (Out=b: f32[N, 5, 7]) = tanh(X=a)
  (Out=c: f32[N, 5, 7]) = scale(X=b) {'scale': 2.0, 'bias': 1.0}
  return c, b
}
"""


def test_a_chain_is_one_kernel_and_serves_any_size():
    module = compare(CHAIN)
    assert module.source.count("def elementwise_add_tanh_scale(") == 1
    assert module.dims == ("N",)
    compare(CHAIN, size=11)


def test_the_same_graph_has_the_same_bytes():
    assert module_of(CHAIN).source == module_of(CHAIN).source


def test_unoptimised_graphs_have_the_same_result():
    off = frozenset({"fuse_pointwise", "schedule", "reuse_memory"})
    compare(CHAIN, Options(disable=off))


@pytest.mark.parametrize("columns", [1, 5, 64, 4097])
def test_rows_in_one_tile_and_in_many(columns):
    compare(
        f"""graph main {{
  feed x: f32[3, {columns}]
  (Out=y: f32[3, {columns}]) = softmax(X=x)
  (Out=s: f32[3, 1]) = reduce_sum(X=y) {{'dim': [1], 'keep_dim': True}}
  (Out=m: f32[1]) = reduce_max(X=y) {{'reduce_all': True}}
  return y, s, m
}}
"""
    )


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_rows_along_any_axis(axis):
    compare(
        f"""graph main {{
  feed x: f32[2, 3, 5]
  feed g: f32[2, 3, 5]
  (Out=y: f32[2, 3, 5]) = softmax(X=x) {{'axis': {axis}}}
  (X@GRAD=d: f32[2, 3, 5]) = softmax_grad(Out=y, Out@GRAD=g) {{'axis': {axis}}}
  return y, d
}}
"""
    )


@pytest.mark.parametrize(("shape", "axis"), [("3", 1), ("3, 4", 1), ("4", -1), ("2", 0), ("1", 0)])
def test_gradients_of_broadcast_operands_are_summed(shape, axis):
    compare(
        f"""graph main {{
  feed x: f32[2, 3, 4]
  feed y: f32[{shape}]
  feed d: f32[2, 3, 4]
  (Out=z: f32[2, 3, 4]) = elementwise_mul(X=x, Y=y) {{'axis': {axis}}}
  (X@GRAD=a: f32[2, 3, 4], Y@GRAD=b: f32[{shape}]) = \
elementwise_mul_grad(X=x, Y=y, Out@GRAD=d) {{'axis': {axis}}}
  return z, a, b
}}
"""
    )


@pytest.mark.parametrize("turn_x", [False, True])
@pytest.mark.parametrize("turn_y", [False, True])
def test_products_of_stacks_and_their_gradients(turn_x, turn_y):
    x = "[2, 1, 33, 5]" if turn_x else "[2, 1, 5, 33]"
    y = "[3, 18, 33]" if turn_y else "[3, 33, 18]"
    attrs = f"{{'trans_x': {turn_x}, 'trans_y': {turn_y}}}"
    compare(
        f"""graph main {{
  feed x: f32{x}
  feed y: f32{y}
  feed d: f32[2, 3, 5, 18]
  (Out=z: f32[2, 3, 5, 18]) = matmul_v2(X=x, Y=y) {attrs}
  (X@GRAD=a: f32{x}, Y@GRAD=b: f32{y}) = matmul_v2_grad(X=x, Y=y, Out@GRAD=d) {attrs}
  return z, a, b
}}
""",
        rtol=1e-4,
    )


def test_state_is_updated_where_it_is_by_kernels_that_read_it_first():
    compare(
        """graph main {
  feed g: f32[3, 4]
  feed lr: f32[1]
  param p: f32[3, 4]
  param m: f32[3, 4]
  param v: f32[3, 4]
  param b1: f32[1]
  param b2: f32[1]
  (ParamOut=p#1: f32[3, 4] over p, Moment1Out=m#1: f32[3, 4] over m, \
Moment2Out=v#1: f32[3, 4] over v, Beta1PowOut=b1#1: f32[1] over b1, \
Beta2PowOut=b2#1: f32[1] over b2) = adam(Param=p, Grad=g, LearningRate=lr, Moment1=m, \
Moment2=v, Beta1Pow=b1, Beta2Pow=b2)
  return p#1
}
"""
    )


def test_ops_without_kernel_run_on_the_host_and_are_reported():
    context = Context()
    text = """graph main {
  feed x: f32[3, 4]
  (Out=a: f32[3, 4]) = relu(X=x)
  (Out=b: i64[?, 2]) = where_index(Condition=a)
  return b
}
"""
    module_of(text.replace("relu(X=x)", "relu(X=x)"), context=context)
    assert [r.reason for r in context.missed if r.name == "assign_targets"] == [
        "the number of elements is data-dependent"
    ]


def test_ops_that_a_pass_put_into_one_place_stay_in_order():
    text = """graph main {
  feed x: f32[2, 3, 4, 4]
  param scale: f32[3]
  param bias: f32[3]
  param mean: f32[3]
  param var: f32[3]
  (Out=p: f32[2, 3, 2, 2]) = pool2d(X=x) \
{'ksize': [2, 2], 'strides': [2, 2], 'pooling_type': 'avg'}
  (Y=y: f32[2, 3, 2, 2]) = batch_norm(Bias=bias, Mean=mean, Scale=scale, Variance=var, X=p) \
{'is_test': True}
  return y
}
"""
    graph = parse(text)
    feed, state = inputs(graph)
    params = dict(state)
    module = module_of(text, context=Context(params))
    (got,) = runtime.load(module, runtime.CUDAPlace(0), params)(feed)
    np.testing.assert_allclose(got, run(graph, feed, state)[0], rtol=2e-5)


def test_helpers_include_their_callees():
    for name in HELPERS:
        assert with_needed([name])[-1] == name


CHECK = """
import numpy as np, torch, triton, triton.language as tl, linecache, sys
from compiler.codegen.triton.helpers import HELPERS
source = "\\n".join(f"@triton.jit\\n{text}\\n" for text in HELPERS.values()) + '''
@triton.jit
def apply(x_ptr, y_ptr, out_ptr, n, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    live = lane < n
    x = tl.load(x_ptr + lane, live)
    y = tl.load(y_ptr + lane, live)
    tl.store(out_ptr + lane, CALL, live)
'''
def value(call, x, y):
    name = f"<{call}>"
    text = source.replace("CALL", call)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {"tl": tl, "triton": triton, "__name__": "m"}
    exec(compile(text, name, "exec"), space)
    x, y = (torch.from_numpy(each).to(DEVICE) for each in (x, y))
    out = torch.empty_like(x)
    space["apply"][(1,)](x, y, out, len(x), LANES=256)
    return out.cpu().numpy()
"""


def applied(call, x, y):
    """The value of a call of helpers on two arrays, computed where kernels run."""
    space = {"DEVICE": device_of(runtime.CUDAPlace(0))}
    exec(CHECK, space)
    return space["value"](call, x, y)


@pytest.mark.parametrize(
    ("helper", "function", "low", "high"),
    [
        ("expm1", np.expm1, -3, 3), ("log1p", np.log1p, -0.9, 5), ("tanh", np.tanh, -30, 30),
        ("sinh", np.sinh, -3, 3), ("cosh", np.cosh, -3, 3), ("tan", np.tan, -1.4, 1.4),
        ("arctan", np.arctan, -20, 20), ("arcsin", np.arcsin, -1, 1),
        ("arccos", np.arccos, -0.99, 0.99), ("sign", np.sign, -1, 1), ("trunc", np.trunc, -5, 5),
        ("rint", np.rint, -5, 5), ("log2", np.log2, 0.1, 9), ("log10", np.log10, 0.1, 9),
    ],
)  # fmt: skip
def test_helpers_are_exact_to_a_few_units(helper, function, low, high):
    x = np.linspace(low, high, 201, dtype=np.float32)
    x[100:104] = 0.5 if low > 0 else (1e-8, -1e-5, 0.5, 0.0)
    got = applied(f"{helper}(x)", x, x)
    want = function(x.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-7 * (want.max() > 0.5))


@pytest.mark.parametrize(
    ("helper", "function"),
    [
        ("power", np.power), ("remainder", np.remainder), ("fmod", np.fmod),
        ("floor_divide", np.floor_divide), ("larger", np.maximum),
    ],
)  # fmt: skip
def test_helpers_of_two(helper, function):
    x = np.float32([2, -2, -3, 0, 5.5, -5.5, 7, 0.1])
    y = np.float32([3, 3, 2, 2, 2, 2, -2, 0.5])
    got = applied(f"{helper}(x, y)", x, y)
    np.testing.assert_allclose(got, function(x, y), rtol=3e-6)


@pytest.mark.parametrize("helper", ["floor_divide", "remainder", "fmod"])
def test_quotients_at_exact_multiples(helper):
    random = np.random.default_rng(5)
    y = random.uniform(0.1, 9, 201).astype(np.float16).astype(np.float32)
    x = y * random.integers(-900, 900, 201).astype(np.float32)
    np.testing.assert_array_equal(applied(f"{helper}(x, y)", x, y), getattr(np, helper)(x, y))


def test_a_module_runs_as_a_script(tmp_path):
    path = tmp_path / "chain.py"
    module_of(CHAIN).save(path)
    done = subprocess.run(
        [sys.executable, str(path), "N=4"], capture_output=True, text=True, timeout=120, check=False,
        env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "c: float32[4, 5, 7]" in done.stdout


def test_a_stack_of_products_may_be_longer_than_a_second_axis_of_programs():
    module = module_of("""graph main {
  feed x: f32[70000, 4, 4]
  feed y: f32[70000, 4, 4]
  (Out=z: f32[70000, 4, 4]) = matmul(X=x, Y=y)
  return z
}
""")
    assert "* (70000),)]" in module.source  # CUDA has 65,535 of that axis, and 2^31 of the first


@pytest.mark.parametrize(("shape", "axes", "tiled"), [
    ("64, 48, 3, 3", [2, 3, 1, 0], True), ("64, 48, 3, 3", [2, 3, 0, 1], True),
    ("N, 20, 7, 17", [0, 2, 3, 1], True), ("N, 5, 33, 70", [0, 1, 3, 2], True),
    ("N, 7, 12, 64", [0, 2, 1, 3], False), ("N, 3, 9, 9", [0, 2, 3, 1], False),
])  # fmt: skip
def test_transposes_move_tiles_where_the_innermost_axis_changes(shape, axes, tiled):
    moved = ", ".join(shape.split(", ")[axis] for axis in axes)
    text = f"""graph main {{
  feed x: f32[{shape}]
  (Out=y: f32[{moved}]) = transpose(X=x) {{'axis': {axes}}}
  return y
}}
"""
    assert ("r_live" in compare(text, rtol=0, atol=0).source) is tiled
