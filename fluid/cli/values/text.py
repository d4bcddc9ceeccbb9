"""Numbers in text as feeds: a line is a row of a batch, or a sequence.

Spaces and commas separate numbers; lines that begin with # are comments. For a feed with two LoD
levels a line is an inner sequence, and an empty line ends an outer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid.cli.model import CommandError, shape_text
from fluid.framework import Variable
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["parse_numbers"]

_DEEPEST = 2
_TRUTHS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class _Line:
    """The words of a line, and the line number."""

    number: int
    words: list[str]


def parse_numbers(text: str, var: Variable, where: str) -> Array | LoDTensor:
    """Parse text for a feed: an array, or a LoDTensor if the feed has LoD.

    Raises CommandError, with the line number, for words that are not numbers of the feed's dtype
    and for lines that do not form whole rows.
    """
    parts = [part for part in _parts(text) if part]
    if not parts:
        raise CommandError(f"{where} holds no numbers")
    lines = [line for part in parts for line in part]
    values = _values(lines, var, where)
    if not var.lod_level:
        return _batch(values, lines, var, where)
    return _sequences(values, parts, var, where)


def _parts(text: str) -> Iterator[list[_Line]]:
    """Groups of lines separated by empty lines."""
    part: list[_Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words:
            yield part
            part = []
        elif not words[0].startswith("#"):
            part.append(_Line(number, words))
    yield part


def _values(lines: Sequence[_Line], var: Variable, where: str) -> Array:
    """All numbers, flattened."""
    element = var.element.numpy
    read = {"f": float, "b": _truth}.get(element.kind, int)
    values: list[float] = []
    for line in lines:
        try:
            values.extend(map(read, line.words))
        except ValueError as error:
            where_text = f"{where}, line {line.number}: {' '.join(line.words)!r:.60}"
            raise CommandError(f"{where_text} is not all {element}, as {var.name!r} is") from error
    try:
        return np.array(values, element)
    except OverflowError as error:
        raise CommandError(f"{where}: a number is too large for {element}: {error}") from error


def _truth(word: str) -> bool:
    if word.lower() not in _TRUTHS:
        raise ValueError(word)
    return _TRUTHS[word.lower()]


def _batch(values: Array, lines: Sequence[_Line], var: Variable, where: str) -> Array:
    """Lines as rows of a batch; a line may also be a row of the last axis, as in a matrix."""
    tail = _tail(_dims(var)[1:], len(lines[0].words))
    if not tail:
        return values if var.dims else values.reshape(())
    row = prod(tail) if min(tail) > 0 else 0
    wrong = next((line for line in lines if len(line.words) not in (row, tail[-1])), lines[-1])
    even = len({len(line.words) for line in lines}) == 1 and len(wrong.words) in (row, tail[-1])
    if not row or not even or values.size % row:
        where_text = f"{where}, line {wrong.number}: {len(wrong.words)} numbers"
        raise CommandError(
            f"{where_text} make no row of feed {var.name!r}, which is {shape_text(var)}"
        )
    return values.reshape(-1, *tail)


def _tail(tail: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The sizes of the axes after the first; a single dynamic one is inferred from `count`."""
    row_size = prod(size for size in tail if size >= 0)
    if sum(size < 0 for size in tail) != 1 or row_size == 0 or count % row_size:
        return tail
    return tuple(count // row_size if size < 0 else size for size in tail)


def _sequences(
    values: Array, parts: Sequence[Sequence[_Line]], var: Variable, where: str
) -> LoDTensor:
    """A line per sequence; with two levels, groups of lines are the outer sequences."""
    if var.lod_level > _DEEPEST:
        raise CommandError(
            f"feed {var.name!r} has {var.lod_level} levels of sequences, text has {_DEEPEST}: "
            f"give a .npz with {var.name} and its offsets {var.name}@LOD0, …"
        )
    row = _dims(var)[1:]
    width = prod(row)
    for line in (line for part in parts for line in part):
        if width < 1 or len(line.words) % width:
            where_text = f"{where}, line {line.number}: {len(line.words)} numbers"
            raise CommandError(f"{where_text} are no rows of feed {var.name!r}, {shape_text(var)}")
    lengths = [[len(line.words) // width for part in parts for line in part]]
    if var.lod_level == _DEEPEST:
        lengths = [[len(part) for part in parts], *lengths]
    tensor = LoDTensor(values.reshape(-1, *row))
    tensor.set_lod([list(accumulate(level, initial=0)) for level in lengths])
    return tensor


def _dims(var: Variable) -> tuple[int, ...]:
    if var.dims is None:
        raise CommandError(f"feed {var.name!r} has no declared shape: give a .npy")
    return var.dims
