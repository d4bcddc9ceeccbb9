"""Fused groups of pointwise ops: broadcast, several results, casts; and gradients of each op."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import runtime
from compiler.interpret import run
from compiler.ir.text.printer import parse
from tests.codegen.families.support import BATCHES, SEEDS, assert_matches_reference, drawn, shapes
from tests.codegen.test_triton import module_of
from tests.ops.samples import Sample, integers, numbers

pytestmark = pytest.mark.device

UNARY = ["relu", "tanh", "sigmoid", "square", "abs", "softplus", "gelu", "exp"]
BINARY = ["elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_max"]
MIXED = [*BINARY, "elementwise_min", "elementwise_div"]


@st.composite
def chains(draw):
    """Draw a graph of pointwise ops over one shape and what broadcasts to it, of any batch."""
    rest = draw(shapes(1, 3))
    sides = [draw(st.booleans()) for _ in rest]
    small = ", ".join(str(n if kept else 1) for n, kept in zip(rest, sides, strict=True))
    whole = ", ".join(map(str, ["N", *rest]))
    lines, last = [f"feed x: f32[{whole}]", f"feed y: f32[{small}]"], "x"
    for i in range(draw(st.integers(1, 7))):
        created = f"v{i}"
        if draw(st.booleans()):
            lines.append(
                f"(Out={created}: f32[{whole}]) = {draw(st.sampled_from(UNARY))}(X={last})"
            )
        else:
            other = draw(st.sampled_from(["x", "y", last]))
            op = draw(st.sampled_from(BINARY))
            lines.append(f"(Out={created}: f32[{whole}]) = {op}(X={last}, Y={other})")
        last = created
        if draw(st.integers(0, 3)) == 0:
            double, back = f"d{i}", f"b{i}"
            lines.append(
                f"(Out={double}: f64[{whole}]) = cast(X={last}) {{'in_dtype': 5, 'out_dtype': 6}}"
            )
            lines.append(
                f"(Out={back}: f32[{whole}]) = cast(X={double}) {{'in_dtype': 6, 'out_dtype': 5}}"
            )
            last = back
    results = dict.fromkeys([last, "v0"])
    return "graph main {\n  " + "\n  ".join(lines) + f"\n  return {', '.join(results)}\n}}\n"


@drawn(16)
@given(chains(), st.lists(st.integers(1, 70), min_size=1, max_size=2))
def test_a_group_serves_any_batch(text, sizes):
    module = module_of(text)
    compute = runtime.load(module, runtime.CUDAPlace(0))
    for size in sizes:
        feed = {}
        for i, var in enumerate(parse(text).feeds()):
            feed[var.name] = numbers(*var.type.at({"N": size}), low=-0.9, high=0.9, seed=i)
        with np.errstate(over="ignore", invalid="ignore"):
            wants = run(parse(text), feed, {})
        for found, want in zip(compute(feed), wants, strict=True):
            np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-5)


@drawn(14)
@given(st.data(), shapes(1, 4), BATCHES, SEEDS)
def test_two_operands_and_their_gradients(data, shape, batch, seed):
    shape = (batch, *shape[1:])
    start = data.draw(st.integers(0, len(shape) - 1))
    stop = data.draw(st.integers(start + 1, len(shape)))
    kept = [n if data.draw(st.booleans()) else 1 for n in shape[start:stop]]
    axis = -1 if stop == len(shape) else start
    inputs = {
        "X": numbers(*shape, low=0.5, high=2, seed=seed),
        "Y": numbers(*kept, low=0.6, high=1.9, seed=seed + 1),
    }
    op = data.draw(st.sampled_from(MIXED))
    assert_matches_reference(Sample(op, inputs, {"axis": axis}, ("X", "Y")), batch=batch, loosely=5)


@drawn(10)
@given(st.data(), shapes(1, 3), st.sampled_from(["float16", "float64", "int32", "int64"]))
def test_other_element_types(data, shape, dtype):
    pair = {"X": integers(*shape, high=30), "Y": integers(*shape, low=1, high=9, seed=1)}
    op = data.draw(st.sampled_from([*BINARY, "elementwise_min", "less_than", "equal"]))
    assert_matches_reference(
        Sample(op, {slot: value.astype(dtype) for slot, value in pair.items()})
    )


@drawn(7)
@given(st.sampled_from(UNARY), shapes(1, 3), BATCHES, SEEDS)
def test_activations_and_their_gradients(op, shape, batch, seed):
    x = numbers(batch, *shape, low=-3, high=3, seed=seed)
    assert_matches_reference(Sample(op, {"X": x}, {}, ("X",)), batch=batch)


@drawn(6)
@given(st.integers(1, 6), shapes(1, 3), BATCHES)
def test_sums_of_many(count, shape, batch):
    terms = [numbers(batch, *shape, seed=i) for i in range(count)]
    assert_matches_reference(Sample("sum", {"X": terms}, {}, ("X",)), batch=batch)
