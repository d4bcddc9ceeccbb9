"""Results of a model as text: dtype, shape and the first numbers, or all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from compiler.ir.types import Array
from compiler.report.table import count, table
from compiler.support.escape import one_line
from fluid.cli.values.arrays import brief
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["NUMBERS", "looks_like_probabilities", "shown"]

ROWS = 10
"""Maximum number of rows whose argmax is shown, and of sequences."""

NUMBERS = 6
"""Number of elements shown of a result."""

Result: TypeAlias = Array | LoDTensor
"""A feed, or what a model returns."""


def shown(feed: Mapping[str, Result], outputs: Mapping[str, Result], most: int = NUMBERS) -> str:
    """Format feeds and results with their first numbers; `most` per result, -1 for all."""
    outputs = {one_line(name): value for name, value in outputs.items()}
    rows = [
        (f"feed   {name}", _kind(value), _numbers(value, NUMBERS)) for name, value in feed.items()
    ]
    rows += [
        (f"fetch  {name}", _kind(value), _numbers(value, most)) for name, value in outputs.items()
    ]
    lines = [table(rows, indent="", left=3)]
    for name, value in outputs.items():
        lines += [*_sequences(name, value, most), *_all(name, value, most)]
        lines += _likeliest(name, value)
    return "\n".join(lines)


def _kind(value: Result) -> str:
    array = np.asarray(value)
    lod = value.recursive_sequence_lengths() if isinstance(value, LoDTensor) else []
    cut = f" in {count(len(lod[0]), 'sequence')}" if lod else ""
    return f"{array.dtype} {list(array.shape)}{cut}"


def _numbers(value: Result, most: int) -> str:
    return brief(np.asarray(value), NUMBERS if most < 0 else most)


def _sequences(name: str, value: Result, most: int) -> Iterator[str]:
    """The first elements of each of the first sequences."""
    if not isinstance(value, LoDTensor) or not value.lod():
        return
    array, offsets = np.asarray(value), value.lod()[-1]
    shown = len(offsets) - 1 if most < 0 else min(ROWS, len(offsets) - 1)
    for index in range(shown):
        part = array[offsets[index] : offsets[index + 1]]
        yield f"  {name}, sequence {index}: {brief(part, part.size if most < 0 else most)}"
    if shown < len(offsets) - 1:
        yield f"  … and {len(offsets) - 1 - shown} more"


def _all(name: str, value: Result, most: int) -> Iterator[str]:
    """Every row of a result, if all elements are requested and it has no LoD."""
    array = np.asarray(value)
    if most >= 0 or isinstance(value, LoDTensor) or array.size <= NUMBERS:
        return
    rows = array.reshape(len(array) if array.ndim else 1, -1)
    yield from (f"  {name}, row {index}: {brief(row, row.size)}" for index, row in enumerate(rows))


def _likeliest(name: str, value: Result) -> Iterator[str]:
    if isinstance(value, np.ndarray) and looks_like_probabilities(value):
        more = " …" if len(value) > ROWS else ""
        classes = " ".join(map(str, value.argmax(axis=1)[:ROWS]))
        yield f"likeliest class in each row of {name}: {classes}{more}"


def looks_like_probabilities(array: Array) -> bool:
    """Whether rows of at least two numbers are non-negative and sum to 1.

    >>> looks_like_probabilities(np.float32([[0.25, 0.75], [1, 0]]))
    True
    """
    if array.ndim != 2 or array.dtype.kind != "f" or array.shape[1] < 2 or not array.size:
        return False
    return bool((array >= 0).all() and np.allclose(array.sum(axis=1), 1, atol=1e-3))
