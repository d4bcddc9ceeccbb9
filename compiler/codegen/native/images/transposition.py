"""A transposition without redundant axes, and the beginning of its kernel."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.kernel import entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Index, Type, Value
from compiler.codegen.native.machine import Machine
from compiler.ir.dims import Dim, Size, product
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Transposition:
    """The sizes of X's axes, and for each axis of Out that of X."""

    machine: Machine
    element: Type
    sizes: tuple[Size, ...]
    order: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of its kernel."""
        sizes = "x".join(str(size) if isinstance(size, int) else "n" for size in self.sizes)
        order = "_".join(map(str, self.order))
        return f"transpose_{self.element}_{sizes}_by_{order}_{self.machine.name}"

    @property
    def nbytes(self) -> Size:
        """The bytes read and written."""
        return product(self.sizes) * (2 * self.element.nbytes)


class Walk:
    """A kernel under construction: sizes of X's axes, and their strides in both arrays."""

    def __init__(self, given: Transposition) -> None:
        opened = list(dict.fromkeys(size for size in given.sizes if isinstance(size, Dim)))
        types = [POINTER, POINTER] + [I64] * len(opened)
        self.f, values, self.first, self.last = entry(given.name, types)
        self.source, self.target = values[:2]
        self.n = Integers(self.f, dict(zip(opened, values[2:], strict=True)))
        self.nbytes = given.element.nbytes
        self.sizes = [self.n.of(size) for size in given.sizes]
        order = given.order
        self.from_strides = self._strides(self.sizes)
        in_order = self._strides([self.sizes[axis] for axis in order])
        self.to_strides = [in_order[order.index(axis)] for axis in range(len(order))]

    def _strides(self, sizes: Sequence[Index]) -> list[Index]:
        strides: list[Index] = [1]
        for size in reversed(sizes[1:]):
            strides.append(self.n.mul(strides[-1], size))
        return strides[::-1]

    def offsets(self, number: Index, axes: Sequence[int]) -> tuple[Index, Index]:
        """Offsets in both arrays of the position with this number in row-major order of axes."""
        offsets: tuple[Index, Index] = (0, 0)
        for place, axis in reversed(list(enumerate(axes))):
            number, at = self.n.divmod(number, self.sizes[axis]) if place else (0, number)
            offsets = self.moved(offsets, axis, at)
        return offsets

    def moved(self, offsets: tuple[Index, Index], axis: int, at: Index) -> tuple[Index, Index]:
        """Offsets `at` elements on along an axis of X."""
        n, (source, target) = self.n, offsets
        return (
            n.add(source, n.mul(at, self.from_strides[axis])),
            n.add(target, n.mul(at, self.to_strides[axis])),
        )

    def pointers(self, offsets: tuple[Index, Index]) -> tuple[Value, Value]:
        """Addresses in both arrays."""
        f, size = self.f, self.nbytes
        return f.address(self.source, offsets[0], size), f.address(self.target, offsets[1], size)


def chunks(size: Size, chunk: int) -> Size:
    """How many chunks an axis has, the last of which may be smaller."""
    return (size + (chunk - 1)) // chunk
