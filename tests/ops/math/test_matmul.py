"""What is special about matrix products: shapes, missed, and how little code a step runs."""

import re

import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

N = Dim.named("N")


def f32(*shape):
    return TensorType(DType.FP32, shape)


def infer(kind, x, y, **attrs):
    return find(kind)(attrs).infer_types({"X": f32(*x), "Y": f32(*y)})["Out"].shape


@pytest.mark.parametrize(
    ("x", "y", "attrs", "out"),
    [
        ((N, 13), (13, 1), {}, (N, 1)),
        ((N, 6, 2, 2), (24, 10), {}, (N, 10)),
        ((N, 7, 5), (5, 3), {"x_num_col_dims": 2}, (N, 7, 3)),
        ((UNKNOWN, 13), (13, 1), {}, (UNKNOWN, 1)),
        ((2, UNKNOWN, 4), (12, 3), {}, (2, 3)),
        ((2, 3), (3, 4, 5), {}, (2, 4, 5)),
    ],
)
def test_mul_flattens(x, y, attrs, out):
    assert infer("mul", x, y, **attrs) == out


@pytest.mark.parametrize(
    ("x", "y", "attrs", "out"),
    [
        ((N, 3, 4), (N, 4, 5), {}, (N, 3, 5)),
        ((N, 2, 3, 4), (N, 2, 5, 4), {"transpose_Y": True}, (N, 2, 3, 5)),
        ((N, 3, 4), (4, 5), {}, (N, 3, 5)),
        ((4,), (4,), {}, (1,)),
        ((N, 3, 4), (4,), {}, (N, 3)),
        ((2, 3, 3, 4), (6, 4, 5), {}, (2, 3, 3, 5)),
        ((UNKNOWN, UNKNOWN), (4, 5), {}, (UNKNOWN, 5)),
    ],
)
def test_matmul_keeps_stacks(x, y, attrs, out):
    assert infer("matmul", x, y, **attrs) == out


@pytest.mark.parametrize(
    ("kind", "x", "y", "attrs"),
    [
        ("mul", (3, 4), (5, 2), {}),
        ("mul", (3,), (3, 2), {}),
        ("mul", (3, 4), (4, 2), {"x_num_col_dims": 2}),
        ("matmul", (3, 4), (3, 4), {}),
        ("matmul", (1, 3, 4), (2, 4, 5), {}),
        ("matmul", (4,), (4,), {"transpose_X": True}),
    ],
)
def test_operands_that_do_not_fit_are_both_named(kind, x, y, attrs):
    both = f"X {f32(*x)} and Y {f32(*y)}"
    with pytest.raises(ShapeError, match=re.escape(both)):
        infer(kind, x, y, **attrs)


def test_fusions_of_the_reference_are_rejected():
    with pytest.raises(BadAttribute, match="fused_"):
        infer("matmul", (3, 4), (4, 5), fused_reshape_Out=[1])


def test_a_stack_before_one_matrix_is_one_tall_matrix():
    views = find("matmul")({}).views((N, 3, 4), (4, 5))
    assert views == {"X": (3 * N, 4), "Y": (4, 5), "Out": (3 * N, 5)}
