"""Attention as one kernel: its numbers, and what a GPU's assembler says of it."""

import numpy as np
import pytest

import runtime
from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import gpus
from compiler.driver import compile_graph
from compiler.interpret import run
from compiler.ir.text.printer import parse
from compiler.options import Options

ATTENTION = """graph main {{
  feed q: {dtype}[N, {queries}, 2, {width}]
  feed k: {dtype}[N, {keys}, 2, {width}]
  feed v: {dtype}[N, {keys}, 2, {columns}]
  feed m: {mask}
  (Out=o: {dtype}[N, {queries}, 2, {columns}]) = scaled_dot_product_attention(Q=q, K=k, V=v, Mask=m) \
{{'scale': 0.25, 'factor': 0.5, 'q_axes': [0, 2, 1, 3], 'k_axes': [0, 2, 1, 3], 'v_axes': [0, 2, 1, 3], \
'out_axes': [0, 2, 1, 3]}}
  return o
}}
"""


def module_of(text, **options):
    """The module of a graph's text for the device."""
    return compile_graph(parse(text), target="triton", options=Options(**options)).module


def drawn(text, sizes):
    """A graph, and feeds for it: parts of the mask are -1e4, one row is -inf."""
    graph, random = parse(text), np.random.RandomState(0)
    feeds = {}
    for var in graph.feeds():
        shape = tuple(
            size if isinstance(size, int) else sizes[str(size)] for size in var.type.shape
        )
        feeds[var.name] = random.randn(*shape).astype(var.type.dtype.numpy)
    feeds["m"][..., 1::3] = -1e4
    feeds["m"][-1, 0, 0] = -np.inf
    return graph, feeds


@pytest.mark.device
@pytest.mark.parametrize(
    ("dtype", "queries", "keys", "width", "columns", "mask"),
    [
        ("bf16", 70, 130, 8, 24, "bf16[N, 1, 1, 130]"),
        ("f16", 64, 128, 16, 16, "f32[N, 2, 64, 128]"),
        ("bf16", "T", "S", 40, 16, "f32[N, 1, T, S]"),
        ("f16", 3, 1, 128, 100, "f16[N, 1, 3, 1]"),
        ("bf16", 5, 4, 16, 16, "bf16[N, 1, 1, 1]"),
    ],
)  # fmt: skip
def test_attention_has_the_numbers_of_its_definition(dtype, queries, keys, width, columns, mask):
    sizes = {"queries": queries, "keys": keys, "width": width, "columns": columns}
    graph, feeds = drawn(
        ATTENTION.format(dtype=dtype, mask=mask, **sizes), {"N": 2, "T": 67, "S": 65}
    )
    module = module_of(ATTENTION.format(dtype=dtype, mask=mask, **sizes))
    assert len(module.kernels) == 1
    with np.errstate(invalid="ignore"):
        (want,) = run(graph, feeds, {})
        (got,) = runtime.load(module, runtime.CUDAPlace(0))(feeds)
    far = 1e-2 if dtype == "bf16" else 2e-3
    np.testing.assert_allclose(got.astype(float), want.astype(float), far, far)


@pytest.mark.device
@pytest.mark.parametrize(
    ("queries", "keys", "width", "columns", "mask"),
    [
        (70, 66, 8, 24, "f32[N, 1, 1, 66]"),
        (64, 32, 64, 16, "f32[N, 2, 64, 32]"),
        ("T", "S", 40, 64, "f32[N, 1, T, S]"),
    ],
)
def test_float32_attention_is_more_accurate_than_float32(queries, keys, width, columns, mask):
    sizes = {"queries": queries, "keys": keys, "width": width, "columns": columns}
    text = ATTENTION.format(dtype="f32", mask=mask, **sizes)
    _, feeds = drawn(text, {"N": 2, "T": 67, "S": 33})
    module = module_of(text, gpu="cuda:90")
    assert len(module.kernels) == 1
    exact = parse(text.replace("f32", "f64"))
    with np.errstate(invalid="ignore"):
        (want,) = run(exact, {name: array.astype(np.float64) for name, array in feeds.items()}, {})
        (got,) = runtime.load(module, runtime.CUDAPlace(0))(feeds)
    np.testing.assert_allclose(got, want, 0, 2e-6 * np.nanmax(abs(want)))


def test_float32_attention_without_tensor_cores_or_of_wide_queries_stores_scores():
    sizes = {"queries": 8, "keys": 8, "columns": 16, "mask": "f32[N, 1, 1, 8]", "dtype": "f32"}
    wide = ATTENTION.format(width=80, **sizes)
    assert len(module_of(wide, gpu="cuda:90").kernels) > 1
    narrow = ATTENTION.format(width=16, **sizes)
    assert len(module_of(narrow, gpu="cuda:89").kernels) > 1
    assert len(module_of(narrow, gpu="cuda:90", exact_products=True).kernels) > 1
    assert len(module_of(narrow, gpu="cuda:90", tf32=True).kernels) > 1


@pytest.mark.parametrize(("dtype", "gpu"), [("bf16", 90), ("f32", 80), ("f32", 90)])
def test_no_kernel_of_attention_spills(tmp_path, dtype, gpu):
    """The loop of the largest tile, whose mask is a row: as a tile of a row it took 900 bytes."""
    pytest.importorskip("triton")
    sizes = {"queries": 256, "keys": 256, "width": 64, "columns": 64}
    text = ATTENTION.format(dtype=dtype, mask=f"{dtype}[N, 1, 1, 256]", **sizes)
    module = module_of(text, gpu=f"cuda:{gpu}")
    ((built,),) = build([module], gpus(f"cuda:{gpu}"), tmp_path, 0, processes=1)
    assert built.code.spilled == 0 and built.code.registers <= (255 if gpu == 80 else 168)
