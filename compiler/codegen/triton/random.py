"""Random numbers in kernels, from a key in memory and the place of an element: `compiler.ir.philox`
word for word.

Each element draws its own number wherever it is needed. Kernels that visit elements in order
draw four at a time, a block for each four of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.trace import Expr, Term
from compiler.codegen.triton.kernel_ir import KernelBody
from compiler.ir.dims import Size
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
    """Float32 numbers that are even over 0 <= number < 1, of 24 bits of a word each."""
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08

def uniform(key, stream, i):
    """The number of element i, even over 0 <= number < 1."""
    a, b, c, d = philox_block(key, stream, i >> 2)
    at = i & 3
    return even_floats(tl.where(at < 2, tl.where(at == 0, a, b), tl.where(at == 2, c, d)))

def uniform_lanes(key, stream, start, COUNT: tl.constexpr):
    """Those of COUNT elements in order from a start that four divides."""
    a, b, c, d = philox_block(key, stream, start // 4 + tl.arange(0, COUNT // 4))
    return tl.reshape(even_floats(tl.join(tl.join(a, c), tl.join(b, d))), (COUNT,))

def uniform_tile(key, stream, row, j, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Those of a tile: rows begin at `row` [ROWS, 1], which four divides, and j [1, COLUMNS]
    counts on from a number that four divides."""
    quarters = tl.min(tl.reshape(j, (COLUMNS // 4, 4)), 1) >> 2
    a, b, c, d = philox_block(key, stream, (row >> 2) + quarters[None, :])
    return tl.reshape(even_floats(tl.join(tl.join(a, c), tl.join(b, d))), (ROWS, COLUMNS))

def pair_of_words(key, stream, i):
    """The two words that element i has where each has two: the lower one first."""
    a, b, c, d = philox_block(key, stream, i >> 1)
    odd = (i & 1) == 1
    return tl.where(odd, c, a).to(tl.uint64), tl.where(odd, d, b).to(tl.uint64)

def uniform_fine(key, stream, i):
    """The number of element i in float64, of 53 bits."""
    low, high = pair_of_words(key, stream, i)
    return (((high << 32) | low) >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16

def below(key, stream, i, span):
    """The whole number of element i, even over 0 <= number < span: of 64 bits times the span."""
    low, high = pair_of_words(key, stream, i)
    whole = low * 0 + span
    first = whole & 0xFFFFFFFF
    second = whole >> 32
    middle = high * first + ((low * first) >> 32)
    other = low * second + (middle & 0xFFFFFFFF)
    return (high * second + (middle >> 32) + (other >> 32)).to(tl.int64)

def normal(key, stream, i):
    """The number of element i, normal with mean 0 and deviation 1, by Box and Muller."""
    near, around = normal_words(key, stream, i)
    return on_circle(near.to(tl.float32), around.to(tl.float32), i)

def normal_fine(key, stream, i):
    """The same in float64."""
    near, around = normal_words(key, stream, i)
    return on_circle(near.to(tl.float64), around.to(tl.float64), i)

def normal_words(key, stream, i):
    """The two words that elements 2n and 2n + 1 have together."""
    a, b, c, d = philox_block(key, stream, i >> 2)
    behind = (i & 2) == 2
    return tl.where(behind, c, a), tl.where(behind, d, b)

def on_circle(near, around, i):
    """One of the two normal numbers that two words give."""
    far = tl.sqrt(-2.0 * tl.log(near * 2.3283064365386963e-10 + 1.1641532182693481e-10))
    turns = around * 2.3283064365386963e-10
    return far * cosine_of_turns(tl.where((i & 1) == 1, turns - 0.25, turns))

def cosine_of_turns(turns):
    """The cosine of full turns: the sine of what is left to a quarter, an odd polynomial."""
    left = 0.25 - tl.abs(turns - tl.floor(turns + 0.5))
    s = left * left
    slope = s * (s * (s * -14.3941354073 + 42.0098057339) - 76.7042813219) + 81.6052262063
    return left * (s * (s * slope - 41.341702117) + 6.28318530707)
'''

DRAWN = frozenset({"uniform", "normal", "below"})
"""What kernels draw; each has a helper of its name, and `_fine` behind it for float64."""


def keys_from(keys: NumpyOperand, place: int) -> NumpyOperand:
    """A tensor of keys from a place on. Kernels read the first, so that one serves all places."""
    if place == 0:
        return keys
    view = f"{keys}.view(-1)[{place}:]"
    name = keys.frame.keep(view, keys.steady, keys.storage[0], f"{keys}_at")
    offset = keys.region.offset + place * keys.type.dtype.itemsize
    storage = (*keys.storage[:2], replace(keys.region, offset=offset))
    return replace(keys, name=name, storage=storage)


def said(
    lanes: KernelBody,
    part: Expr,
    keys: NumpyOperand,
    sizes: Sequence[Size],
    indices: Sequence[Term],
) -> Expr:
    """A number by key of an expression over shapes, as this lane's own."""
    key = lanes.key(keys_from(keys, cast(int, part.extra)))
    return lanes.uniform(key, lanes.ravel(indices, sizes))


def drawn(part: Expr, args: Sequence[str], in_order: bool) -> tuple[str, str]:
    """The helper that draws, and its call; `in_order` where lanes stand for elements as they lie.

    `args` are the key, the place of the element, and for `below` the span.
    """
    key, index, *rest = args
    stream = str(part.extra)
    if in_order and part.fn == "uniform" and part.dtype is DType.FP32:
        given = (key, stream, "tl.program_id(0).to(INDEX) * LANES", "LANES")
        return "uniform_lanes", f"uniform_lanes({', '.join(given)})"
    helper = part.fn + ("_fine" if part.dtype is DType.FP64 else "")
    return helper, f"{helper}({', '.join((key, stream, index, *rest))})"
