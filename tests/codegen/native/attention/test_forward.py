"""Attention of native code equals its definition in float64, for odd sizes and every mask."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.native.attention.forward import attention
from compiler.codegen.native.llvm_ir import F32, F64, Type
from compiler.codegen.native.machine import AVX512, Machine
from compiler.codegen.native.products.axes import contiguous
from compiler.ir.dims import Dim, Size, evaluate
from compiler.ir.philox import uniform_by_key
from compiler.support.thresholds import all_thresholds, lowered
from tests.codegen.native.support import run_checked_steps, run_steps
from tests.support.compiled_kernels import on_machines

N, H, T, S = (Dim.named(name) for name in "NHTS")
VALUES = {"N": 2, "H": 3, "T": 21, "S": 13}


def described(
    stack: tuple[Size, Size], queries: Size, keys: Size, widths: tuple[int, int], mask: str = ""
) -> Attention:
    """Attention of q, k, v and out [batch, tokens, heads, width]; `mask` names what repeats it."""
    batch, heads = stack

    def by_token(tokens: Size, width: int) -> tuple[Size, ...]:
        outer, row, head, column = contiguous((batch, tokens, heads, width))
        return outer, head, row, column

    masks = {
        "": (), "key": (keys, 0, 0, 1), "rows": (queries * keys, 0, keys, 1),
        "heads": contiguous((batch, heads, queries, keys)), "query": (queries, 0, 1, 0),
    }  # fmt: skip
    width, columns = widths
    strides = (by_token(queries, width), by_token(keys, width), by_token(keys, columns))
    out = by_token(queries, columns)
    return Attention(stack, queries, keys, width, columns, *strides, out, masks[mask], 0.3, 0.7)


def drawn(spec: Attention, element: Type, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays for the operands, whose sizes are known."""
    random, dtype = np.random.RandomState(seed), {4: np.float32, 8: np.float64}[element.nbytes]
    (n, h), t, s = spec.stack, spec.queries, spec.keys
    shapes = {
        "q": (n, t, h, spec.width), "k": (n, s, h, spec.width), "v": (n, s, h, spec.value_width),
        "out": (n, t, h, spec.value_width),
    }  # fmt: skip
    if spec.mask:
        steps = zip((n, h, t, s), spec.mask, strict=True)
        shapes["mask"] = tuple(1 if stride == 0 else size for size, stride in steps)
    arrays = {name: random.randn(*shape).astype(dtype) for name, shape in shapes.items()}
    return arrays | ({"rng": np.array([2**40 + 5, 0])} if spec.dropout else {})


def kept(spec: Attention, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which weights remain, as the op `dropout_by_key` draws it."""
    shape = (*spec.stack, spec.queries, spec.keys)
    return uniform_by_key(arrays["rng"], 0, shape) >= np.float32(spec.dropout)


def defined(spec: Attention, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The definition, in float64."""
    q, k, v = (arrays[name].astype(np.float64).swapaxes(1, 2) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) * spec.scale + arrays.get("mask", 0)
    with np.errstate(invalid="ignore"):
        powers = np.exp(np.maximum(scores - scores.max(-1, keepdims=True), -64.0))
        weights = powers / powers.sum(-1, keepdims=True)
        weights = weights * kept(spec, arrays) if spec.dropout else weights
        return (spec.factor * weights @ v).swapaxes(1, 2)


def known(spec: Attention) -> Attention:
    """The attention with numbers for open sizes."""
    number = lambda sizes: tuple(evaluate(size, VALUES) for size in sizes)  # noqa: E731
    names = ("stack", "q", "k", "v", "out", "mask")
    stack, *strides = (number(getattr(spec, name)) for name in names)
    queries, keys = number((spec.queries, spec.keys))
    return replace(
        spec, queries=queries, keys=keys, **dict(zip(names, (stack, *strides), strict=True))
    )


CASES = [
    described((1, 2), 5, 3, (4, 7), "key"),
    described((2, 1), 33, 20, (9, 16), "rows"),
    described((1, 3), 64, 17, (16, 40)),
    described((2, 2), 1, 1, (1, 1), "heads"),
    described((1, 1), 40, 7, (8, 8), "query"),
    described((N, 2), 21, 13, (8, 5), "key"),
    described((N, H), T, S, (5, 12), "heads"),
    described((N, H), T, T, (5, 12), "rows"),
    replace(described((2, 1), 33, 20, (9, 16), "key"), dropout=0.3),
    replace(described((N, H), T, S, (5, 12)), dropout=0.5),
]
"""Blocks that are full and not, sizes of 1 and open ones, a mask for each way to repeat it."""


def expect_definition(machine: Machine, element: Type, spec: Attention) -> None:
    arrays = drawn(known(spec), element)
    steps = attention(machine, element, spec)
    results = run_steps(steps, machine, arrays, VALUES, shares=(30, 70))["out"]
    far = 1e-5 if element is F32 else 1e-13
    np.testing.assert_allclose(results, defined(known(spec), arrays), far, far)


@on_machines
@pytest.mark.parametrize("spec", CASES, ids=range(len(CASES)))
def test_attention_equals_its_definition(machine: Machine, spec: Attention) -> None:
    expect_definition(machine, F32, spec)


def test_attention_in_float64_and_beyond_every_threshold() -> None:
    expect_definition(AVX512, F64, CASES[1])
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        for spec in (CASES[1], CASES[-4], CASES[-1]):
            expect_definition(AVX512, F32, spec)


def test_attention_stays_within_its_arrays() -> None:
    for spec in (CASES[1], CASES[-4], CASES[-1]):
        arrays = drawn(known(spec), F32)
        results = run_checked_steps(attention(AVX512, F32, spec), AVX512, arrays, VALUES)["out"]
        np.testing.assert_allclose(results, defined(known(spec), arrays), 1e-5, 1e-5)


@pytest.mark.parametrize("masked", [-1e4, -1e9, -np.inf, np.inf, np.nan])
def test_attention_masks_as_softmax_does(masked: float) -> None:
    """A row that is all masked, rows that are partly, and numbers that are not finite."""
    spec = described((1, 1), 4, 6, (4, 3), "rows")
    arrays = drawn(spec, F32)
    arrays["mask"][0, 0, 1, :] = masked
    arrays["mask"][0, 0, 2, 3:] = masked
    arrays["k"][0, 5, 0, 0], arrays["v"][0, 2, 0, 1] = 300.0, np.inf
    results = run_steps(attention(AVX512, F32, spec), AVX512, arrays)["out"]
    np.testing.assert_allclose(results, defined(spec, arrays), 1e-5, 1e-5)
