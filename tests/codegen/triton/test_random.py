"""Random numbers of a device: the words of the reference, and dropout that keeps no mask."""

import importlib.util
import re
import sys

import numpy as np
import pytest

import compiler
import fluid
import runtime
from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import gpus
from compiler.codegen.triton.helpers import HELPERS, with_needed
from compiler.codegen.triton.target import TritonTarget
from compiler.ir.graph import Graph
from compiler.ir.philox import philox, uniform_by_key
from compiler.ir.text.printer import parse, show
from compiler.ir.types import DType, TensorType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.draw_keys import DrawKeys
from compiler.passes.manager import run_passes
from tests.codegen.support import inputs
from tests.codegen.test_triton import compare, module_of

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.device

ROUND_TRIP = """graph main {
  feed x: f32[N, 5, 7]
  feed g: f32[N, 5, 7]
  (Out=y: f32[N, 5, 7], Mask=m: u8[N, 5, 7]) = dropout(X=x) {ATTRS}
  (Out=z: f32[N, 5, 7], Mask=n: u8[N, 5, 7]) = dropout(X=x) {ATTRS}
  (X@GRAD=d: f32[N, 5, 7]) = dropout_grad(Mask=m, Out@GRAD=g) {ATTRS}
  return y, d, zRESULTS
}
"""
UPSCALED = "'dropout_prob': 0.3, 'dropout_implementation': 'upscale_in_train'"
DOWNGRADED = "'dropout_prob': 0.3"


def loaded(attrs, results=""):
    """The module of the round trip and what computes it."""
    text = ROUND_TRIP.replace("ATTRS", "{" + attrs + "}").replace("{{", "{").replace("}}", "}")
    module = module_of(text.replace("RESULTS", results))
    return module, runtime.load(module, runtime.CUDAPlace(0))


def ones(n=11):
    return {"x": np.ones((n, 5, 7), np.float32), "g": np.ones((n, 5, 7), np.float32)}


# ---- the words ----------------------------------------------------------------------------------


def test_philox_words_match_the_reference(tmp_path):
    """Philox with whole counters, as a kernel of its own: Random123's vectors are test_philox.py's."""
    helpers = "\n\n".join("@triton.jit\n" + HELPERS[each] for each in with_needed(["philox"]))
    head = "import triton\nimport triton.language as tl\n\n"
    file = tmp_path / "drawn_words.py"
    file.write_text(head + helpers + _WORDS, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("drawn_words", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["drawn_words"] = module
    spec.loader.exec_module(module)
    counters = np.random.default_rng(3).integers(0, 2**32, (4, 64), np.uint64)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    values = torch.from_numpy(counters.astype(np.int64)).to(device)
    for key in (0, -1, 0x299F31D0_A4093822, 5):
        keys = torch.tensor([key], dtype=torch.int64, device=device)
        actual = torch.zeros_like(values)
        module.drawn_words[(1,)](keys, values, actual)
        wanted = np.stack(philox(key % 2**64, list(counters)))
        np.testing.assert_array_equal(actual.cpu().numpy().astype(np.uint64), wanted)


_WORDS = """

@triton.jit
def drawn_words(key_ptr, given_ptr, found_ptr):
    key = tl.load(key_ptr)
    i = tl.arange(0, 64)
    a = tl.load(given_ptr + i).to(tl.uint32)
    b = tl.load(given_ptr + 64 + i).to(tl.uint32)
    c = tl.load(given_ptr + 128 + i).to(tl.uint32)
    d = tl.load(given_ptr + 192 + i).to(tl.uint32)
    a, b, c, d = philox(key, a, b, c, d)
    tl.store(found_ptr + i, a.to(tl.int64))
    tl.store(found_ptr + 64 + i, b.to(tl.int64))
    tl.store(found_ptr + 128 + i, c.to(tl.int64))
    tl.store(found_ptr + 192 + i, d.to(tl.int64))
"""


@pytest.mark.parametrize("count", [1, 3, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("dtype", [5, 6], ids=["f32", "f64"])
def test_even_numbers_are_the_reference_to_the_bit(count, dtype):
    kind = "f32" if dtype == 5 else "f64"
    attrs = {"shape": [count], "min": 0.0, "max": 1.0, "dtype": dtype, "seed": 12345}
    text = f"graph main {{\n  (Out=u: {kind}[{count}]) = uniform_random() {attrs}\n  return u\n}}\n"
    (actual,) = runtime.load(module_of(text), runtime.CUDAPlace(0))({})
    keyed = text.replace("uniform_random()", "uniform_random(Key=k)")
    keyed = keyed.replace("graph main {", "graph main {\n  feed k: i64[1]")
    (wanted,) = runtime.load(module_of(keyed), runtime.CUDAPlace(0))({"k": np.array([12345])})
    np.testing.assert_array_equal(actual, wanted)
    if dtype == 5:
        np.testing.assert_array_equal(actual, uniform_by_key(np.array([12345]), 0, [count]))


# ---- dropout ------------------------------------------------------------------------------------


@pytest.mark.parametrize("attrs", [UPSCALED, DOWNGRADED])
def test_the_gradient_draws_the_mask_once_more(attrs):
    module, compute = loaded(attrs)
    assert not [row for row in module.buffers if "m" in row.name.split("@")]
    assert "uint8" not in re.sub(r"dtype=torch\.uint8", "", module.source)
    kept = 1 / 0.7 if attrs is UPSCALED else 1.0
    y, d, z = (np.array(each) for each in compute(ones()))
    assert set(np.unique(y)) == {0.0, np.float32(kept)}
    np.testing.assert_array_equal(y, d)
    assert (y != z).any()
    assert abs((y != 0).mean() - 0.7) < 0.06


def test_every_step_has_a_mask_of_its_own():
    _, compute = loaded(UPSCALED)
    first, second = (np.array(compute(ones())[0]) for _ in range(2))
    assert (first != second).any()


def test_a_fixed_seed_is_the_same_mask_in_every_step_and_run():
    seeded = UPSCALED + ", 'fix_seed': True, 'seed': 7"
    runs = [loaded(seeded)[1] for _ in range(2)]
    steps = [[np.array(each) for each in compute(ones())] for compute in runs for _ in range(2)]
    for y, d, z in steps:
        np.testing.assert_array_equal(y, steps[0][0])
        np.testing.assert_array_equal(d, y)
        np.testing.assert_array_equal(z, y)
    other = loaded(seeded.replace("7}", "8").replace(": 7", ": 8"))[1](ones())[0]
    assert (other != steps[0][0]).any()


def test_a_mask_that_is_fetched_is_written():
    _, compute = loaded(UPSCALED, results=", m")
    y, d, _, mask = compute(ones())
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, y != 0)
    np.testing.assert_array_equal(y, d)


def test_seeds_are_data_and_change_no_kernel():
    seeds = [UPSCALED + f", 'fix_seed': True, 'seed': {seed}" for seed in (3, 4)]
    first, second = (loaded(attrs)[0].source for attrs in seeds)
    assert first != second
    assert re.sub(r"make_keys\(generator, .*\)", "", first) == re.sub(
        r"make_keys\(generator, .*\)", "", second
    )


def test_a_seed_that_is_fed_decides_alone():
    text = """graph main {
  feed x: f32[N, 5, 7]
  feed s: i32[1]
  (Out=y: f32[N, 5, 7], Mask=m: u8[N, 5, 7]) = dropout(X=x, Seed=s) {'dropout_prob': 0.3}
  return y
}
"""
    compute = runtime.load(module_of(text), runtime.CUDAPlace(0))
    x = np.ones((4, 5, 7), np.float32)
    drawn = [np.array(compute({"x": x, "s": np.array([s], np.int32)})[0]) for s in (5, 6, 5)]
    np.testing.assert_array_equal(drawn[0], drawn[2])
    assert (drawn[0] != drawn[1]).any()
    np.testing.assert_array_equal(drawn[0] != 0, uniform_by_key(np.array([5]), 0, x.shape) >= 0.3)


BETWEEN = """graph main {
  feed x: f32[N, 6, 8]
  feed k: i64[2]
  param w: f32[8, 5]
  param b: f32[5]
  (Out=h: f32[N, 6, 5]) = mul(X=x, Y=w) {'x_num_col_dims': 2}
  (Out=a: f32[N, 6, 5]) = elementwise_add(X=h, Y=b) {'axis': 2}
  (Out=d: f32[N, 6, 5], Mask=m: u8[N, 6, 5]) = dropout_by_key(X=a, Key=k) {'place': 1}
  (Out=r: f32[N, 6, 5]) = relu(X=d)
  return r, m
}
"""


@pytest.mark.parametrize("columns", [5, 20], ids=["one by one", "by fours"])
def test_dropout_is_fused_into_the_kernel_of_a_product(columns):
    text = BETWEEN.replace("5]", f"{columns}]")
    names = {kernel.name for kernel in compare(text).kernels}
    compare(text, size=17)
    compare(text, Options(disable=frozenset({"fuse_pointwise", "fuse_epilogue"})))
    compare(text, size=33)
    assert names == {"mul_elementwise_add_dropout_by_key_relu"}


STACK = """graph main {
  feed x: f32[N, 2, 6, 8]
  feed y: f32[N, 2, 8, 12]
  feed k: i64[2]
  (Out=h: f32[N, 2, 6, 12]) = matmul(X=x, Y=y)
  (Out=d: f32[N, 2, 6, 12]) = dropout_by_key(X=h, Key=k) {'place': 1}
  return d
}
"""

PICTURE = """graph main {
  feed x: f32[N, 6, 5, 3]
  feed k: i64[2]
  param w: f32[8, 3, 3, 3]
  (Output=h: f32[N, 6, 5, 8]) = conv2d(Input=x, Filter=w) {'paddings': [1, 1], 'data_format': 'NHWC'}
  (Out=d: f32[N, 6, 5, 8]) = dropout_by_key(X=h, Key=k) {'place': 1}
  return d
}
"""


@pytest.mark.parametrize("text", [STACK, PICTURE], ids=["stack", "picture"])
def test_tiles_use_all_four_philox_words(text):
    assert "uniform_tile(key" in compare(text).source
    compare(text, size=5)


def test_keys_are_not_written_over():
    """A result of a key's own type and shape takes other memory: all lanes read the key."""
    text = """graph main {
  feed x: f32[3]
  (Out=k: i64[3]) = cast(X=x) {'in_dtype': 5, 'out_dtype': 3}
  (Out=d: f32[3]) = dropout_by_key(X=x, Key=k) {'place': 1, 'dropout_prob': 0.4}
  (Out=c: i64[3]) = cast(X=d) {'in_dtype': 5, 'out_dtype': 3}
  (Out=s: f32[3]) = cast(X=c) {'in_dtype': 3, 'out_dtype': 5}
  return c, s
}
"""
    module = compare(text)
    keys, result = (next(r for r in module.buffers if r.name.startswith(n)) for n in ("k", "c"))
    assert keys is not result


# ---- the pass -----------------------------------------------------------------------------------


def drawn_keys(text):
    """A graph's text behind the pass alone, and what the pass declined."""
    graph, context = parse(text), Context()
    run_passes(graph, [DrawKeys(TritonTarget().supports)], context)
    return show(graph), [note.reason for note in context.missed]


def test_dropout_mask_is_stored_if_read():
    text = """graph main {
  feed x: f32[N, 4]
  (Out=y: f32[N, 4], Mask=m: u8[N, 4]) = dropout(X=x)
  (Out=c: f32[N, 4]) = cast(X=m) {'in_dtype': 20, 'out_dtype': 5}
  (X@GRAD=d: f32[N, 4]) = dropout_grad(Mask=m, Out@GRAD=x)
  return y, c, d
}
"""
    result, reasons = drawn_keys(text)
    assert "Mask=m: u8[N, 4]) = dropout_by_key(X=x, Key=random_keys)" in result
    assert "dropout_grad(Mask=m" in result
    assert reasons == ["its mask 'm' is read by cast"]


def test_ops_that_draw_share_one_tensor_of_keys():
    text = """graph main {
  feed x: f32[N, 4]
  (Out=u: f32[3]) = uniform_random() {'shape': [3], 'seed': 4}
  (Out=y: f32[N, 4]) = dropout(X=x) {'seed': 5}
  (Out=g: f32[3]) = gaussian_random() {'shape': [3]}
  (Out=z: f32[N, 4]) = dropout(X=x) {'seed': 0, 'fix_seed': True}
  return u, y, g, z
}
"""
    result, _ = drawn_keys(text)
    assert "(Out=random_keys: i64[8]) = random_keys() {'seeds': [4, -1, -1, 0]}" in result
    assert result.count("Key=random_keys") == 4
    assert drawn_keys(result)[0] == result


def test_keys_come_before_ops_that_a_pass_has_put_first():
    """An op that reads nothing but feeds may be the first that was added to a graph."""
    graph = Graph()
    row = TensorType(DType.FP32, (4,))
    out = graph.var("y", row)
    graph.op("dropout", {"X": [graph.feed("x", row)]}, {"Out": [out]}, {"dropout_prob": 0.5})
    graph.results = [out]
    run_passes(graph, [DrawKeys(TritonTarget().supports)], Context())
    assert [op.kind for op in graph.ops()] == ["random_keys", "dropout_by_key"]


# ---- training -----------------------------------------------------------------------------------


def network(seed=0, rate=0.5, wanted=False):
    """A classifier with two dropouts, what it is fed, and its loss (and mask)."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [64, 32], "float32")
        hidden = fluid.layers.dropout(fluid.layers.fc(x, 48, act="relu"), rate)
        hidden = fluid.layers.dropout(fluid.layers.fc(hidden, 40, act="relu"), rate)
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 4)))
        fluid.optimizer.SGD(0.05).minimize(loss)
    masks = [op.output("Mask")[0] for op in main.global_block().ops if op.type == "dropout"]
    return main, startup, [loss, *(masks if wanted else [])]


def trained(seed, steps=3, place=None):
    main, startup, fetch = network(seed)
    executor, scope = fluid.Executor(place or fluid.CUDAPlace(0)), fluid.Scope()
    feed = {"x": np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)}
    with fluid.scope_guard(scope):
        executor.run(startup)
        losses = [float(executor.run(main, feed, fetch)[0][0]) for _ in range(steps)]
    return losses, executor


def test_a_seed_of_the_program_repeats_a_training():
    first, executor = trained(3)
    np.testing.assert_allclose(trained(3)[0], first, rtol=1e-5)
    assert not np.allclose(trained(4)[0], first, rtol=1e-2)
    assert executor.counters.compiles == 2


def test_training_without_a_seed_differs_from_run_to_run():
    assert not np.allclose(trained(0)[0], trained(0)[0], rtol=1e-2)


def test_dropout_mask_is_recomputed_in_training():
    """Only masks that are fetched take memory, a byte an element, from forward to backward."""
    sizes = []
    for wanted in (False, True):
        main, _, fetch = network(wanted=wanted)
        masks = {op.output("Mask")[0] for op in main.global_block().ops if op.type == "dropout"}
        module = compiler.compile(main, feed=["x"], fetch=fetch, target="triton")
        there = masks <= {row.name for row in module.buffers if row.on_device}
        assert there == wanted
        sizes.append(sum(row.nbytes for row in module.buffers if row.on_device))
    assert sizes[1] - sizes[0] >= 64 * (48 + 40)


def test_rematerialised_dropout_draws_the_same():
    """Under a budget of memory dropouts are computed again, from the keys that they had."""
    lines = ["  (Out=h0: f32[N, 64]) = tanh(X=x)"]
    for i in range(8):
        lines += [
            f"  (Out=d{i}: f32[N, 64]) = dropout_by_key(X=x, Key=k) {{'place': {i}}}",
            f"  (Out=a{i}: f32[N, 64]) = elementwise_add(X=h{i}, Y=d{i})",
            f"  (Out=h{i + 1}: f32[N, 64]) = mul(X=a{i}, Y=w)",
        ]
    lines.append("  (Out=s8: f32[N, 64]) = tanh(X=h8)")
    lines += [f"  (Out=s{i}: f32[N, 64]) = elementwise_add(X=s{i + 1}, Y=d{i})" for i in range(8)]
    lines[-8:] = reversed(lines[-8:])
    feeds = ["  feed x: f32[N, 64]", "  feed k: i64[8]", "  param w: f32[64, 64]"]
    text = "\n".join(["graph main {", *feeds, *lines, "  return s0", "}", ""])
    off = frozenset({"fuse_pointwise", "fuse_epilogue"})
    feed, state = inputs(parse(text), 5)
    result, launches = [], []
    for budget in (None, "60%"):
        options = Options(disable=off, memory_budget=budget)
        module = module_of(text, options, Context(memory_budget=budget))
        result.append(runtime.load(module, runtime.CUDAPlace(0), dict(state))(feed)[0])
        launches.append(len(re.findall(r"dropout_by_key\w*\[", module.source)))
    np.testing.assert_array_equal(result[1], result[0])
    assert launches[0] == 8 < launches[1]


def test_kernels_that_draw_are_built_for_both_makers_of_gpus(tmp_path):
    """None spills, loads stay wide, and elements share blocks of words: 8 a thread take 2 blocks."""
    text = """graph main {
  feed x: f32[N, 64]
  (Out=y: f32[N, 64], Mask=m: u8[N, 64]) = dropout(X=x)
  (Out=g: f32[64]) = gaussian_random() {'shape': [64]}
  (Out=i: i64[64]) = randint() {'shape': [64], 'low': 0, 'high': 9}
  return y, g, i
}
"""
    targets = gpus("cuda:90,hip:gfx942")
    wide = BETWEEN.replace("5]", "64]")
    built = build([module_of(text), module_of(wide)], targets, tmp_path, 10**8)
    assert [len(row) for row in built] == [6, 3 * 2], "the product has three variants"
    assert not any(each.code.spilled for row in built for each in row)
    alone = [each.code.files["ptx"] for each in built[0] if each.kernel == "dropout_by_key"
             and "ptx" in each.code.files]  # fmt: skip
    assert all(ptx.count(b"mul.wide.u32") < 60 for ptx in alone)
    assert all(b"ld.global.v4" in ptx and b"st.global.v4" in ptx for ptx in alone)
