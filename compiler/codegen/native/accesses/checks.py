"""Writes the checks that keep the accesses of a step's kernels within their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.index_ranges import Facts
from compiler.codegen.kernel.module_writer import KernelModuleWriter
from compiler.codegen.kernel.ranges import Range
from compiler.codegen.native.accesses.proof import SizeCheck, bounded, stored_numbers
from compiler.codegen.native.loops import NotLowered
from compiler.errors import ShapeError
from compiler.ir.dims import Size, names_of
from compiler.ir.opdef.size_comparison import Relation, Requirement
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass


class ChangedNumbers(NotLowered):
    """An array gets other numbers than those that kernels rely on, which other steps decide."""


@dataclass
class AccessChecks:
    """The checks of a module's kernels, and what is known of arrays and sizes as a step is written.

    With `checks_bounds`, what the host computes from offsets is compared with what kernels take it
    to be, too. `expect_in_loop` gets the text of checks of sizes that each iteration of a loop has
    its own of.
    """

    writer: KernelModuleWriter
    checks_bounds: bool
    expect_in_loop: Callable[[str], None]
    facts: Facts = field(default_factory=Facts)
    _scratch: set[str] = field(default_factory=set[str])

    def is_new(self, scratch: str) -> None:
        """Nothing is known of the numbers of scratch that was just allocated."""
        self.facts.numbers.pop(scratch, None)
        self._scratch.add(scratch)

    def has_numbers(self, array: str, low: int, below: Size) -> None:
        """Take it that an array that the host computes has indices of an axis."""
        self.facts.numbers[array] = Range((low,), (below - 1,))

    def check_kernel(self, kernel: KernelBody, exactly: bool = False) -> None:
        """Bound a kernel's accesses; write the comparisons of sizes that are left.

        An axis must have as many elements as are visited: exactly, or at least. Raises ShapeError
        if one is known to have fewer.
        """
        if kernel.is_empty:
            return
        for each in bounded(kernel, self.facts, self.writer.loop_sizes):
            self._write(each, exactly or each.whole)
        self._learn(kernel)

    def check_shape(self, name: str, shape: Shape, expected: Sequence[Size]) -> None:
        """Require the shape of an operand of a kernel that does not state its accesses one by one.

        Raises ShapeError if the shapes are known to differ.
        """
        checks = [SizeCheck(name, *sizes) for sizes in zip(expected, shape, strict=True)]
        if any(check.differs for check in checks):
            listed = [", ".join(map(str, sizes)) for sizes in (shape, expected)]
            raise ShapeError(f"{name} has shape [{listed[0]}], expected [{listed[1]}]")
        for check in checks:
            if check.visited != check.size:
                self._write(check, exactly=True)

    def expect_at_most(self, size: Size, limit: Size) -> None:
        """Take it that a size that the host computes is at most another; checked with bounds."""
        self.facts.sizes.append((size, limit))
        if not self.checks_bounds:
            return
        text = f"native.expect_at_most({size}, {limit})"
        names = names_of(size, limit)
        if names & self.writer.loop_sizes:
            self.expect_in_loop(text)
        (self.writer.setup if self._is_bound(names) else self.writer).line(text)

    def _write(self, check: SizeCheck, exactly: bool) -> None:
        """Write a comparison of sizes: once into `bind`, or before each use into the step.

        Of sizes that only the step knows, kernels may visit some rows of an array.
        """
        if self._is_bound(check.names):
            relation = Relation.EQUAL if exactly else Relation.AT_LEAST
            required = Requirement(relation, (check.size, check.visited))
            self.writer.expect(required, check.text)
        else:
            self.writer.line(f"if {check.visited} > {check.size}:")
            self.writer.line(f"    raise ValueError(f{check.text!r})")

    def _is_bound(self, names: set[str]) -> bool:
        """True for sizes that are known when a module is bound."""
        return names <= self.writer.bound_dims

    def _learn(self, kernel: KernelBody) -> None:
        """Learn the range of the integers in scratch that a kernel stores, in the step's order."""
        for name, numbers, is_whole in stored_numbers(kernel, self.facts):
            is_first = name in self._scratch and not self.writer.loop_sizes
            if not self.facts.store(name, numbers, is_whole and is_first):
                raise ChangedNumbers(f"{name} gets other numbers than those that kernels rely on")
