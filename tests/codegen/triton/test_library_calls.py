"""Products that the vendor's library computes: calls in the module, their results, and their cost."""

import pytest

from compiler.codegen.module import Module
from compiler.codegen.triton.graph_segments import MIN_LAUNCHES
from compiler.cost.plan_cost import account
from compiler.driver import compile_graph
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.support.thresholds import lowered
from tests.codegen.test_triton import compare

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.device

TILES = """memory 2.0 2.0 2
half NN 1 64 32 16 32x32x32 2 4 1 9 4
half NT 1 64 16 32 32x32x32 2 4 1 9 4
half TN 1 16 32 64 32x32x32 2 4 1 9 4
"""
"""Times for the sizes below, of an unknown N as it is typical."""

LAYER = """graph main {{
  feed x: {t}[N, 16]
  feed g: {t}[N, 32]
  param w: {t}[16, 32]
  param b: {t}[32]
  (Out=y: {t}[N, 32]) = mul(X=x, Y=w)
  (X@GRAD=d: {t}[N, 16], Y@GRAD=dw: {t}[16, 32]) = mul_grad(Out@GRAD=g, X=x, Y=w)
  (Y@GRAD=db: {t}[32]) = elementwise_add_grad(Out@GRAD=g, X=g, Y=b)
  (Out=dx: {t}[N, 16]) = relu(X=d)
  return y, dx, dw, db
}}
"""
OPTIONS = Options(gpu="cuda:75", tiles=TILES)


def compiled(t: str = "f16", **options):
    return compile_graph(
        parse(LAYER.format(t=t)), target="triton", options=Options(gpu="cuda:75", **options)
    )


def calls(module: Module) -> int:
    return module.source.count("  multiply(")


@pytest.mark.parametrize("t", ["f16", "bf16"])
def test_a_library_call_computes_what_the_op_does(t):
    module = compare(LAYER.format(t=t), OPTIONS, size=37, rtol=2e-2, atol=2e-2)
    assert "multiply(x_device, w, y)" in module.source
    assert "multiply(g_device, transposed, d)" in module.source
    assert "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False" in (
        module.source
    )
    assert calls(module) == 2


CONVOLUTION = """graph main {
  feed x: f16[4, 4, 4, 16]
  feed g: f16[4, 4, 4, 32]
  param w: f16[32, 16, 1, 1]
  (Output=y: f16[4, 4, 4, 32]) = conv2d(Input=x, Filter=w) {'data_format': 'NHWC'}
  (Input@GRAD=dx: f16[4, 4, 4, 16], Filter@GRAD=dw: f16[32, 16, 1, 1]) = \
conv2d_grad(Output@GRAD=g, Input=x, Filter=w) {'data_format': 'NHWC'}
  return y, dx, dw
}
"""


def test_convolutions_of_one_tap_are_products():
    forms = ("NT 1 64 32 16", "NN 1 64 16 32", "TN 1 32 16 64")
    tiles = "".join(f"half {form} 32x32x32 2 4 1 9 4\n" for form in forms)
    module = compare(CONVOLUTION, Options(gpu="cuda:75", tiles=tiles), rtol=2e-2, atol=2e-2)
    assert calls(module) == 3


def test_products_without_measured_times_are_kernels():
    assert calls(compiled(tiles=TILES).module) == 2
    assert calls(compiled(tiles=TILES, libraries=False).module) == 0
    assert calls(compiled("f32", tiles=TILES).module) == 0
    assert calls(compiled(tiles=TILES.replace(" 4\n", " -\n")).module) == 0
    assert calls(compiled(tiles=TILES.replace("9 4", "9 8.9")).module) == 0
    assert "def multiply" not in compiled().module.source
    assert not Options.from_env({"FLUID_LIBRARIES": "0"}).libraries


def test_an_epilogue_stays_where_its_bytes_take_longer_than_the_library_saves():
    slow = compiled(tiles=TILES.replace("2.0 2.0 2", "0.5 0.5 2"))
    assert calls(slow.module) == 1
    reasons = [note.reason for note in slow.context.missed if note.name == "call_libraries"]
    assert sorted(reason.partition("cuBLAS ")[2] for reason in reasons) == [
        "4.0 and other kernels 10.2 for the rest", "4.0 and other kernels 12.2 for the rest",
    ]  # fmt: skip
    assert calls(compiled(tiles=TILES.replace("memory 2.0 2.0 2\n", "")).module) == 1


def test_a_graph_contains_calls_of_a_library():
    with lowered({MIN_LAUNCHES.name: 1}):
        source = compiled(tiles=TILES).module.source
    assert " = graph(library=True)\n" in source and " = graph()\n" not in source


def test_a_library_call_counts_as_a_launch_with_its_bytes_and_operations():
    sizes = {"N": 64}
    library, kernels = (account(compiled(tiles=tiles).plan, sizes).total() for tiles in (TILES, ""))
    assert library.products == kernels.products == 3 * 2 * 64 * 32 * 16
    assert library.moved > kernels.moved
