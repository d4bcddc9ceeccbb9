"""`paddle.complex`: layers of complex variables in eager mode."""

from . import tensor
from .tensor import (
    elementwise_add,
    elementwise_div,
    elementwise_mul,
    elementwise_sub,
    kron,
    matmul,
    reshape,
    trace,
    transpose,
)
from .tensor import sum as sum

__all__ = [
    "elementwise_add", "elementwise_div", "elementwise_mul", "elementwise_sub", "kron", "matmul",
    "reshape", "sum", "tensor", "trace", "transpose",
]  # fmt: skip
