"""Global memory: ranges of the host's memory at their own addresses, and nothing else.

Every access must lie within one range and be aligned, as memcheck of compute-sanitizer demands.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from compiler.ir.types import Array

_PAGE = 64


@dataclass(frozen=True)
class Range:
    """Bytes that a kernel may use; `held` keeps them alive."""

    start: int
    stop: int
    name: str
    writable: bool
    held: object = None


class Memory:
    """The ranges that a launch may use.

    >>> memory = Memory()
    >>> address = memory.add("x", np.arange(4, dtype="f4"))

    `symbols` are the addresses of a module's own variables.
    """

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self._ready = False
        self._views: dict[int, Array] = {}
        self.symbols: dict[str, int] = {}

    def add(self, name: str, array: Array) -> int:
        """Let kernels use a contiguous array; returns its address. ValueError if it has gaps."""
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not contiguous")
        start = int(array.__array_interface__["data"][0])
        self.add_range(name, start, array.nbytes, array.flags.writeable, array)
        return start

    def add_range(
        self, name: str, start: int, nbytes: int, writable: bool = True, held: object = None
    ) -> None:
        """Let kernels use bytes of this process, which must stay allocated while they run."""
        if nbytes:
            self._ranges.append(Range(start, start + nbytes, name, writable, held))
            self._ready = False

    def outside(self, at: Array, size: int, writes: bool) -> Array:
        """Which accesses of `size` bytes are not within a range, or write where only reads may."""
        self._prepare()
        if not self._ranges:
            return np.ones(at.shape, bool)
        index = np.searchsorted(self._starts, at, "right").astype("i8") - 1
        valid_index = np.maximum(index, 0)
        beyond = (index < 0) | (at > self._stops[valid_index] - np.uint64(size))
        return beyond | ~self._writable[valid_index] if writes else beyond

    def name_near(self, at: int) -> str:
        """The range whose start is the nearest below an address, in words."""
        below = [span for span in self._ranges if span.start <= at]
        if not below:
            return "below everything that the kernel was given"
        near = max(below, key=lambda each: (each.start, each.stop))
        place = at - near.start
        end = f"byte {place} of {near.name}, which has {near.stop - near.start}"
        return end if near.writable or at >= near.stop else f"{end} and is read only"

    def spans(self) -> tuple[Array, Array]:
        """The first address of each range and that after its last, in order; none overlap."""
        self._prepare()
        return self._starts, self._stops

    def load(self, at: Array, width: int) -> Array:
        """Read unsigned integers at aligned addresses, which `outside` has checked."""
        return self._views[width][self._index(at, width)]

    def store(self, at: Array, width: int, values: Any) -> None:
        """Write unsigned integers at aligned addresses, which `outside` has checked."""
        self._views[width][self._index(at, width)] = values

    def cells(self, at: Array, dtype: Any) -> tuple[Array, Array]:
        """The memory as elements of a type, and the index of each address."""
        kind = np.dtype(dtype)
        self._prepare()
        return self._views[kind.itemsize].view(kind), self._index(at, kind.itemsize)

    def _index(self, at: Array, width: int) -> Array:
        return ((at - self._base) // np.uint64(width)).astype("i8")

    def _prepare(self) -> None:
        if self._ready:
            return
        merged = _merged(self._ranges)
        self._starts = np.array([span.start for span in merged], "u8")
        self._stops = np.array([span.stop for span in merged], "u8")
        self._writable = np.array([span.writable for span in merged], bool)
        if merged:
            self._open(merged[0].start // _PAGE * _PAGE, max(span.stop for span in merged))
        self._ready = True

    def _open(self, low: int, high: int) -> None:
        nbytes = -(-(high - low) // _PAGE) * _PAGE
        window = (ctypes.c_uint8 * nbytes).from_address(low)
        data: Array = np.frombuffer(cast(Any, window), "u1")
        self._base = np.uint64(low)
        self._views = {width: data.view(f"u{width}") for width in (1, 2, 4, 8)}


def _merged(ranges: list[Range]) -> list[Range]:
    """Ranges by address; those that overlap become one."""
    merged: list[Range] = []
    for span in sorted(ranges, key=lambda one: (one.start, one.stop)):
        last = merged[-1] if merged else None
        if last is not None and span.start < last.stop:
            writable = last.writable and span.writable
            stop = max(last.stop, span.stop)
            merged[-1] = Range(last.start, stop, last.name, writable)
        else:
            merged.append(span)
    return merged
