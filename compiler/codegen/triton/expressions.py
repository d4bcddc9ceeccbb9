"""Types and names in emitted Triton code, and how often each expression is used."""

from __future__ import annotations

from collections import Counter
from typing import cast

from compiler.codegen.kernel.analysis import needed
from compiler.codegen.kernel.body import KernelBody, Source
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr, all_parts
from compiler.codegen.triton.numpy_names import POINTERS, SIZE, repeats
from compiler.ir.dims import Dim, Size, is_multiple
from compiler.support.dataclass import dataclass

HALF_FUNCTIONS = frozenset(
    "add subtract multiply negative where less less_equal greater greater_equal equal not_equal "
    "maximum minimum absolute".split()
)
"""Functions computed directly in fp16."""


@dataclass
class Loop:
    """A loop of the emitted kernel: size, iterations per tile, names of index and mask.

    `persistent` is true if one tile covers all iterations.
    """

    size: Size
    width: int
    persistent: bool
    name: str
    live: str


def name_stem(part: Expr) -> str:
    """The stem of the variable name for an expression."""
    if part.fn == "load":
        return cast(Source, part.extra).operand.name
    return {"index": "i", "index_div": "i", "index_mod": "i"}.get(part.fn, part.fn)


def pointer_type(operand: NumpyOperand) -> str:
    """The type of a pointer parameter. Buffers are aligned to 64 bytes."""
    aligned = not operand.region.is_strided and is_multiple(operand.region.offset, 16)
    return POINTERS[operand.type.dtype] + ":16" * aligned


def size_type(size: Size) -> str:
    """The type of a size parameter."""
    return SIZE + ":16" * is_multiple(size, 16)


def program_count(count: Size, width: int) -> str:
    """The number of programs of `width` elements, as text."""
    return f"-(-({count}) // {width})" if isinstance(count, Dim) else str(-(-count // width))


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()


def use_counts(kernel: KernelBody) -> Counter[Expr]:
    """Count how often the text of each expression is used: by others, by loops and by stores."""
    roots = needed(kernel)
    uses = Counter(roots)
    for part in all_parts(roots):
        for operand in part.parts():
            uses[operand] += 2 if repeats(part.fn) else 1
    return uses
