"""The cost of plans, compared with counts by hand."""

import json

import pytest

from compiler.codegen.native.machine import MACHINES
from compiler.codegen.triton.target import TritonTarget
from compiler.cost.gpu_limits import GPUS, HOST
from compiler.cost.plan_cost import Cost, Side, account
from compiler.cost.stage_costs import costs_by_stage, graph_cost
from compiler.debugging.explanation import study_graph
from compiler.driver import TARGETS, compile_graph
from compiler.freeze import freeze
from compiler.ir.text.printer import parse
from compiler.ir.types import DType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from compiler.report.roofline import Roofline

H200 = GPUS["h200"]


def account_of(text, disable=(), device=True, **sizes):
    """The account of a graph that went through all passes but those to leave out."""
    graph, target = parse(text), TritonTarget() if device else None
    run_passes(graph, pipeline(Options(disable=frozenset(disable)), target), Context())
    return account(freeze(graph), sizes)


def kernels_of(text, disable=(), **sizes):
    """Bytes read and written, and operations, of each kernel of the device."""
    result = account_of(text, disable, **sizes).of(Side.DEVICE)
    return [(each.read, each.written, each.operations + each.products) for each in result]


LAYER = """graph main {
  feed x: f32[N, 6]
  param w: f32[6, 5]
  param b: f32[5]
  (Out=h: f32[N, 5]) = mul(X=x, Y=w)
  (Out=a: f32[N, 5]) = elementwise_add(X=h, Y=b) {'axis': 1}
  (Out=y: f32[N, 5]) = relu(X=a)
  return y
}
"""
APART = ["fuse_pointwise", "fuse_epilogue"]


@pytest.mark.parametrize("device", [True, False], ids=["kernels", "steps"])
def test_a_layer_as_three_kernels(device):
    apart = account_of(LAYER, APART, device, N=10).of(Side.DEVICE)
    assert apart == [
        Cost("mul", 4 * (10 * 6 + 6 * 5), 4 * 50, 0, 2 * 10 * 6 * 5),
        Cost("elementwise_add", 4 * (50 + 5), 4 * 50, 50),
        Cost("relu", 4 * 50, 4 * 50, 50),
    ]


def test_a_layer_as_one_kernel_reads_and_writes_once():
    whole = account_of(LAYER, N=10)
    (kernel,) = whole.of(Side.DEVICE)
    assert (kernel.read, kernel.written) == (4 * (10 * 6 + 6 * 5 + 5), 4 * 50)
    assert (kernel.products, kernel.operations) == (2 * 10 * 6 * 5, 50 + 50)
    assert whole.moved == whole.least == kernel.moved
    copies = [(cost.kernel, cost.read) for cost in whole.of(Side.COPY)]
    assert copies == [("to_device", 4 * 60), ("to_host", 4 * 50)]


def one(op, feeds, out):
    """A graph of one op: feeds by name, then what it writes, with their types."""
    lines = "".join(f"  feed {name}: {type}\n" for name, type in feeds.items())
    returned = ", ".join(part.split(":")[0].split("=")[1] for part in out.split("; "))
    return f"graph main {{\n{lines}  ({out.replace('; ', ', ')}) = {op}\n  return {returned}\n}}\n"


SOFTMAX = one("softmax(X=x)", {"x": "f32[N, M]"}, "Out=y: f32[N, M]")


def test_a_softmax_of_short_rows_reads_them_once_and_of_long_ones_in_every_run():
    short = one("softmax(X=x)", {"x": "f32[8, 100]"}, "Out=y: f32[8, 100]")
    assert kernels_of(short)[0][:2] == (4 * 800, 4 * 800)
    (long,) = account_of(SOFTMAX, N=8, M=100).steps[1:2]
    assert long.kernels[0].read == 3 * 4 * 800 and long.kernels[0].written == 4 * 800
    assert long.least == 2 * 4 * 800
    huge = one("softmax(X=x)", {"x": "f32[80, 40000]"}, "Out=y: f32[80, 40000]")
    assert kernels_of(huge)[0][:2] == (3 * 4 * 3200000, 4 * 3200000)


COUNTED = {
    "sum of rows": (
        one("reduce_sum(X=x) {'dim': [1]}", {"x": "f32[8, 100]"}, "Out=y: f32[8]"),
        [(4 * 800, 4 * 8, 800)],
    ),
    "a broadcast vector is read once": (
        one("elementwise_mul(X=x, Y=v) {'axis': 1}", {"x": "f32[8, 5]", "v": "f32[5]"},
            "Out=y: f32[8, 5]"),
        [(4 * 45, 4 * 40, 40)],
    ),
    "transpose": (
        one("transpose(X=x) {'axis': [1, 0]}", {"x": "f32[8, 5]"}, "Out=y: f32[5, 8]"),
        [(4 * 40, 4 * 40, 0)],
    ),
    "a slice reads what it takes": (
        one("slice(Input=x) {'axes': [0], 'starts': [2], 'ends': [5]}", {"x": "f32[8, 5]"},
            "Out=y: f32[3, 5]"),
        [(4 * 15, 4 * 15, 0)],
    ),
    "a look-up reads its rows, not the table": (
        one("lookup_table_v2(Ids=i, W=w)", {"i": "i64[7]", "w": "f32[1000, 4]"},
            "Out=y: f32[7, 4]"),
        [(8 * 7 + 4 * 28, 4 * 28)],
    ),
    "a cast": (
        one("cast(X=x) {'in_dtype': 5, 'out_dtype': 4}", {"x": "f32[8, 5]"}, "Out=y: f16[8, 5]"),
        [(4 * 40, 2 * 40, 0)],
    ),
    "a batched product": (
        one("matmul(X=x, Y=y)", {"x": "f32[3, 8, 5]", "y": "f32[3, 5, 4]"},
            "Out=z: f32[3, 8, 4]"),
        [(4 * (120 + 60), 4 * 96, 2 * 96 * 5)],
    ),
    "a convolution reads pixels and weights once": (
        one("conv2d(Filter=w, Input=x)", {"x": "f32[2, 4, 8, 8]", "w": "f32[6, 4, 3, 3]"},
            "Output=y: f32[2, 6, 6, 6]"),
        [(4 * (512 + 216), 4 * 432, 2 * 432 * 36)],
    ),
    "one of every second pixel reads a quarter": (
        one("conv2d(Filter=w, Input=x) {'strides': [2, 2]}",
            {"x": "f32[2, 4, 8, 8]", "w": "f32[6, 4, 1, 1]"}, "Output=y: f32[2, 6, 4, 4]"),
        [(4 * (128 + 24), 4 * 192, 2 * 192 * 4)],
    ),
    "a pool": (
        one("pool2d(X=x) {'ksize': [2, 2], 'pooling_type': 'max', 'strides': [2, 2]}",
            {"x": "f32[2, 4, 8, 8]"}, "Out=y: f32[2, 4, 4, 4]"),
        [(4 * 512, 4 * 128)],
    ),
    "a step of sgd": (
        """graph main {
  feed g: f32[100]
  feed r: f32[1]
  param p: f32[100]
  (ParamOut=p#1: f32[100]) = sgd(Grad=g, LearningRate=r, Param=p)
  return p#1
}
""",
        [(4 * 201, 4 * 100)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_kernels_as_counted_by_hand(name):
    text, wanted = COUNTED[name]
    actual = kernels_of(text)
    assert [each[: len(w)] for each, w in zip(actual, wanted, strict=True)] == wanted


@pytest.mark.parametrize("name", COUNTED)
def test_such_kernels_are_ideal(name):
    result = account_of(COUNTED[name][0])
    assert result.moved == result.least


@pytest.mark.parametrize(
    ("kind", "x", "w", "y", "attrs", "products"),
    [
        ("conv2d", "2, 4, 8, 8", "6, 4, 3, 3", "2, 6, 6, 6", "", 2 * 6 * 36 * 4 * 9),
        ("conv2d", "2, 4, 8, 8", "6, 2, 3, 3", "2, 6, 6, 6", "{'groups': 2}", 2 * 6 * 36 * 2 * 9),
        ("conv2d_transpose", "2, 4, 8, 8", "4, 6, 3, 3", "2, 6, 10, 10", "", 2 * 4 * 64 * 6 * 9),
    ],
)
def test_convolutions_as_steps(kind, x, w, y, attrs, products):
    text = f"""graph main {{
  feed x: f32[{x}]
  param w: f32[{w}]
  (Output=y: f32[{y}]) = {kind}(Filter=w, Input=x) {attrs}
  return y
}}
"""
    (cost,) = account_of(text, device=False).kernels
    assert cost.products == 2 * products


MUL_GRAD = """graph main {
  feed x: f32[7, 6]
  feed g: f32[7, 5]
  param w: f32[6, 5]
  (X@GRAD=a: f32[7, 6], Y@GRAD=b: f32[6, 5]) = mul_grad(Out@GRAD=g, X=x, Y=w)
  return a, b
}
"""


def test_each_gradient_of_a_product_is_as_much_work_as_the_product():
    (cost,) = account_of(MUL_GRAD, device=False).kernels
    assert cost.products == 2 * 2 * 7 * 6 * 5
    assert cost.moved == 4 * (7 * 5 + 7 * 6 + 6 * 5 + 7 * 6 + 6 * 5)


def test_cost_counts_reads_of_each_kernel():
    result = account_of(MUL_GRAD)
    each = [(cost.read, cost.written) for cost in result.of(Side.DEVICE)]
    assert sorted(each) == sorted([(4 * (35 + 30), 4 * 42), (4 * (35 + 42), 4 * 30)])
    assert result.moved - result.least == 4 * 35, "what both of them read is read twice"


def test_a_long_sum_is_one_of_parts_that_are_written_and_read_again():
    text = one("reduce_sum(X=x) {'dim': [1]}", {"x": "f32[2, 70001]"}, "Out=y: f32[2]")
    result = account_of(text)
    parts, whole = result.of(Side.DEVICE)
    assert parts.read == 4 * 2 * 70001 and whole.written == 4 * 2
    assert parts.written == whole.read
    assert result.least == 4 * (2 * 70001 + 2) == result.moved - 2 * whole.read


def test_ops_of_the_host_and_the_copies_they_need_are_counted_apart():
    text = """graph main {
  feed x: f32[N, 6]
  (Out=a: f32[N, 6]) = relu(X=x)
  (Out=b: f32[N, 6]) = print(In=a) {'message': ''}
  (Out=y: f32[N, 6]) = tanh(X=b)
  return y
}
"""
    result = account_of(text, N=10)
    assert [cost.kernel for cost in result.of(Side.HOST)] == ["print"]
    assert result.launches == 2
    copies = result.of(Side.COPY)
    assert len(copies) == 4 and {cost.read for cost in copies} == {4 * 60}
    assert copies[0].seconds(H200) == pytest.approx(240 / 64e9)
    assert result.of(Side.HOST)[0].seconds(H200) == pytest.approx(480 / HOST)


def test_cost_omits_data_dependent_sizes():
    text = """graph main {
  feed x: f32[8]
  (Out=i: i64[?, 1]) = where_index(Condition=x)
  return i
}
"""
    result = account_of(text)
    assert "where_index" in result.left_out


def test_the_longer_of_moving_and_computing_bounds_a_kernel():
    assert Cost("copy", 4_800_000_000, 0, 1).seconds(H200) == pytest.approx(1e-3)
    assert Cost("sum", 8, 8, 66_900_000_000).seconds(H200) == pytest.approx(1e-3)
    for dtype in (DType.FP16, DType.BF16):
        dot = Cost("dot", 8, 8, products=9894 * 10**8, factor=dtype)
        assert dot.seconds(H200) == pytest.approx(1e-3)


def test_every_gpu_reports_where_its_numbers_are_from():
    for gpu in GPUS.values():
        assert gpu.source and gpu.rate(DType.FP32) > 0 and gpu.bandwidth > gpu.link
        assert gpu.rate(DType.BF16) >= gpu.rate(DType.FP32)


def test_an_account_after_each_pass():
    seen = study_graph("layer", parse(LAYER), {"N": 10}, target="triton")
    by_pass = dict(zip([stage.name for stage in seen.stages], seen.accounts, strict=True))
    assert by_pass["start"].launches == 3
    assert by_pass["fuse_pointwise"].launches == 2
    assert by_pass["fuse_epilogue"].launches == by_pass["insert_deletes"].launches == 1
    assert by_pass["start"].moved - by_pass["fuse_epilogue"].moved == 4 * 4 * 50
    last = graph_cost(parse(seen.stages[-1].text), seen.sizes, TARGETS["triton"])
    assert last == seen.accounts[-1]
    assert costs_by_stage(seen.stages[:1], {"N": 20}, TARGETS["triton"])[0].moved > last.moved


def test_an_account_counts_neither_views_nor_kernels_of_another_gpu():
    text = """graph main {
  feed x: f32[8, 128, 768]
  param w: f32[768, 3072]
  (Out=h: f32[8, 128, 3072]) = mul(X=x, Y=w) {'x_num_col_dims': 2}
  (Out=y: f32[1024, 3072]) = reshape(X=h) {'shape': [1024, 3072]}
  return y
}
"""
    options = Options(gpu="cuda:90")
    seen = study_graph("product", parse(text), {}, target="triton", options=options)
    by_pass = dict(zip([stage.name for stage in seen.stages], seen.accounts, strict=True))
    assert by_pass["start"].launches == 2 and seen.accounts[-1].launches == 1
    assert seen.accounts[-1].total() == account(seen.compiled.plan, {}).total()
    assert seen.accounts[-1].of(Side.DEVICE)[0].factor is DType.BF16


def test_the_tables_name_passes_that_changed_something_and_the_longest_kernels():
    seen = study_graph("layer", parse(LAYER), {"N": 10}, target="triton")
    text = str(seen.roofline(H200))
    assert text.splitlines()[0].strip() == "roofline h200, N = 10"
    first = [line.split()[0] for line in text.splitlines()]
    assert "fuse_pointwise" in first and "merge_common" not in first
    assert text.splitlines()[-1].split()[:3] == ["all", "3", "kernels"]
    data = json.loads(json.dumps(seen.roofline(H200).data()))
    assert [row["launches"] for row in data["passes"]][:: len(data["passes"]) - 1] == [3, 1]
    assert data["passes"][-1]["read"] == 4 * (10 * 6 + 6 * 5 + 5)


def test_no_kernels():
    nothing = account_of("graph main {\n  feed x: f32[2]\n  return x\n}\n")
    assert "no kernels" in str(Roofline(H200, [("start", nothing)], {}))


def test_a_native_plan_counts_its_kernels_and_the_steps_in_numpy():
    text = """graph main {
  feed x: f32[8, 16]
  param w: f32[16, 4]
  (Out=h: f32[8, 4]) = mul(X=x, Y=w)
  (Out=y: f32[8, 4]) = relu(X=h)
  return y
}
"""
    result = compile_graph(parse(text), target="native:avx2")
    costs = account(result.plan, machine=MACHINES["avx2"])
    kernels = costs.of(Side.DEVICE)
    assert {kernel.kernel for kernel in kernels} <= result.module.kernels_ir.keys()
    assert sum(kernel.operations for kernel in kernels) >= 2 * 8 * 16 * 4
    assert costs.moved >= 4 * (8 * 16 + 16 * 4 + 8 * 4) and costs.total().written >= 4 * 8 * 4
    assert not costs.of(Side.HOST)
