"""Functions of complex variables by subject."""

from . import linalg, manipulation, math
from .linalg import matmul
from .manipulation import reshape, transpose
from .math import elementwise_add, elementwise_div, elementwise_mul, elementwise_sub, kron, trace
from .math import sum as sum

__all__ = [
    "elementwise_add", "elementwise_div", "elementwise_mul", "elementwise_sub", "kron", "linalg",
    "manipulation", "math", "matmul", "reshape", "sum", "trace", "transpose",
]  # fmt: skip
