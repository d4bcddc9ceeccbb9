"""Matrices in shared memory as `wgmma` describes them: a start, two distances and a swizzle.

Memory is taken in units of 16 bytes. A swizzle of w units exchanges the units of a row of w within
groups of eight rows, by the bits of their addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.types import Array
from tools.ptx.checks import fault, require
from tools.ptx.errors import Hazard
from tools.ptx.group import SHARED_START, Group
from tools.ptx.instructions import Instruction

WARPGROUP = 128
UNIT = 16
_WIDTHS = np.array([1, 8, 4, 2])
"""Units of a row, by the mode of a swizzle: none, 128, 64 and 32 bytes."""

Place = Callable[[Array, Array, Array, Array, Array], Array]


@dataclass(frozen=True)
class Shape:
    """A factor of `rows` (of A, or columns of B) by 32 bytes along K, of elements of `size` bytes.

    `along_k`: the elements of a row are adjacent; else those of a column are.
    """

    rows: int
    size: int
    along_k: bool

    def matrix(self, group: Group, instruction: Instruction, at: Array, runs: Array) -> Array:
        """The bytes of a factor as [warpgroup, row, K, size], by a descriptor a warpgroup.

        `runs` tells which warpgroups take part. Raises MemoryFault for units outside of shared
        memory, Hazard for those whose asynchronous copy was not waited for.
        """
        outer, inner = self._units()
        units = _unit(at[:, None, None], outer, inner, self.along_k)
        data = _bytes(group, instruction, units, runs)
        if self.along_k:
            return data.reshape(len(at), self.rows, -1, self.size)
        units_of_rows = data.reshape(
            len(at), self.rows * self.size // UNIT, len(inner[0]), -1, self.size
        )
        return units_of_rows.transpose(0, 1, 3, 2, 4).reshape(len(at), self.rows, -1, self.size)

    def _units(self) -> tuple[Array, Array]:
        """Numbers of rows and of units in them; or of units in columns, and of columns."""
        if self.along_k:
            return np.arange(self.rows)[:, None], np.arange(2)[None, :]
        depth = 2 * UNIT // self.size
        return np.arange(self.rows * self.size // UNIT)[:, None], np.arange(depth)[None, :]


def _field(descriptor: Array, first: int, bits: int) -> Array:
    return (descriptor >> np.uint64(first) & np.uint64((1 << bits) - 1)).astype("i8")


def _unit(descriptor: Array, outer: Array, inner: Array, along_k: bool) -> Array:
    """The number of each unit in the address space of shared memory."""
    start, lead, stride = (_field(descriptor, first, 14) for first in (0, 16, 32))
    width = _WIDTHS[_field(descriptor, 62, 2)]
    plain = width == 1
    if along_k:
        step = np.where(plain, lead, 1)
        unit = start + outer % 8 * width + outer // 8 * stride + inner * step
    else:
        far, deep = np.where(plain, stride, lead), np.where(plain, lead, stride)
        unit = start + outer % width + outer // width * far + inner % 8 * width + inner // 8 * deep
    return unit ^ (unit >> 3 & (width - 1))


def _bytes(group: Group, instruction: Instruction, units: Array, runs: Array) -> Array:
    """The bytes of units of each warpgroup; zeros for those that do not take part."""
    lanes = np.arange(0, group.lanes, WARPGROUP)
    place = (units * UNIT - SHARED_START).reshape(len(lanes), -1)
    inside = (place >= 0) & (place + UNIT <= group.shared.nbytes)
    worst = np.take_along_axis(place, inside.argmin(1)[:, None], 1)[:, 0] + SHARED_START
    text = f"of its matrix is outside of {group.shared.nbytes} bytes of shared memory"
    require(group, instruction, lanes, worst, inside.all(1) | ~runs, text)
    first = np.where(runs[:, None], place, 0) + group.shared.start[lanes][:, None]
    early = (group.shared.in_flight[first] & runs[:, None]).any(1)
    if early.any():
        text = "of its matrix is read before the copy to it was waited for"
        raise fault(group, instruction, lanes[early], worst[early], text, Hazard)
    return group.shared.bytes.reshape(-1, UNIT)[first // UNIT].reshape(*units.shape, UNIT)
