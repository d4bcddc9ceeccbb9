"""Conversion of samples, as readers yield them, to feed tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

import numpy as np

from compiler.ir.types import Array
from fluid.framework import Program, Variable, default_main_program
from fluid.recording.annotations import DTypeLike
from fluid.recording.arguments import typed
from fluid.recording.checks import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from fluid.running.places import cpu_places, cuda_places
from runtime.device import CUDAPlace, Place
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["DataFeeder", "check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]

Batch: TypeAlias = Iterable[Sequence[object]]
Feed: TypeAlias = dict[str, LoDTensor]


class SampleError(ValueError, AssertionError):
    """Raised if the fields of a sample do not match the feed list; the reference asserts here."""


@typed
class DataFeeder:
    """Converts a batch, samples with one field per variable, to a feed.

    `feed_list` has variables or their names in the order of the fields. Raises TypeError for other
    types.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable | str],
        place: Place,
        program: Program | None = None,
    ) -> None:
        block = (program or default_main_program()).global_block()
        self.place = place
        self.variables = [block.var(v) if isinstance(v, str) else v for v in feed_list]
        self.feed_names = [var.name for var in self.variables]
        self.feed_shapes = [var.shape for var in self.variables]
        self.feed_dtypes = [var.dtype for var in self.variables]
        self.feed_lod_level = [var.lod_level for var in self.variables]

    def feed(self, iterable: Batch) -> Feed:
        """Return the tensors of a batch by name; sequences are concatenated, with LoD.

        The values of a variable with LoD level 1 are a sequence in each sample, with level 2 a
        sequence of sequences. Raises SampleError for a sample with another number of fields,
        ValueError if the values of a field do not match the variable's shape.
        """
        return self._feed(iterable, self.place)

    def feed_parallel(
        self, iterable: Collection[Batch], num_places: int | None = None
    ) -> Iterator[Feed]:
        """Yield a feed for each device, from one batch for each.

        The default `num_places` is the length of `cpu_places()` or `cuda_places()`. Raises
        ValueError for another number of batches.
        """
        places = self._places(num_places)
        if len(iterable) != len(places):
            raise ValueError(
                f"feed_parallel takes a mini-batch for each device: there are {len(places)} "
                f"devices, but {len(iterable)} mini-batches were given"
            )
        for place, batch in zip(places, iterable, strict=True):
            yield self._feed(batch, place)

    def decorate_reader(
        self,
        reader: Callable[[], Iterable[Batch]],
        multi_devices: bool,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Callable[[], Iterator[Feed | list[Feed]]]:
        """Return a reader of feeds from a reader of batches.

        With `multi_devices` it yields lists of feeds, one per device, as `feed_parallel`; a
        remainder of fewer batches than devices is dropped, or raises ValueError without
        `drop_last`.
        """

        def feeds() -> Iterator[Feed | list[Feed]]:
            if not multi_devices:
                yield from map(self.feed, reader())
                return
            count, batches = len(self._places(num_places)), iter(reader())
            while len(group := list(islice(batches, count))) == count:
                yield list(self.feed_parallel(group, count))
            if group and not drop_last:
                raise ValueError(
                    f"the last {len(group)} mini-batches are not enough for {count} devices: "
                    "pass drop_last=True, or pass as many as needed"
                )

        return feeds

    def _places(self, count: int | None) -> list[Place]:
        if not isinstance(self.place, CUDAPlace):
            return [*cpu_places(count)]
        return [*(cuda_places() if count is None else map(CUDAPlace, range(count)))]

    def _feed(self, batch: Batch, place: Place) -> Feed:
        columns: list[list[object]] = [[] for _ in self.variables]
        for sample in batch:
            if not hasattr(sample, "__len__"):
                kind = type(sample).__name__
                raise TypeError(f"a sample is a tuple or list of its fields, not {kind}")
            if len(sample) != len(columns):
                raise SampleError(
                    f"a sample has {len(sample)} fields, but {len(columns)} variables are fed"
                )
            for column, value in zip(columns, sample, strict=True):
                column.append(value)
        pairs = zip(self.variables, columns, strict=True)
        return {var.name: to_tensor(var, column, place) for var, column in pairs}


class DataToLoDTensorConverter:
    """Converts samples of one variable, passed one by one, to a tensor."""

    def __init__(
        self, place: Place, lod_level: int, shape: Sequence[int], dtype: DTypeLike
    ) -> None:
        block = Program().global_block()
        self._variable = block.create_var(
            name="data", shape=shape, dtype=dtype, lod_level=lod_level
        )
        self._place = place
        self._values: list[object] = []

    def feed(self, data: object) -> None:
        """Add a sample: a value, or a sequence nested according to the LoD level."""
        self._values.append(data)

    def done(self) -> LoDTensor:
        """Return the tensor of the samples and reset."""
        values, self._values = self._values, []
        return to_tensor(self._variable, values, self._place)


def to_tensor(var: Variable, values: list[object], place: Place) -> LoDTensor:
    """Return the tensor to feed: one value per sample, nested according to the LoD level.

    Raises ValueError if they do not match the variable's shape, and TypeError if a sequence is
    expected.
    """
    lengths: list[list[int]] = []
    for _ in range(var.lod_level):
        sequences = [_sequence(var, value) for value in values]
        lengths.append([len(sequence) for sequence in sequences])
        values = [value for sequence in sequences for value in sequence]
    tensor = LoDTensor()
    tensor.set(_array(var, values), place)
    if lengths:
        tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def _sequence(var: Variable, sequence: object) -> Sequence[object]:
    if not hasattr(sequence, "__len__"):
        kind = type(sequence).__name__
        raise TypeError(
            f"{var.name!r} has LoD level {var.lod_level}, so each sample is a sequence, not {kind}"
        )
    return cast(Sequence[object], sequence)


def _shape_text(value: object) -> str:
    """The shape of a sample, or its type if that is not one of numbers."""
    try:
        return f"shape {np.shape(cast(Any, value))}"
    except ValueError:
        return f"{type(value).__name__} of lists of different lengths"


def _array(var: Variable, values: list[object]) -> Array:
    """Return the values in the shape of the variable, which may have one dynamic dim."""
    try:
        array = np.array(values, dtype=var.element.numpy)
    except (TypeError, ValueError) as error:
        shapes = dict.fromkeys(map(_shape_text, values))
        raise ValueError(
            f"the samples of {var.name!r} have different sizes, or are not {var.element.numpy}: "
            f"{', '.join(list(shapes)[:3])}"
        ) from error
    if array.ndim == len(var.shape) or var.shape.count(-1) > 1:
        return array
    try:
        return array.reshape(var.shape)
    except ValueError:
        raise ValueError(
            f"{var.name!r} is fed values of shape {array.shape}, which do not match {var.shape}"
        ) from None
