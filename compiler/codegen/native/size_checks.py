"""Sizes that a kernel takes for equal, checked when a module is bound.

Shape inference takes sizes that are not known to differ for equal. NumPy would refuse arrays that
do not fit; a kernel would read beyond them. So whatever a kernel iterates over is compared with the
axes that it indexes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from compiler.codegen.kernel.analysis import needed
from compiler.codegen.kernel.body import KernelBody, Source, number_of
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.errors import CompileError
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import Shape


@dataclass(frozen=True)
class SizeCheck:
    """An axis of an operand, and how many of its elements a kernel visits.

    With `whole`, all elements of an operand, and how many the shape has that it is read in.
    """

    operand: str
    visited: Size
    size: Size
    whole: bool = False

    @property
    def text(self) -> str:
        """What is wrong, as an f-string of the sizes."""
        what = self.operand if self.whole else f"an axis of {self.operand}"
        return f"{what} has {{{self.size}}} elements, not {{{self.visited}}}"

    @property
    def names(self) -> set[str]:
        """The names of open sizes in it."""
        sizes = [each for each in (self.visited, self.size) if isinstance(each, Dim)]
        return {name for each in sizes for name in each.names}


def size_checks(kernel: KernelBody) -> list[SizeCheck]:
    """The comparisons that are not decided at compile time, each once.

    Raises CompileError if an axis is known to have fewer elements than are visited.
    """
    found: dict[SizeCheck, None] = {}
    for operand, index, size in _accesses(kernel):
        visited = _visited(kernel, index)
        if visited is None or visited == size:
            continue
        if isinstance(visited, Dim) or isinstance(size, Dim):
            found[SizeCheck(operand, visited, size)] = None
        elif visited > size:
            raise CompileError(f"{visited} elements of {operand} are needed, it has {size}")
    found |= dict.fromkeys(_reshapes(kernel))
    return list(found)


def _reshapes(kernel: KernelBody) -> Iterator[SizeCheck]:
    """The shapes that operands are read or written in, if they may have other sizes in all."""
    parts = (part for part in all_parts(needed(kernel)) if part.fn == "load")
    sources = (cast(Source, part.extra) for part in parts)
    for operand, shape in [
        *((source.operand, source.shape) for source in sources),
        *((store.operand, store.shape) for store in kernel.stores),
    ]:
        visited, size = product(shape), operand.type.numel
        if visited != size and (isinstance(visited, Dim) or isinstance(size, Dim)):
            yield SizeCheck(operand.name, visited, size, whole=True)


def _accesses(kernel: KernelBody) -> Iterator[tuple[str, Term, Size]]:
    """Every index of a load or store without a condition: operand, index and size of the axis."""
    for part in all_parts(needed(kernel)):
        if part.fn == "load" and len(part.args) == len(cast(Source, part.extra).shape):
            source = cast(Source, part.extra)
            yield from _axes(source.operand.name, part.args, source.shape)
    for store in kernel.stores:
        if store.where is None:
            yield from _axes(store.operand.name, store.indices, store.shape)


def _axes(name: str, indices: tuple[Term, ...], shape: Shape) -> Iterator[tuple[str, Term, Size]]:
    for index, size in zip(indices, shape, strict=True):
        yield name, index, size


def _visited(kernel: KernelBody, index: Term) -> Size | None:
    """How many values an index takes, if it is that of an axis or a loop."""
    if not isinstance(index, Expr) or index.fn not in ("index", "loop"):
        return None
    number = number_of(index)
    if index.fn == "index":
        return kernel.shape[number]
    return None if number in kernel.ends else kernel.loops[number]
