"""Samples of products that are made head by head: `matmul` with a `head_number`, in a graph."""

from tests.ops.samples import Sample, numbers

TWO = {"head_number": 2}
SHAPES = [((3, 4), (4, 5)), ((3, 4), (2, 6)), ((2, 3, 4), (4, 5))]
GIVEN = {"X": numbers(3, 4), "Y": numbers(4, 5, seed=1), "Out@GRAD": numbers(3, 10, seed=2)}

SAMPLES = [
    *(Sample("matmul_heads", {"X": numbers(*x), "Y": numbers(*y, seed=1)}, TWO) for x, y in SHAPES),
    Sample("matmul_heads_grad", GIVEN, TWO),
]
