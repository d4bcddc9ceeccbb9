"""Threads of several CTAs in lockstep: their registers, special registers and shared memory.

Every value is an array with one element a thread (a lane), or a NumPy scalar when all lanes share
it. A mask is None (all lanes) or an array of booleans. Lanes are padded to whole warps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array
from tools.ptx.errors import LaunchError
from tools.ptx.instructions import Kernel
from tools.ptx.matrices.flight import Products
from tools.ptx.memory import Memory

WARP = 32
SHARED_START = 1024
"""The address of the first byte of shared memory; lower addresses are the system's."""
LOCAL_START = 256
"""The address of the first byte of a thread's local memory."""
GENERIC = {"local": 1 << 62, "shared": 1 << 61}
"""What a generic address has more than one of the state space; global addresses are the same."""

Value = Any
"""An array with an element a lane, or a NumPy scalar."""
Mask = Array | None


_where: Callable[..., Any] = np.where


def choose(condition: Value, holds: Value, fails: Value) -> Value:
    """One value where a condition holds, the other where it does not."""
    return _where(condition, holds, fails)


def array(value: Value, kind: Any = None) -> Value:
    """A value as an array."""
    return np.asarray(value, kind)


class Group:
    """CTAs of a launch; `ctas` are their numbers, x fastest."""

    def __init__(
        self,
        kernel: Kernel,
        ctas: Sequence[int],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic: int,
        parameters: Mapping[str, bytes],
        memory: Memory,
    ) -> None:
        self.kernel = kernel
        self.memory = memory
        self.parameters = parameters
        self.threads = block[0] * block[1] * block[2]
        self.pitch = -(-self.threads // WARP) * WARP
        self.ctas = len(ctas)
        self.lanes = self.ctas * self.pitch
        self.cta = np.repeat(np.arange(self.ctas), self.pitch)
        self.numbers = np.repeat(array(ctas, "i8"), self.pitch)
        self.thread = np.tile(np.arange(self.pitch), self.ctas)
        self.special = _special(self, ctas, grid, block)
        self.offsets, static = shared_layout(kernel)
        self.shared = Shared(self, static + dynamic)
        self.local_offsets, size = _layout(kernel, "local", LOCAL_START)
        self.local = PerLane(self, size)
        self.registers: list[Value] = [_zero(register.width) for register in kernel.registers]
        self.copies = Copies()
        self.products = Products()
        self.carry: Value = np.bool_(False)
        self.barriers = np.zeros(self.ctas, "i4")
        self.warp_syncs = np.zeros(self.lanes // WARP, "i4")

    def start(self) -> Mask:
        """The lanes that are threads."""
        valid = self.thread < self.threads
        return None if valid.all() else valid

    def spread(self, value: Value) -> Array:
        """A value with an element a lane."""
        return np.broadcast_to(value, (self.lanes,))

    def warps(self, value: Value) -> Array:
        """A value as [warps, 32]."""
        return self.spread(value).reshape(-1, WARP)


class Copies:
    """Asynchronous copies to shared memory: they land when they are waited for."""

    def __init__(self) -> None:
        self.pending: list[tuple[Array, Array]] = []
        self.groups: list[list[tuple[Array, Array]]] = []

    def commit(self) -> None:
        """Close a group of copies."""
        self.groups.append(self.pending)
        self.pending = []

    def wait(self, shared: Shared, most: int) -> None:
        """Let all but the latest groups land."""
        while len(self.groups) > most:
            for at, data in self.groups.pop(0):
                shared.land(at, data)


class Shared:
    """Shared memory of each CTA; bytes nobody wrote are 0xFF."""

    def __init__(self, group: Group, nbytes: int) -> None:
        self.nbytes = nbytes
        self._pitch = -(-max(nbytes, 1) // 16) * 16
        self.start = group.cta * self._pitch
        self.bytes = np.full(group.ctas * self._pitch, 0xFF, "u1")
        self.in_flight = np.zeros(self.bytes.size, bool)

    def view(self, width: int) -> Array:
        """The memory as unsigned integers of this many bytes."""
        return self.bytes.view(f"u{width}")

    def land(self, at: Array, data: Array) -> None:
        """Write rows of bytes at these positions."""
        places = np.add.outer(at, np.arange(int(data.shape[1])))
        self.bytes[places] = data
        self.in_flight[places] = False


class PerLane:
    """Local memory: bytes of each thread."""

    def __init__(self, group: Group, nbytes: int) -> None:
        self.nbytes = nbytes
        pitch = -(-nbytes // 16) * 16
        self.start = np.arange(group.lanes) * pitch
        self.bytes = np.full(group.lanes * pitch, 0xFF, "u1")

    def view(self, width: int) -> Array:
        """The memory as unsigned integers of this many bytes."""
        return self.bytes.view(f"u{width}")


def shared_layout(kernel: Kernel) -> tuple[Mapping[str, int], int]:
    """The address of each variable in shared memory, and the bytes of those with a size."""
    return _layout(kernel, "shared", SHARED_START)


def _layout(kernel: Kernel, space: str, start: int) -> tuple[Mapping[str, int], int]:
    offsets: dict[str, int] = {}
    at = 0
    mine = [variable for variable in kernel.variables.values() if variable.space == space]
    for variable in sorted(mine, key=lambda one: one.nbytes == 0):
        at = -(-at // variable.align) * variable.align
        offsets[variable.name] = start + at
        at += variable.nbytes
    return offsets, at


def _zero(width: int) -> Value:
    return np.bool_(False) if width == 0 else np.dtype(f"u{width}").type(0)


def _special(
    group: Group, ctas: Sequence[int], grid: tuple[int, int, int], block: tuple[int, int, int]
) -> Mapping[str, Value]:
    if any(not 0 <= cta < grid[0] * grid[1] * grid[2] for cta in ctas):
        raise LaunchError(f"a CTA outside of the grid {grid}")
    number: Value = group.numbers if len(ctas) > 1 else np.int64(ctas[0])
    registers: dict[str, Value] = {}
    registers |= _axes("%tid", group.thread, block)
    registers |= _axes("%ctaid", number, grid)
    for axis, name in enumerate("xyz"):
        registers[f"%ntid.{name}"] = np.uint32(block[axis])
        registers[f"%nctaid.{name}"] = np.uint32(grid[axis])
    lane = (group.thread % WARP).astype("u4")
    bit = np.uint32(1) << lane
    registers["%laneid"] = lane
    registers["%warpid"] = (group.thread // WARP).astype("u4")
    registers["%nwarpid"] = np.uint32(group.pitch // WARP)
    registers |= {"%lanemask_eq": bit, "%lanemask_lt": bit - np.uint32(1)}
    registers |= {"%lanemask_le": bit | (bit - np.uint32(1)), "%lanemask_ge": ~(bit - np.uint32(1))}
    registers["%lanemask_gt"] = ~registers["%lanemask_le"]
    return registers


def _axes(name: str, number: Value, sizes: tuple[int, int, int]) -> dict[str, Value]:
    x, y, _ = sizes
    parts = number % x, number // x % y, number // (x * y)
    ones = [
        np.uint32(0) if size == 1 else part.astype("u4")
        for part, size in zip(parts, sizes, strict=True)
    ]
    return {f"{name}.{axis}": part for axis, part in zip("xyz", ones, strict=True)}
