"""Products of matrices and of stacks of matrices, transposed and broadcast."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.families.support import BATCHES, SIZES, SMALL, assert_matches_reference, drawn
from tests.codegen.test_triton import compare
from tests.ops.samples import Sample, numbers
from tests.ops.samples.matmul import product

pytestmark = pytest.mark.device

BOTH = ("X", "Y")


@drawn(12)
@given(st.data(), SIZES, SIZES, SIZES, st.booleans(), st.booleans())
def test_stacks(data, rows, inner, columns, turn_x, turn_y):
    stacks = st.sampled_from([((), ()), ((3,), (3,)), ((2, 3), (3,)), ((), (4,)), ((2, 1), (1, 3))])
    left, right = data.draw(stacks)
    x = (*left, *((inner, rows) if turn_x else (rows, inner)))
    y = (*right, *((columns, inner) if turn_y else (inner, columns)))
    assert_matches_reference(product("matmul_v2", x, y, trans_x=turn_x, trans_y=turn_y), loosely=3)


@drawn(5)
@given(st.data(), BATCHES, SIZES, SIZES, SMALL)
def test_mul_of_any_batch(data, batch, inner, columns, more):
    columns += columns == batch
    x = (batch, inner, more) if data.draw(st.booleans()) else (batch, inner * more)
    assert_matches_reference(product("mul", x, (inner * more, columns)), batch=batch, loosely=3)


@drawn(3)
@given(st.data(), BATCHES, SMALL, SIZES, SIZES)
def test_scaled_products_of_a_batch(data, batch, rows, inner, columns):
    attrs = {"transpose_Y": data.draw(st.booleans()), "alpha": 0.5}
    y = (batch, columns, inner) if attrs["transpose_Y"] else (batch, inner, columns)
    assert_matches_reference(
        product("matmul", (batch, rows, inner), y, **attrs), batch=batch, loosely=3
    )


@drawn(6)
@given(st.data(), SIZES, SIZES, SIZES)
def test_other_element_types(data, rows, inner, columns):
    dtype = data.draw(st.sampled_from(["float16", "float64"]))
    inputs = {"X": numbers(rows, inner), "Y": numbers(inner, columns, seed=1)}
    wide = {slot: value.astype(dtype) for slot, value in inputs.items()}
    assert_matches_reference(
        Sample("matmul_v2", wide, {}, BOTH if dtype == "float64" else ()), loosely=3
    )


@pytest.mark.parametrize("inner", [2048, 2112, 2559])
def test_parts_of_a_split_product_share_no_iteration(inner):
    """No tile of factors, of up to 128 iterations, crosses the end of its part."""
    text = f"""graph main {{
  feed x: f16[48, {inner}]
  param w: f16[{inner}, 32]
  (Out=y: f16[48, 32]) = mul(X=x, Y=w)
  return y
}}
"""
    module = compare(text, rtol=4e-3, atol=4e-3)
    assert "    first = " in module.source, "the product is split"
