"""Scopes of the loop nest: which values are known in which loop, and where instructions go.

Every value is computed in the outermost loop whose axes it depends on. If inner loops are open
already, its instructions go to the place that was marked before the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from compiler.codegen.native.llvm_ir import Function, InsertionPoint, Value
from compiler.codegen.native.loops.body import Axes, NotLowered
from compiler.codegen.native.loops.forms import LoopAxis
from compiler.support.dataclass import dataclass

UNIT_LEVEL = 1
"""The number of the loop over units, in which everything is computed but arguments."""

Copy = dict[LoopAxis, int]
"""One of the unrolled iterations that are emitted together: the offset of each unrolled axis."""


@dataclass
class Level:
    """A loop that is open, the values computed in it, and the place before its inner loop."""

    values: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])
    place: InsertionPoint = field(default_factory=lambda: InsertionPoint("", ""))


@dataclass(frozen=True)
class VectorAxis:
    """Values are vectors of `count` elements along an axis; 0 elements for scalars.

    `mask` has a bit for each element, which is true in bounds; None if all are.
    """

    axis: LoopAxis | None = None
    count: int = 0
    mask: Value | None = None


@dataclass
class Scopes:
    """The open loops of a function, and the values that are known in them.

    `bound` has the number and index of the loop of each axis. `copies` are the unrolled iterations
    that are emitted together; `copy` is the current one. `lanes` are the vectors of this loop.
    """

    f: Function
    levels: list[Level] = field(default_factory=lambda: [Level()])
    bound: dict[LoopAxis, tuple[int, Value]] = field(
        default_factory=dict[LoopAxis, "tuple[int, Value]"]
    )
    copies: list[Copy] = field(default_factory=lambda: [{}])
    copy: Copy = field(default_factory=dict[LoopAxis, int])
    lanes: VectorAxis = VectorAxis()

    # ---- loops ----

    @contextmanager
    def level(self, *axes: tuple[LoopAxis, Value]) -> Generator[None]:
        """Open a loop whose index is the value of some axes; the place before it is marked."""
        self.levels.append(Level())
        for axis, value in axes:
            self.bound[axis] = len(self.levels) - 1, value
        yield
        for axis, _ in axes:
            del self.bound[axis]
        self.levels.pop()

    def mark(self) -> None:
        """Mark the end of the current block as the place before inner loops."""
        self.levels[-1].place = self.f.mark()

    def depth(self, axes: Axes) -> int:
        """The number of the innermost open loop among some axes."""
        unbound = [axis.name for axis in axes if axis not in self.bound]
        if unbound:
            raise NotLowered(f"a value is needed outside its loop {unbound[0]}")
        return max((self.bound[axis][0] for axis in axes), default=UNIT_LEVEL)

    def iteration(self, axis: LoopAxis) -> Value:
        """The index of an axis's loop, without the offset of the current copy."""
        return self.bound[axis][1]

    # ---- values ----

    def hoisted(self, key: Hashable, axes: Axes, make: Callable[[], Value]) -> Value:
        """The value of a key, made in the loop of its axes unless it is known there."""
        return self.at_depth(self.depth(axes), (key, self.offsets(axes)), make)

    def at_depth(self, depth: int, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key at the level of a depth."""
        level = self.levels[min(depth, len(self.levels) - 1)]
        if key not in level.values:
            if level is self.levels[-1]:
                level.values[key] = make()
            else:
                with self.f.at(level.place):
                    level.values[key] = make()
        return level.values[key]

    def lookup(self, key: Hashable, axes: Axes) -> Value | None:
        """The value of a key if it is known in the loop of its axes."""
        return self.levels[self.depth(axes)].values.get((key, self.offsets(axes)))

    def define(self, key: Hashable, axes: Axes, value: Value) -> None:
        """Make a value that of a key in the innermost loop."""
        self.levels[-1].values[key, self.offsets(axes)] = value

    def defined(self, key: Hashable, axes: Axes) -> Value:
        """The value of a key in the innermost loop."""
        return self.levels[-1].values[key, self.offsets(axes)]

    # ---- unrolled iterations ----

    def offsets(self, axes: Axes) -> tuple[tuple[LoopAxis, int], ...]:
        """The offsets in the current copy of the axes that are unrolled."""
        return tuple(offset for offset in self.copy.items() if offset[1] and offset[0] in axes)

    def each_copy(self) -> Iterator[Copy]:
        """Make each of the unrolled iterations the current one."""
        outer = self.copy
        for copy in self.copies:
            self.copy = copy
            yield copy
        self.copy = outer

    @contextmanager
    def unrolled(self, copies: Sequence[Copy]) -> Generator[None]:
        """Emit these iterations together; the first one is the current one."""
        outer = self.copies, self.copy
        self.copies, self.copy = list(copies), copies[0]
        yield
        self.copies, self.copy = outer

    @contextmanager
    def in_copy(self, copy: Copy) -> Generator[None]:
        """Make an unrolled iteration the current one."""
        outer, self.copy = self.copy, copy
        yield
        self.copy = outer

    # ---- vectors ----

    @contextmanager
    def vectors(self, lanes: VectorAxis) -> Generator[None]:
        """Emit values as vectors of these lanes."""
        outer, self.lanes = self.lanes, lanes
        yield
        self.lanes = outer

    def is_vector(self, axes: Axes) -> bool:
        """True if an expression of these axes has a value for each lane."""
        return bool(self.lanes.count) and self.lanes.axis in axes

    def lanes_of(self, axes: Axes) -> int:
        """The lanes of an expression's values; 0 for a scalar."""
        return self.lanes.count if self.is_vector(axes) else 0
