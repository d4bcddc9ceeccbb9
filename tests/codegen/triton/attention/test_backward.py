"""Gradients of attention in half precision: their numbers, and that their kernels spill nothing."""

import numpy as np
import pytest

import runtime
from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import gpus
from compiler.driver import compile_graph
from compiler.interpret import run
from compiler.ir.text.printer import parse
from compiler.options import Options

TRAINING = """graph main {{
  feed q: {dtype}[N, {queries}, 2, {width}]
  feed k: {dtype}[N, {keys}, 2, {width}]
  feed v: {dtype}[N, {keys}, 2, {columns}]
  feed m: {mask}
  feed rng: i64[4]
  feed do: {dtype}[N, {queries}, 2, {columns}]
  (Out=o: {dtype}[N, {queries}, 2, {columns}], Statistics=s: f32[2, N, 2, {queries}]) = \
scaled_dot_product_attention(Q=q, K=k, V=v, Mask=m, Key=rng) {attrs}
  (Q@GRAD=dq: {dtype}[N, {queries}, 2, {width}], K@GRAD=dk: {dtype}[N, {keys}, 2, {width}], \
V@GRAD=dv: {dtype}[N, {keys}, 2, {columns}]) = scaled_dot_product_attention_grad(\
Q=q, K=k, V=v, Mask=m, Key=rng, Out=o, Statistics=s, Out@GRAD=do) {attrs}
  return o, s, dq, dk, dv
}}
"""

ORDER = [0, 2, 1, 3]


def training(dtype, queries, keys, width, columns, mask, **attrs) -> str:
    """The text of an attention and its gradients, by heads of [N, tokens, 2, width]."""
    orders = {f"{name}_axes": ORDER for name in ("q", "k", "v", "out")}
    attrs = {"scale": 0.25, "factor": 0.5, "place": 2, "dropout_prob": 0.0, **orders} | attrs
    sizes = {"queries": queries, "keys": keys, "width": width, "columns": columns}
    return TRAINING.format(dtype=dtype, mask=mask, attrs=attrs, **sizes)


def module_of(text, gpu):
    """The module of a graph's text for a GPU."""
    return compile_graph(parse(text), target="triton", options=Options(gpu=gpu)).module


def drawn(text, sizes):
    """Feeds for a graph: parts of the mask are -1e4, all of the last matrices' are -1e9."""
    graph, random = parse(text), np.random.RandomState(0)
    feeds = {}
    for var in graph.feeds():
        shape = tuple(n if isinstance(n, int) else sizes[str(n)] for n in var.type.shape)
        feeds[var.name] = random.randn(*shape).astype(var.type.dtype.numpy)
    feeds["rng"] = np.array([1, 0, 2**40 + 7, 0])
    feeds["m"][..., 1::3] = -1e4
    feeds["m"][-1] = -1e9
    return graph, feeds


@pytest.mark.device
@pytest.mark.parametrize(
    ("text", "gpu", "kernels"),
    [
        (training("bf16", 40, 52, 8, 24, "f32[N, 1, 1, 52]", dropout_prob=0.25), "cuda:80", 2),
        (training("bf16", 70, 130, 8, 24, "bf16[N, 1, 1, 130]"), "cuda:90", 3),
        (training("f16", 40, 70, 8, 16, "f32[N, 1, 1, 70]", dropout_prob=0.5), "cuda:80", 3),
        (training("f16", "T", "S", 16, 72, "f32[N, 1, T, S]", dropout_prob=0.5), "cuda:90", 3),
        (training("f16", 130, 130, 16, 16, "f32[N, 1, 1, 130]", is_causal=True), "cuda:80", 3),
    ],
)  # fmt: skip
def test_gradients_have_the_numbers_of_their_definition(text, gpu, kernels):
    graph, feeds = drawn(text, {"N": 2, "T": 67, "S": 65})
    module = module_of(text, gpu)
    assert len(module.kernels) == kernels
    with np.errstate(invalid="ignore"):
        expected = run(graph, feeds, {})
        results = runtime.load(module, runtime.CUDAPlace(0))(feeds)
    far = 2e-2 if "bf16" in text else 4e-3
    for got, want, name in zip(results, expected, ("o", "s", "dq", "dk", "dv"), strict=True):
        want = want.astype(float)
        scale = 1.0 if name == "s" else abs(want).max()
        np.testing.assert_allclose(got.astype(float), want, far, far * scale, err_msg=name)


@pytest.mark.parametrize(
    ("gpu", "tokens", "rows", "dropout"),
    [("cuda:90", 128, 1, 0.0), ("cuda:90", 512, 1, 0.1), ("cuda:80", 128, 128, 0.1)],
)  # fmt: skip
def test_no_kernel_of_gradients_spills(tmp_path, gpu, tokens, rows, dropout):
    """One program for a matrix, and two kernels with dropout: close to all registers there are."""
    pytest.importorskip("triton")
    mask = f"bf16[N, 1, {rows}, {tokens}]"
    text = training("bf16", tokens, tokens, 64, 64, mask, dropout_prob=dropout)
    (kernels,) = build([module_of(text, gpu)], gpus(gpu), tmp_path, 0, processes=1)
    assert [built.code.spilled for built in kernels] == [0] * (3 if dropout else 2)
