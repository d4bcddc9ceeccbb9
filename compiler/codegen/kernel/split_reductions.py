"""Split reductions: long reductions with few results, as several kernels.

One element that reduces a million numbers occupies one multiprocessor of a hundred, or one thread.
Instead, an element for each part of it stores a partial result to scratch, and a second kernel
combines the parts in a fixed order, so that results are deterministic. If a reduction depends on
another one (a variance on its mean, a softmax on its maximum), the first is combined before the
second starts; at last, a kernel with an element per iteration computes the stores of every
iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import cast

from compiler.codegen.kernel.analysis import (
    accumulator_type,
    loop_dependencies,
    reduction_levels,
    store_roots,
)
from compiler.codegen.kernel.body import KernelBody, Ref, Store
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr, Term, ordered
from compiler.ir.dims import Size
from compiler.ir.types import DType, Shape
from compiler.support.dataclass import dataclass

Scratch = Callable[[Sequence[Size], DType], NumpyOperand]
"""Allocates scratch memory."""


@dataclass(frozen=True)
class Split:
    """How a reduction is split: the number of parts, and the iterations of each.

    `iterations_first` is true if the kernel of stores in every iteration has adjacent elements
    along the original ones rather than along iterations.
    """

    count: int
    part: Size
    iterations_first: bool


def split_by(kernel: KernelBody, split: Split, scratch: Scratch) -> list[KernelBody]:
    """Split a kernel with one loop into several, in launch order."""
    return _Splitter(kernel, split.count, split.part, split.iterations_first, scratch).kernels()


@dataclass
class _Splitter:
    """Builds the kernels of a split reduction, level by level."""

    original: KernelBody
    count: int
    part: Size
    iterations_first: bool
    scratch: Scratch
    totals: dict[Expr, list[NumpyOperand]] = field(default_factory=dict[Expr, "list[NumpyOperand]"])

    def kernels(self) -> list[KernelBody]:
        """The partial and combining kernels of each level, then those of the stores."""
        *levels, last = reduction_levels(self.original.stores)
        kernels: list[KernelBody] = []
        for level in levels:
            partial = self._allocate(level, (self.count, *self.original.shape))
            kernels += [self._partial_kernel(partial), self._combine_kernel(partial)]
        partial = self._allocate(last, (self.count, *self.original.shape))
        kernels.append(self._partial_kernel(partial))
        if not any(self._is_per_iteration(store) for store in self.original.stores):
            return [*kernels, self._combine_and_store(partial)]
        return [*kernels, self._combine_kernel(partial), *self._stores()]

    def _allocate(self, level: Sequence[Expr], shape: Shape) -> dict[Expr, list[NumpyOperand]]:
        """Allocate scratch for the results of reductions: one number each, or three for moments."""
        return {
            part: [
                self.scratch(shape, accumulator_type(part.dtype))
                for _ in _result_values(self.original, part)
            ]
            for part in level
        }

    def _partial_kernel(self, partial: dict[Expr, list[NumpyOperand]]) -> KernelBody:
        """A kernel of partial results, with an element for each part of each element."""
        kernel = KernelBody(f"{self.original.name}_parts", (self.count, *self.original.shape))
        kernel.split_size = self.part
        substitutions = self._substitutions(
            kernel, kernel.indices[1:], kernel.loop(self.original.loops[0])
        )
        for part, buffers in partial.items():
            values = _result_values(kernel, cast(Expr, substitute(kernel, part, substitutions)))
            for buffer, value in zip(buffers, values, strict=True):
                kernel.store(Ref(kernel, buffer, kernel.shape), kernel.indices, value)
        return kernel

    def _combine_kernel(self, partial: dict[Expr, list[NumpyOperand]]) -> KernelBody:
        """A kernel that combines the parts of each element, and stores the results to scratch."""
        kernel = KernelBody(f"{self.original.name}_join", self.original.shape)
        self.totals |= self._allocate(list(partial), self.original.shape or (1,))
        for part, values in self._combined(kernel, partial).items():
            for buffer, value in zip(self.totals[part], values, strict=True):
                kernel.store(Ref(kernel, buffer, kernel.shape), kernel.indices, value)
        return kernel

    def _combine_and_store(self, partial: dict[Expr, list[NumpyOperand]]) -> KernelBody:
        """A kernel that combines the parts of each element, and performs the original stores."""
        kernel = KernelBody(self.original.name, self.original.shape)
        substitutions = self._substitutions(kernel, kernel.indices, None)
        for part, values in self._combined(kernel, partial).items():
            substitutions |= zip(_result_values(self.original, part), values, strict=True)
        return self._stored(kernel, self.original.stores, substitutions)

    def _combined(
        self, kernel: KernelBody, partial: dict[Expr, list[NumpyOperand]]
    ) -> dict[Expr, list[Expr]]:
        """The combined results of each reduction."""
        r, shape = kernel.loop(self.count), (self.count, *self.original.shape)
        return {
            part: _combine(
                kernel, part, [Ref(kernel, n, shape)[(r, *kernel.indices)] for n in own], r
            )
            for part, own in partial.items()
        }

    def _stores(self) -> list[KernelBody]:
        """Kernels for the stores executed once per element, and for those in every iteration."""
        groups: dict[bool, list[Store]] = {}
        for store in self.original.stores:
            groups.setdefault(self._is_per_iteration(store), []).append(store)
        return [
            self._per_iteration_kernel(own) if per_iteration else self._per_element_kernel(own)
            for per_iteration, own in groups.items()
        ]

    def _per_element_kernel(self, stores: list[Store]) -> KernelBody:
        kernel = KernelBody(self.original.name, self.original.shape)
        return self._stored(kernel, stores, self._substitutions(kernel, kernel.indices, None))

    def _per_iteration_kernel(self, stores: list[Store]) -> KernelBody:
        """A kernel with an element per iteration of each element; the contiguous axis is last."""
        size, shape = self.original.loops[0], self.original.shape
        if self.iterations_first:
            kernel = KernelBody(self.original.name, (size, *shape))
            iteration, *own = kernel.indices
        else:
            kernel = KernelBody(self.original.name, (*shape, size))
            *own, iteration = kernel.indices
        return self._stored(kernel, stores, self._substitutions(kernel, own, iteration))

    def _stored(
        self, kernel: KernelBody, stores: list[Store], known: dict[Expr, Term]
    ) -> KernelBody:
        """Copy stores of the original kernel into another."""
        for store in stores:
            indices, value, where = store.indices, store.value, store.where
            out = Ref(kernel, store.operand, store.shape)
            guard = None if where is None else substitute(kernel, where, known)
            position = [substitute(kernel, index, known) for index in indices]
            write = kernel.add if store.atomic else kernel.store
            write(out, position, substitute(kernel, value, known), guard)
        return kernel

    def _substitutions(
        self, kernel: KernelBody, indices: Sequence[Expr], iteration: Expr | None
    ) -> dict[Expr, Term]:
        """Map the original kernel's indices, loop and finished reductions to the new kernel's."""
        substitutions: dict[Expr, Term] = dict(zip(self.original.indices, indices, strict=True))
        if iteration is not None:
            substitutions[self.original.node("loop", (), iteration.dtype, 0)] = iteration
        for part, buffers in self.totals.items():
            loads = [Ref(kernel, buffer, self.original.shape).at(*indices) for buffer in buffers]
            substitutions |= zip(_result_values(self.original, part), loads, strict=True)
        return substitutions

    def _is_per_iteration(self, store: Store) -> bool:
        loop_deps = loop_dependencies(self.original)
        return any(loop_deps[root] for root in store_roots([store]))


def _result_values(kernel: KernelBody, part: Expr) -> list[Expr]:
    """The results of a reduction: itself, or count, mean and squared deviations."""
    if part.extra != "moments":
        return [part]
    return [kernel.node("moment", (part,), part.dtype, n) for n in range(3)]


def _combine(kernel: KernelBody, part: Expr, own: list[Expr], r: Expr) -> list[Expr]:
    """Combine the partial results of a reduction in a loop over parts.

    Reference for moments: Chan, Golub, LeVeque, 1983.
    """
    if part.extra != "moments":
        return [kernel.node("reduce", (own[0], r), part.dtype, part.extra)]
    count, mean, squares = own
    total = kernel.sum(count, r)
    middle = kernel.sum(count * mean, r) / kernel.maximum(total, 1.0)
    apart = mean - middle
    return [total, middle, kernel.sum(squares + count * (apart * apart), r)]


def substitute(kernel: KernelBody, term: Term, known: dict[Expr, Term]) -> Term:
    """Rebuild a term of one kernel in another."""
    if not isinstance(term, Expr):
        return term
    for part in ordered(term, known):
        args = tuple(known[arg] if isinstance(arg, Expr) else arg for arg in part.args)
        known[part] = kernel.node(part.fn, args, part.dtype, part.extra)
    return known[term]
