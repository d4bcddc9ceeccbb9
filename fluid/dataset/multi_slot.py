"""Parsing of samples from lines of text, and batching into feeds.

A line has, for every variable in order, the number of values and then the values: `3 7 8 9 1 0` are
the ids 7, 8, 9 and the label 0. Variables with LoD take any number of values, others the number in
their shape. Ids are unsigned 64-bit integers; they are fed as int64. Source: `MultiSlotDataFeed` of
release 1.8.5.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np

from compiler.ir.types import Array
from fluid.recording.variable import Variable
from runtime.errors import FeedError
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "Row", "SampleSlot", "as_feed", "as_line", "batches", "parsed", "rows_of_file", "slot_of",
    "without_zeros",
]  # fmt: skip

NEAR_ZERO = np.float32(1e-6)
"""Threshold below which floats count as zeros when zeros are dropped."""

Row = list[Array]
"""The values of each slot of a sample, one-dimensional."""


@dataclass(frozen=True)
class SampleSlot:
    """A variable of the samples; `shape` is that of one sample, None for any number of values."""

    name: str
    is_float: bool
    shape: tuple[int, ...] | None

    @property
    def count(self) -> int | None:
        """Number of values per sample; None for any number."""
        return None if self.shape is None else prod(self.shape)


def slot_of(var: Variable) -> SampleSlot:
    """The slot of a variable. Raises ValueError for dtypes other than float32 and int64."""
    dtype = str(var.element.numpy)
    if dtype not in ("float32", "int64"):
        raise ValueError(f"variable {var.name!r} is {dtype}: datasets have float32 and int64 only")
    if var.lod_level:
        return SampleSlot(var.name, dtype == "float32", None)
    return SampleSlot(var.name, dtype == "float32", tuple(abs(size) for size in var.shape[1:]))


def rows_of_file(
    path: str, command: str, slots: Sequence[SampleSlot], marks: int = 0
) -> Iterator[Row]:
    """The samples that a shell command prints for a file on its stdin.

    Every line begins with `marks` fields of the form `1 text`, which are skipped.

    Raises FileNotFoundError, FeedError with the invalid line, and RuntimeError if the command
    fails.
    """
    with Path(path).open("rb") as source:
        shown = subprocess.Popen(command, shell=True, stdin=source, stdout=subprocess.PIPE)
    assert shown.stdout is not None
    try:
        for number, line in enumerate(shown.stdout, 1):
            where = f"{path}, line {number} of `{command}`"
            yield parsed(_after_marks(line, marks, where), slots, where)
        if shown.wait():
            raise RuntimeError(f"`{command}` ended with {shown.returncode} on {path}")
    finally:
        shown.stdout.close()
        shown.kill()
        shown.wait()


def _after_marks(line: bytes, marks: int, where: str) -> bytes:
    """A line without its marks; raises FeedError if they are missing."""
    if not marks:
        return line
    tokens = line.split(maxsplit=2 * marks)
    if len(tokens) <= 2 * marks or any(count != b"1" for count in tokens[: 2 * marks : 2]):
        raise FeedError(f"{where}: expected {marks} times `1 text` before the values")
    return tokens[-1]


def parsed(line: bytes, slots: Sequence[SampleSlot], where: str) -> Row:
    """Parse a sample. Raises FeedError naming the line, the variable and what was expected."""
    tokens, row, at = line.split(), list[Array](), 0
    for slot in slots:
        count = _count(tokens, at, slot, where)
        row.append(_values(tokens[at + 1 : at + 1 + count], slot, where))
        at += 1 + count
    if at < len(tokens):
        rest = b" ".join(tokens[at:]).decode(errors="replace")
        raise FeedError(f"{where}: unexpected {rest!r:.60} after the values of {slots[-1].name!r}")
    return row


def _count(tokens: Sequence[bytes], at: int, slot: SampleSlot, where: str) -> int:
    if at >= len(tokens) or not tokens[at].isdigit():
        actual = tokens[at].decode(errors="replace") if at < len(tokens) else "the end of the line"
        raise FeedError(f"{where}: {slot.name!r} begins with its number of values, not {actual}")
    count = int(tokens[at])
    if not 0 < count < len(tokens) - at:
        left = len(tokens) - at - 1
        raise FeedError(f"{where}: {slot.name!r} has {count} values, but {left} follow; 1 at least")
    if slot.count not in (None, count):
        raise FeedError(
            f"{where}: {slot.name!r} has {count} values, but its shape takes {slot.count}"
        )
    return count


def _values(tokens: Sequence[bytes], slot: SampleSlot, where: str) -> Array:
    try:
        if slot.is_float:
            return np.array([float(token) for token in tokens], np.float32)
        return np.array([int(token) for token in tokens], np.uint64).view(np.int64)
    except (ValueError, OverflowError) as error:
        kind = "numbers" if slot.is_float else "ids from 0 to 2**64 - 1"
        raise FeedError(f"{where}: {slot.name!r} takes {kind}, but {error}") from error


def without_zeros(row: Row, slots: Sequence[SampleSlot]) -> Row:
    """A sample without the zeros of slots with any number of values, as 1.8.5 keeps it.

    Numbers of magnitude below 1e-6 count as zeros; a slot with nothing else keeps one 0.
    """
    return [
        values if slot.shape is not None else _kept(values)
        for values, slot in zip(row, slots, strict=True)
    ]


def _kept(values: Array) -> Array:
    nonzero = (
        values[np.abs(values) >= NEAR_ZERO] if values.dtype.kind == "f" else values[values != 0]
    )
    return nonzero if nonzero.size else np.zeros(1, values.dtype)


def as_line(row: Row, slots: Sequence[SampleSlot]) -> bytes:
    """Format a sample as a line; `parsed` is the inverse."""
    texts = (
        f"{len(values)} "
        + " ".join(map(repr, (values if s.is_float else values.view(np.uint64)).tolist()))
        for values, s in zip(row, slots, strict=True)
    )
    return " ".join(texts).encode()


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Lists of `size` samples; the last one may be shorter."""
    rest = iter(rows)
    while taken := list(islice(rest, size)):
        yield taken


def as_feed(rows: Sequence[Row], slots: Sequence[SampleSlot]) -> dict[str, Array | LoDTensor]:
    """Convert a batch to feeds: arrays, and LoDTensors [values, 1] for slots of any length."""
    return {slot.name: _fed(slot, [row[index] for row in rows]) for index, slot in enumerate(slots)}


def _fed(slot: SampleSlot, values: Sequence[Array]) -> Array | LoDTensor:
    joined = np.concatenate(values)
    if slot.shape is not None:
        return joined.reshape(len(values), *slot.shape)
    tensor = LoDTensor(joined.reshape(-1, 1))
    tensor.set_recursive_sequence_lengths([[len(array) for array in values]])
    return tensor
