"""Parsing of samples from lines of text, and batching into feeds.

A line has, for every variable in order, the number of values and then the values: `3 7 8 9 1 0` are
the ids 7, 8, 9 and the label 0. Variables with LoD take any number of values, others the number in
their shape. Ids are unsigned 64-bit integers; they are fed as int64. Source: `MultiSlotDataFeed` of
release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import prod
from typing import NamedTuple

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid.data_feed_desc import FeedSlot
from fluid.dataset.sources import LineSource
from fluid.recording.variable import Variable
from runtime.errors import FeedError
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "Row", "Sample", "SampleSlot", "as_feed", "as_line", "batches", "described_slot", "from_line",
    "parsed", "samples_of_file", "slot_of", "without_zeros",
]  # fmt: skip

NEAR_ZERO = np.float32(1e-6)
"""Threshold below which floats count as zeros when zeros are dropped."""

Row = list[Array]
"""The values of each slot of a sample, one-dimensional."""


@dataclass(frozen=True)
class SampleSlot:
    """A variable of the samples; `shape` is that of one sample, None for any number of values.

    A slot that is not used is parsed and not fed.
    """

    name: str
    is_float: bool
    shape: tuple[int, ...] | None
    is_used: bool = True

    @property
    def count(self) -> int | None:
        """Number of values per sample; None for any number."""
        return None if self.shape is None else prod(self.shape)


class Sample(NamedTuple):
    """The values of a line and the id before them, if there is one."""

    row: Row
    id: str = ""


def slot_of(described: FeedSlot) -> SampleSlot:
    """The slot of a description. Its first dimension is the batch."""
    shape = tuple(abs(size) for size in described.shape[1:]) if described.is_dense else None
    return SampleSlot(described.name, described.type == "float", shape, bool(described.is_used))


def described_slot(var: Variable) -> FeedSlot:
    """The description of a variable. Raises ValueError for dtypes other than float32 and int64."""
    dtype = str(var.element.numpy)
    if dtype not in ("float32", "int64"):
        raise ValueError(f"variable {var.name!r} is {dtype}: datasets have float32 and int64 only")
    kind = "float" if dtype == "float32" else "uint64"
    if var.lod_level:
        return FeedSlot(var.name, kind, is_used=True)
    return FeedSlot(var.name, kind, is_dense=True, is_used=True, shape=list(var.shape))


def samples_of_file(
    path: str, source: LineSource, slots: Sequence[SampleSlot], marks: int = 0
) -> Iterator[Sample]:
    """The samples of a file, whose lines begin with `marks` fields of the form `1 text`.

    The first mark is the id of the sample. Raises FileNotFoundError, FeedError with the invalid
    line, and RuntimeError if a command fails.
    """
    for number, line in enumerate(source.lines(path), 1):
        where = f"{path}, line {number} of `{source.pipe_command}`"
        mark, values = _after_marks(line, marks, where)
        yield Sample(parsed(values, slots, where), mark)


def _after_marks(line: bytes, marks: int, where: str) -> tuple[str, bytes]:
    """The first mark of a line, and the line without marks; FeedError if they are missing."""
    if not marks:
        return "", line
    tokens = line.split(maxsplit=2 * marks)
    if len(tokens) <= 2 * marks or any(count != b"1" for count in tokens[: 2 * marks : 2]):
        raise FeedError(f"{where}: expected {marks} times `1 text` before the values")
    return tokens[1].decode(errors="replace"), tokens[-1]


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
    if slot.count and count % slot.count:
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


def as_line(sample: Sample, slots: Sequence[SampleSlot]) -> bytes:
    """Format a sample as a line; `from_line` is the inverse."""
    texts = (
        f"{len(values)} "
        + " ".join(map(repr, (values if s.is_float else values.view(np.uint64)).tolist()))
        for values, s in zip(sample.row, slots, strict=True)
    )
    return " ".join([f"1 {sample.id}" if sample.id else "0", *texts]).encode()


def from_line(line: bytes, slots: Sequence[SampleSlot]) -> Sample:
    """Parse a line of `as_line`."""
    where = "an exchanged sample"
    mark, values = _after_marks(line, 1, where) if line[:1] == b"1" else ("", line[1:])
    return Sample(parsed(values, slots, where), mark)


def batches(samples: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    """Lists of `size` samples; the last one may be shorter."""
    rest = iter(samples)
    while taken := list(islice(rest, size)):
        yield taken


def as_feed(samples: Sequence[Sample], slots: Sequence[SampleSlot]) -> dict[str, Array | LoDTensor]:
    """Convert a batch to feeds: arrays, and LoDTensors [values, 1] for slots of any length.

    A sample with twice the values of a shape is two rows, as in release 1.8.5.
    """
    return {
        slot.name: _fed(slot, [sample.row[index] for sample in samples])
        for index, slot in enumerate(slots)
        if slot.is_used
    }


def _fed(slot: SampleSlot, values: Sequence[Array]) -> Array | LoDTensor:
    joined = np.concatenate(values)
    if slot.shape is not None:
        return joined.reshape(-1, *slot.shape)
    tensor = LoDTensor(joined.reshape(-1, 1))
    tensor.set_recursive_sequence_lengths([[len(array) for array in values]])
    return tensor
