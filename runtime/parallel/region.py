"""Shared region: memory shared by processes, through an unnamed file, which cannot leak.

Arrays are stored in it consecutively. Offsets are checked against the memory before use.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from compiler.ir.types import Array, DType
from runtime.errors import CollectiveError, TooLarge

ALIGN = 64
"""Alignment of arrays in bytes."""

FIRST_SIZE = 1 << 16
"""Initial size of a region in bytes."""

MOST_AXES = 64

Value: TypeAlias = "Array | list[Array]"
"""An array, or the arrays of a tensor array."""

Place: TypeAlias = list[Any]
"""Location of an array: `[dtype, shape, offset]`; a list of these for a tensor array."""


class SharedRegion:
    """Shared memory behind a descriptor, grown by either process on demand."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        self._end = 0

    @staticmethod
    def create() -> SharedRegion:
        """Create a region, in memory that is freed with its last descriptor and mapping."""
        descriptor = os.memfd_create("fluid", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, FIRST_SIZE)
        return SharedRegion(descriptor)

    @property
    def nbytes(self) -> int:
        """Its size as this process sees it."""
        return len(self._map)

    def write(self, values: Sequence[Value]) -> list[Place]:
        """Copy arrays in, from the start; return their locations. Raises TooLarge."""
        self._end = 0
        locations = [self._place(value) for value in values]
        self._reserve(self._end)
        for value, place in zip(values, locations, strict=True):
            self._fill(value, place)
        return locations

    def read(self, locations: object, *, copies: bool) -> list[Value]:
        """Return the arrays at these locations, copied or as views. Raises CollectiveError if
        invalid.
        """
        if not isinstance(locations, list):
            raise CollectiveError(f"array locations must be a list, not {locations!r:.80}")
        return [self._value(place, copies) for place in cast("list[object]", locations)]

    def clear(self) -> None:
        """Free the memory of the arrays, which no process may access any more."""
        if self.nbytes > FIRST_SIZE:
            os.ftruncate(self.descriptor, FIRST_SIZE)
            self._map = mmap.mmap(self.descriptor, FIRST_SIZE)

    def close(self) -> None:
        """Close the descriptor; the mapping ends with the last view of it."""
        os.close(self.descriptor)

    def _place(self, value: Value) -> Place:
        if isinstance(value, list):
            return [self._place(item) for item in value]
        offset = self._end
        self._end += -(-value.nbytes // ALIGN) * ALIGN
        return [_element_name(value.dtype), list(value.shape), offset]

    def _reserve(self, nbytes: int) -> None:
        if nbytes <= self.nbytes:
            return
        free = free_memory()
        if nbytes > free:  # the kernel would kill a process once the pages are written
            raise TooLarge(
                f"arrays for a worker need {nbytes} bytes, but only {free} bytes are free"
            )
        size = max(nbytes, 2 * self.nbytes)
        os.ftruncate(self.descriptor, size)
        self._map = mmap.mmap(self.descriptor, size)

    def _fill(self, value: Value, place: Place) -> None:
        if isinstance(value, list):
            for item, where in zip(value, place, strict=True):
                self._fill(item, where)
        elif value.nbytes:
            self._view(*place)[...] = value

    def _value(self, place: object, copies: bool) -> Value:
        if not isinstance(place, list):
            raise CollectiveError(f"malformed array location: {place!r:.80}")
        reference = cast(Place, place)
        if reference and isinstance(reference[0], str):
            view = self._view(*_checked(reference))
            return view.copy() if copies else view
        return [cast(Array, self._value(item, copies)) for item in reference]

    def _view(self, dtype: str, shape: Sequence[int], offset: int) -> Array:
        """Return an array over a part of the memory, which the other process may have grown."""
        kind = _element_type(dtype)
        count = prod(shape)
        if count and offset + count * kind.itemsize > self.nbytes:
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        if count and offset + count * kind.itemsize > self.nbytes:
            raise CollectiveError(
                f"{dtype} of shape {tuple(shape)} at byte {offset} is outside the "
                f"{self.nbytes} bytes shared with a worker"
            )
        if not count:
            return np.empty(shape, kind)
        return np.frombuffer(self._map, kind, count, offset).reshape(shape)


@cache
def _element_name(dtype: np.dtype[Any]) -> str:
    """The name of an element type, cached: NumPy recomputes it each time, which takes
    microseconds.
    """
    return dtype.name


@cache
def _element_type(name: str) -> np.dtype[Any]:
    """Return the dtype with this name, one of those that tensors may have."""
    return DType.of(name).numpy


def free_memory() -> int:
    """Bytes of memory that a process can still allocate, as the kernel estimates it."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    (line,) = [entry for entry in lines if entry.startswith("MemAvailable:")]
    return int(line.split()[1]) << 10


def _checked(place: Place) -> Place:
    """Validate the location of one array; CollectiveError if a field is not a valid number."""
    if len(place) == 3 and isinstance(place[1], list):
        shape, offset = cast("list[object]", place[1]), place[2]
        numbers: list[object] = [*shape, offset]
        if len(shape) <= MOST_AXES and all(
            type(number) is int and number >= 0 for number in numbers
        ):
            return place
    raise CollectiveError(f"malformed array location: {place!r:.80}")
