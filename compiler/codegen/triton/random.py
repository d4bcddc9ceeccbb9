"""Random numbers in kernels, from a key in memory and an element's index, equal to those of
`compiler.ir.philox`.

Each element's number is computed wherever it is needed. Kernels that visit elements in order
generate one Philox block for every four of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.trace import Expr
from compiler.ir.types import DType

SOURCES = '''
def philox(key, a, b, c, d):
    """Philox 4x32-10: four words of a key of 64 bits and the four words of a counter."""
    first = (key & 0xFFFFFFFF).to(tl.uint32)
    second = ((key >> 32) & 0xFFFFFFFF).to(tl.uint32)
    for _ in tl.static_range(10):
        left = a.to(tl.uint64) * 0xD2511F53
        right = c.to(tl.uint64) * 0xCD9E8D57
        a = (right >> 32).to(tl.uint32) ^ b ^ first
        c = (left >> 32).to(tl.uint32) ^ d ^ second
        b = right.to(tl.uint32)
        d = left.to(tl.uint32)
        first = first + 0x9E3779B9
        second = second + 0xBB67AE85
    return a, b, c, d

def philox_block(key, stream, block):
    """The four words of a block of a stream."""
    low = block.to(tl.uint32)
    high = (block.to(tl.uint64) >> 32).to(tl.uint32)
    return philox(key, low, high, low * 0 + stream, low * 0)

def even_floats(word):
    """Uniform float32 numbers in [0, 1), of 24 bits of a word each."""
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08

def uniform(key, stream, i):
    """The number of element i, uniform in [0, 1)."""
    a, b, c, d = philox_block(key, stream, i >> 2)
    at = i & 3
    return even_floats(tl.where(at < 2, tl.where(at == 0, a, b), tl.where(at == 2, c, d)))

def uniform_lanes(key, stream, start, COUNT: tl.constexpr):
    """Those of COUNT consecutive elements from a multiple of four."""
    a, b, c, d = philox_block(key, stream, start // 4 + tl.arange(0, COUNT // 4))
    return tl.reshape(even_floats(tl.join(tl.join(a, c), tl.join(b, d))), (COUNT,))

def uniform_tile(key, stream, row, j, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Those of a tile: row offsets `row` [ROWS, 1] are multiples of four, and j [1, COLUMNS]
    counts up from a multiple of four."""
    quarters = tl.min(tl.reshape(j, (COLUMNS // 4, 4)), 1) >> 2
    a, b, c, d = philox_block(key, stream, (row >> 2) + quarters[None, :])
    return tl.reshape(even_floats(tl.join(tl.join(a, c), tl.join(b, d))), (ROWS, COLUMNS))

def pair_of_words(key, stream, i):
    """The two words of element i, low word first."""
    a, b, c, d = philox_block(key, stream, i >> 1)
    odd = (i & 1) == 1
    return tl.where(odd, c, a).to(tl.uint64), tl.where(odd, d, b).to(tl.uint64)

def uniform_fine(key, stream, i):
    """The float64 number of element i, uniform in [0, 1), of 53 bits."""
    low, high = pair_of_words(key, stream, i)
    return (((high << 32) | low) >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16

def below(key, stream, i, span):
    """The integer of element i, uniform in [0, span): the high half of 64 bits times the span."""
    low, high = pair_of_words(key, stream, i)
    whole = low * 0 + span
    first = whole & 0xFFFFFFFF
    second = whole >> 32
    middle = high * first + ((low * first) >> 32)
    other = low * second + (middle & 0xFFFFFFFF)
    return (high * second + (middle >> 32) + (other >> 32)).to(tl.int64)

def normal(key, stream, i):
    """The number of element i, standard normal, by Box-Muller."""
    near, around = normal_words(key, stream, i)
    return on_circle(near.to(tl.float32), around.to(tl.float32), i)

def normal_fine(key, stream, i):
    """The same in float64."""
    near, around = normal_words(key, stream, i)
    return on_circle(near.to(tl.float64), around.to(tl.float64), i)

def normal_words(key, stream, i):
    """The two words that elements 2n and 2n + 1 share."""
    a, b, c, d = philox_block(key, stream, i >> 2)
    behind = (i & 2) == 2
    return tl.where(behind, c, a), tl.where(behind, d, b)

def on_circle(near, around, i):
    """One of the two normal numbers computed from two words."""
    far = tl.sqrt(-2.0 * tl.log(near * 2.3283064365386963e-10 + 1.1641532182693481e-10))
    turns = around * 2.3283064365386963e-10
    return far * cos_2pi(tl.where((i & 1) == 1, turns - 0.25, turns))

def cos_2pi(turns):
    """cos(2 pi * turns), as the sine of the distance to a quarter period, an odd polynomial."""
    left = 0.25 - tl.abs(turns - tl.floor(turns + 0.5))
    s = left * left
    slope = s * (s * (s * -14.3941354073 + 42.0098057339) - 76.7042813219) + 81.6052262063
    return left * (s * (s * slope - 41.341702117) + 6.28318530707)
'''

DRAWS = frozenset({"uniform", "normal", "below"})
"""Random functions of kernels; each names its helper, with suffix `_fine` for float64.
"""


def draw_call(part: Expr, args: Sequence[str], in_order: bool) -> tuple[str, str]:
    """The helper that draws, and its call; `in_order` if a program's elements are consecutive.

    `args` are the key, the element's index, and for `below` the span.
    """
    key, index, *rest = args
    stream = str(part.extra)
    if in_order and part.fn == "uniform" and part.dtype is DType.FP32:
        arguments = (key, stream, "tl.program_id(0).to(INDEX) * LANES", "LANES")
        return "uniform_lanes", f"uniform_lanes({', '.join(arguments)})"
    helper = part.fn + ("_fine" if part.dtype is DType.FP64 else "")
    return helper, f"{helper}({', '.join((key, stream, index, *rest))})"
