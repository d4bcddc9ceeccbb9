"""Samples of matrix products: flattened operands, stacks, transposes, single axes."""

from tests.ops.samples import Sample, numbers

BOTH = ("X", "Y")


def product(op, x, y, **attrs):
    """Return a sample for operands of two shapes."""
    return Sample(op, {"X": numbers(*x), "Y": numbers(*y, seed=1)}, attrs, BOTH)


SAMPLES = [
    product("mul", (5, 3), (3, 2)),
    product("mul", (4, 2, 3), (6, 5)),
    product("mul", (2, 3, 4), (2, 2, 3, 2), x_num_col_dims=2, y_num_col_dims=2),
    product("matmul", (3, 4), (4, 5)),
    product("matmul", (3, 4), (5, 4), transpose_Y=True, alpha=0.5),
    product("matmul", (4, 3), (5, 4), transpose_X=True, transpose_Y=True),
    product("matmul", (2, 3, 4), (2, 4, 5), alpha=-2.0),
    product("matmul", (2, 4, 3), (2, 4, 5), transpose_X=True),
    product("matmul", (2, 3, 4), (2, 5, 4), transpose_Y=True),
    product("matmul", (2, 3, 4), (4, 5)),
    product("matmul", (2, 4, 3), (4, 5), transpose_X=True),
    product("matmul", (3, 4), (2, 4, 5)),
    product("matmul", (2, 3, 2, 4), (2, 3, 4, 5)),
    product("matmul", (4,), (4,)),
    product("matmul", (4,), (4, 3)),
    product("matmul", (2, 3, 4), (4,)),
    product("matmul", (4,), (2, 4, 3)),
    product("matmul", (4,), (5,), transpose_X=True, transpose_Y=True),
    product("bmm", (2, 3, 4), (2, 4, 5)),
    product("matmul_v2", (3, 4), (4, 5)),
    product("matmul_v2", (4, 3), (5, 4), trans_x=True, trans_y=True),
    product("matmul_v2", (2, 3, 4), (2, 5, 4), trans_y=True),
    product("matmul_v2", (2, 3, 4), (4, 5)),
    product("matmul_v2", (3, 4), (2, 4, 5)),
    product("matmul_v2", (2, 3, 5, 4), (2, 3, 4, 2)),
    product("matmul_v2", (2, 1, 3, 4), (5, 4, 2)),
    product("matmul_v2", (5, 4, 3), (2, 1, 4, 2), trans_x=True),
    product("matmul_v2", (4,), (4,)),
    product("matmul_v2", (4,), (4,), trans_x=True, trans_y=True),
    product("matmul_v2", (4,), (2, 4, 3)),
    product("matmul_v2", (2, 3, 4), (4,)),
]
